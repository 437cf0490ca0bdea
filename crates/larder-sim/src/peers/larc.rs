//! LARC (Huang et al., MSST 2013, Algorithm 1): LRU of contents that are missed twice.
//!
//! The paper is "Improving Flash-based Disk Cache with Lazy Adaptive Replacement".
//!
//! The cache has its contents by last use. A content that is missed gets no slot: the ghost queue
//! has its name. If it is missed again while it is there, it gets one. The ghosts are at most a
//! target, from a tenth to nine tenths of the cache of C slots, which follows the hits. A hit
//! lowers the target r by C / (C - r), and a miss raises it by C / r.
//!
//! Ours: dirty data always gets a slot. There is room for one ghost in the smallest cache. The
//! address of a refused content is known without data, as any of d-lru's whose data is gone.
//!
//! Invariants: a content with a slot is no ghost.
//!
//! It counts the requests of a content, at any of its addresses.

use super::{ghosts::Ghosts, queues::Queues, row::peer};
use larder_core::{
    named::NamedDesign,
    slotted::{ChunkSlot, ContentOrder},
    types::Fingerprint,
};

/// The design by name.
pub const DESIGN: NamedDesign = peer::<LarcOrder>(
    "LARC (Huang et al., MSST 2013) over contents: LRU of those that are missed again, and adaptive ghosts",
);

const QUEUE: usize = 0;
/// The least and the greatest target, in shares of the cache.
const TARGET_MIN: f64 = 0.1;
const TARGET_MAX: f64 = 0.9;

/// See the module.
pub struct LarcOrder {
    queue: Queues<1>,
    ghosts: Ghosts,
    /// Slots of the cache: the paper's C.
    slots: f64,
    /// Ghosts at most: the paper's C_r.
    target: f64,
    /// The content that was just admitted.
    admitted: Option<Fingerprint>,
}

/// Returns the most ghosts of so many slots.
fn ghosts_max(slots: u32) -> u32 {
    ((f64::from(slots) * TARGET_MAX) as u32).max(1)
}

impl LarcOrder {
    /// Counts a miss; returns whether the content was a ghost.
    fn miss(&mut self, content: &Fingerprint) -> bool {
        self.target = (self.target + self.slots / self.target).min(self.slots * TARGET_MAX);
        self.ghosts.take(content)
    }
}

impl ContentOrder for LarcOrder {
    const NAME: &'static str = "larc";
    const IS_SELECTIVE: bool = true;

    fn new(slots: u32) -> Self {
        LarcOrder {
            queue: Queues::new(),
            ghosts: Ghosts::new(ghosts_max(slots)),
            slots: slots.into(),
            target: f64::from(slots) * TARGET_MIN,
            admitted: None,
        }
    }

    fn admits(&mut self, content: &Fingerprint) -> bool {
        let is_ghost = self.miss(content);
        if is_ghost {
            self.admitted = Some(*content);
        } else {
            self.ghosts.add(content);
            self.ghosts.cut((self.target as usize).max(1));
        }
        is_ghost
    }

    fn push(&mut self, slot: ChunkSlot, content: &Fingerprint) {
        if self.admitted.take() != Some(*content) {
            self.miss(content);
        }
        self.queue.push(slot, QUEUE);
    }

    fn touch(&mut self, slot: ChunkSlot) {
        self.queue.remove(slot);
        self.queue.push(slot, QUEUE);
        self.target = (self.target - self.slots / (self.slots - self.target)).max(self.slots * TARGET_MIN);
    }

    fn remove(&mut self, slot: ChunkSlot) {
        self.queue.remove(slot);
    }

    fn evict(&mut self, _: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        let oldest = self.queue.oldest(QUEUE)?;
        self.queue.remove(oldest);
        Some(oldest)
    }

    fn ram_bytes(&self) -> usize {
        self.queue.ram_bytes() + self.ghosts.ram_bytes()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        Queues::<1>::ram_bytes_max(slots) + Ghosts::ram_bytes_max(ghosts_max(slots))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{self, Model},
        *,
    };
    use std::collections::VecDeque;

    /// Contents and ghosts, the oldest first, and the target of the ghosts.
    struct NaiveLarc {
        slots: f64,
        cached: VecDeque<u64>,
        ghosts: VecDeque<u64>,
        target: f64,
    }

    fn taken(queue: &mut VecDeque<u64>, content: u64) -> bool {
        let found = queue.iter().position(|&known| known == content);
        found.is_some_and(|at| queue.remove(at).is_some())
    }

    impl Model for NaiveLarc {
        fn new(slots: usize) -> Self {
            let slots = slots as f64;
            NaiveLarc { slots, cached: VecDeque::new(), ghosts: VecDeque::new(), target: 0.1 * slots }
        }

        fn request(&mut self, content: u64) -> bool {
            let NaiveLarc { slots, cached, ghosts, target } = self;
            if taken(cached, content) {
                cached.push_back(content);
                *target = f64::max(0.1 * *slots, *target - *slots / (*slots - *target));
                return true;
            }
            *target = f64::min(0.9 * *slots, *target + *slots / *target);
            if taken(ghosts, content) {
                if cached.len() as f64 == *slots {
                    cached.pop_front();
                }
                cached.push_back(content);
                return false;
            }
            ghosts.push_back(content);
            while ghosts.len() > 1 && ghosts.len() as f64 > *target {
                ghosts.pop_front();
            }
            false
        }
    }

    #[test]
    fn it_is_its_model() {
        model::agrees::<LarcOrder, NaiveLarc>();
    }

    /// Checks that a scan passes by hot contents, which are missed twice (section 3.1).
    #[test]
    fn a_scan_takes_no_slots() {
        let hot: Vec<u64> = (0..50).collect();
        let scan: Vec<u64> = (1000..1500).collect();
        let requests = [hot.clone(), hot.clone(), scan, hot].concat();
        let stayed = |hits: Vec<bool>| hits[600..].iter().filter(|hit| **hit).count();
        assert_eq!(stayed(model::hits::<LarcOrder>(60, &requests)), 50);
        assert_eq!(stayed(model::hits::<larder_core::d_lru::LastUse>(60, &requests)), 0);
    }

    #[test]
    fn dirty_data_gets_a_slot_at_once() {
        let mut order = LarcOrder::new(4);
        let content = |slot: ChunkSlot| model::fingerprint(u64::from(slot.0));
        (0..2).map(ChunkSlot).for_each(|slot| order.push(slot, &content(slot)));
        assert!(!order.admits(&content(ChunkSlot(2))) && order.admits(&content(ChunkSlot(2))));
        order.push(ChunkSlot(2), &content(ChunkSlot(2)));
        order.touch(ChunkSlot(0));
        let evicted: Vec<_> = (0..4).map(|_| order.evict(content)).collect();
        assert_eq!(evicted, [Some(ChunkSlot(1)), Some(ChunkSlot(2)), Some(ChunkSlot(0)), None]);
    }
}
