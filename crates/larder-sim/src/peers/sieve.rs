//! SIEVE (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024, section 3.1, Algorithm 1).
//!
//! One queue has the contents in the order in which they came. A use marks a content as visited,
//! and moves nothing. A hand goes from the oldest to the newest, and begins again at the oldest. It
//! clears each mark that it finds, and stops at the first content without one. That content goes,
//! and the hand stays at its newer neighbour.
//!
//! Invariants: the hand is at a content on the queue, or nowhere: then it begins at the oldest.
//!
//! It has no ghosts.

use super::{queues::Queues, row::peer};
use larder_core::{
    named::NamedDesign,
    slotted::{ChunkSlot, ContentOrder},
    types::Fingerprint,
};

/// The design by name.
pub const DESIGN: NamedDesign =
    peer::<SieveOrder>("SIEVE (Zhang et al., NSDI 2024) over contents: one queue, visited bits and a moving hand");

const QUEUE: usize = 0;

/// See the module.
pub struct SieveOrder {
    queue: Queues<1>,
    hand: Option<ChunkSlot>,
}

impl ContentOrder for SieveOrder {
    const NAME: &'static str = "sieve";

    fn new(_: u32) -> Self {
        SieveOrder { queue: Queues::new(), hand: None }
    }

    fn push(&mut self, slot: ChunkSlot, _: &Fingerprint) {
        self.queue.push(slot, QUEUE);
    }

    fn touch(&mut self, slot: ChunkSlot) {
        self.queue.set_mark(slot, 1);
    }

    fn remove(&mut self, slot: ChunkSlot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.newer(slot);
        }
        self.queue.remove(slot);
    }

    fn evict(&mut self, _: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        let mut at = self.hand.or_else(|| self.queue.oldest(QUEUE))?;
        while self.queue.mark(at) != 0 {
            self.queue.set_mark(at, 0);
            at = self.queue.newer(at).or_else(|| self.queue.oldest(QUEUE))?;
        }
        self.hand = Some(at);
        self.remove(at);
        Some(at)
    }

    fn ram_bytes(&self) -> usize {
        self.queue.ram_bytes()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        Queues::<1>::ram_bytes_max(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{self, Model},
        *,
    };

    /// Contents with their visited bits, the oldest first, and the hand's position.
    struct NaiveSieve {
        slots: usize,
        queue: Vec<(u64, bool)>,
        hand: usize,
    }

    impl Model for NaiveSieve {
        fn new(slots: usize) -> Self {
            NaiveSieve { slots, queue: Vec::new(), hand: 0 }
        }

        fn request(&mut self, content: u64) -> bool {
            if let Some((_, is_visited)) = self.queue.iter_mut().find(|(known, _)| *known == content) {
                *is_visited = true;
                return true;
            }
            if self.queue.len() == self.slots {
                while std::mem::take(&mut self.queue[self.hand].1) {
                    self.hand = (self.hand + 1) % self.slots;
                }
                self.queue.remove(self.hand);
                // The neighbour has its position now. Beyond the newest the hand begins again.
                if self.hand == self.queue.len() {
                    self.hand = 0;
                }
            }
            self.queue.push((content, false));
            false
        }
    }

    #[test]
    fn it_is_its_model() {
        model::agrees::<SieveOrder, NaiveSieve>();
    }

    /// Lazy promotion and quick demotion (section 3.2): a scan passes behind visited contents.
    #[test]
    fn visited_contents_outlive_a_scan() {
        let hot: Vec<u64> = (0..50).collect();
        let scan: Vec<u64> = (1000..1100).collect();
        let requests = [hot.clone(), hot.clone(), scan, hot].concat();
        let stayed = |hits: Vec<bool>| hits[200..].iter().filter(|hit| **hit).count();
        assert_eq!(stayed(model::hits::<SieveOrder>(60, &requests)), 50);
        assert_eq!(stayed(model::hits::<larder_core::d_lru::LastUse>(60, &requests)), 0);
    }

    #[test]
    fn the_hand_goes_on_beside_a_content_that_is_forgotten() {
        let mut order = SieveOrder::new(4);
        let content = |slot: ChunkSlot| model::fingerprint(u64::from(slot.0));
        (0..4).map(ChunkSlot).for_each(|slot| order.push(slot, &content(slot)));
        order.touch(ChunkSlot(0));
        assert_eq!(order.evict(content), Some(ChunkSlot(1)));
        order.remove(ChunkSlot(2));
        assert_eq!(order.evict(content), Some(ChunkSlot(3)));
        assert_eq!(order.evict(content), Some(ChunkSlot(0)));
        assert_eq!(order.evict(content), None);
    }
}
