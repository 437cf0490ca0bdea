//! S3-FIFO (Yang et al., SOSP 2023, section 4.1): a small and a main queue, with ghosts.
//!
//! The paper is "FIFO Queues are All You Need for Cache Eviction".
//!
//! A new content enters a small queue of a tenth of the cache. Uses count up to three, and move
//! nothing. The oldest of the small queue goes to the main queue if it had more than one use, with
//! its count at 0. Otherwise it leaves the cache, and the ghost queue has its name. A content on
//! the ghost queue enters the main queue. The oldest of that stays as its newest while it has uses,
//! for one of them each time. The ghost queue has as many entries as the main queue has slots.
//!
//! The small queue gives up a slot while it has its tenth, and the main queue if not.
//!
//! Invariants: a content is on one of the three queues at most.
//!
//! It has no sizes of objects: each is one slot.

use super::{
    ghosts::Ghosts,
    queues::{MAIN, Queues, SMALL, small_max},
    row::peer,
};
use larder_core::{
    named::NamedDesign,
    slotted::{ChunkSlot, ContentOrder},
    types::Fingerprint,
};

/// The design by name.
pub const DESIGN: NamedDesign =
    peer::<S3FifoOrder>("S3-FIFO (Yang et al., SOSP 2023) over contents: a small and a main FIFO, with ghosts");

/// The largest count of uses: two bits.
const USES_MAX: u8 = 3;

/// See the module.
pub struct S3FifoOrder {
    queues: Queues<2>,
    ghosts: Ghosts,
    small_max: u32,
}

impl ContentOrder for S3FifoOrder {
    const NAME: &'static str = "s3-fifo";

    fn new(slots: u32) -> Self {
        let ghosts = Ghosts::new(ghosts_max(slots));
        S3FifoOrder { queues: Queues::new(), ghosts, small_max: small_max(slots) }
    }

    fn push(&mut self, slot: ChunkSlot, content: &Fingerprint) {
        let queue = if self.ghosts.take(content) { MAIN } else { SMALL };
        self.queues.push(slot, queue);
    }

    fn touch(&mut self, slot: ChunkSlot) {
        let uses = self.queues.mark(slot);
        self.queues.set_mark(slot, (uses + 1).min(USES_MAX));
    }

    fn remove(&mut self, slot: ChunkSlot) {
        self.queues.remove(slot);
    }

    fn evict(&mut self, content_of: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        loop {
            let (slot, queue, uses) = self.queues.next_out(self.small_max)?;
            match (queue, uses) {
                (SMALL, 2..) => self.queues.push(slot, MAIN),
                (SMALL, _) => {
                    self.ghosts.add(&content_of(slot));
                    return Some(slot);
                }
                (_, 0) => return Some(slot),
                (_, uses) => {
                    self.queues.push(slot, MAIN);
                    self.queues.set_mark(slot, uses - 1);
                }
            }
        }
    }

    fn ram_bytes(&self) -> usize {
        self.queues.ram_bytes() + self.ghosts.ram_bytes()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        Queues::<2>::ram_bytes_max(slots) + Ghosts::ram_bytes_max(ghosts_max(slots))
    }
}

fn ghosts_max(slots: u32) -> u32 {
    slots - small_max(slots)
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{self, Model},
        *,
    };
    use std::collections::{BTreeMap, VecDeque};

    /// Counts by content, and three queues, the oldest first.
    struct Naive {
        slots: usize,
        uses: BTreeMap<u64, u32>,
        small: VecDeque<u64>,
        main: VecDeque<u64>,
        ghosts: VecDeque<u64>,
    }

    impl Naive {
        fn evict(&mut self) {
            let small_max = (self.slots / 10).max(1);
            loop {
                if self.small.len() >= small_max || self.main.is_empty() {
                    let content = self.small.pop_front().unwrap();
                    if self.uses[&content] > 1 {
                        self.uses.insert(content, 0);
                        self.main.push_back(content);
                        continue;
                    }
                    self.uses.remove(&content);
                    self.ghosts.push_back(content);
                    while self.ghosts.len() > self.slots - small_max {
                        self.ghosts.pop_front();
                    }
                    return;
                }
                let content = self.main.pop_front().unwrap();
                match self.uses[&content] {
                    0 => {
                        self.uses.remove(&content);
                        return;
                    }
                    uses => self.uses.insert(content, uses - 1),
                };
                self.main.push_back(content);
            }
        }
    }

    impl Model for Naive {
        fn new(slots: usize) -> Self {
            let (small, main, ghosts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
            Naive { slots, uses: BTreeMap::new(), small, main, ghosts }
        }

        fn request(&mut self, content: u64) -> bool {
            if let Some(uses) = self.uses.get_mut(&content) {
                *uses = (*uses + 1).min(3);
                return true;
            }
            if self.uses.len() == self.slots {
                self.evict();
            }
            self.uses.insert(content, 0);
            match self.ghosts.iter().position(|&ghost| ghost == content) {
                Some(at) => {
                    self.ghosts.remove(at);
                    self.main.push_back(content);
                }
                None => self.small.push_back(content),
            }
            false
        }
    }

    #[test]
    fn it_is_its_model() {
        model::agrees::<S3FifoOrder, Naive>();
    }

    /// Quick demotion (section 3): contents of one use leave after a tenth of the cache.
    #[test]
    fn contents_of_one_use_go_at_once_and_the_others_stay() {
        let hot: Vec<u64> = (0..50).collect();
        let used_thrice = [hot.clone(), hot.clone(), hot.clone()].concat();
        // A scan as long as the cache flushes out an LRU list.
        let scan: Vec<u64> = (1000..1200).collect();
        let requests = [used_thrice, scan, hot].concat();
        assert_eq!(model::hits::<S3FifoOrder>(100, &requests)[350..].iter().filter(|hit| **hit).count(), 50);
        assert_eq!(
            model::hits::<larder_core::d_lru::LastUse>(100, &requests)[350..].iter().filter(|hit| **hit).count(),
            0
        );
    }

    #[test]
    fn a_ghost_comes_back_to_the_main_queue() {
        let filled: Vec<u64> = (0..100).collect();
        // The first of a full cache goes, comes back, and outlives a scan.
        let requests = [filled, vec![100, 0], (1000..1080).collect(), vec![0]].concat();
        assert_eq!(model::hits::<S3FifoOrder>(100, &requests).last(), Some(&true));
    }
}
