//! Clock2Q+ (Zhai et al., 2025, sections 3.3 and 3.4): S3-FIFO with a window of correlated uses.
//!
//! The paper is arXiv 2511.21958, a "Replacement Algorithm for Metadata Cache in VMware vSAN".
//!
//! A new content enters a small queue of a tenth of the cache. Half of that, at the end of the
//! newest, is the correlation window: uses there are of the same moment, and count for nothing. A
//! use behind the window sets a reference bit. The oldest of the small queue goes to the main clock
//! if it has that bit, and loses it. Otherwise it leaves the cache, and the ghost queue has its
//! name. A content on the ghost queue enters the main clock. The clock clears the bits that its
//! hand passes, and the first content without one goes. Ghosts are half as many as the cache has
//! slots.
//!
//! Open points, settled from summaries of the paper, as the text was not at hand: the age of a
//! content in the window is the number of later ones that entered the small queue. A content enters
//! the clock behind the hand, without its bit. So the clock is a queue whose oldest comes again as
//! the newest. The small queue gives up a slot while it has its tenth, as in S3-FIFO.
//!
//! Invariants: a content is on one of the three queues at most.
//!
//! It leaves out the paper's limit for a movement of the hand, and its rules for dirty blocks.

use super::{
    ghosts::Ghosts,
    queues::{MAIN, Queues, SMALL, small_max},
    row::peer,
};
use larder_core::{
    named::NamedDesign,
    slotted::{ChunkSlot, ContentOrder, vec_bytes_max},
    types::Fingerprint,
};

/// The design by name.
pub const DESIGN: NamedDesign = peer::<Clock2QPlusOrder>(
    "Clock2Q+ (Zhai et al., 2025) over contents: a small FIFO with a correlation window, a clock, ghosts",
);

/// Places of the small queue for each one of its window.
const WINDOW_SHARE: u32 = 2;
/// Slots for each ghost.
const GHOST_SHARE: u32 = 2;

/// See the module.
pub struct Clock2QPlusOrder {
    queues: Queues<2>,
    ghosts: Ghosts,
    /// The count of [`Self::entered`] with which each slot entered the small queue.
    since: Vec<u32>,
    /// Contents that entered the small queue, modulo 2^32.
    entered: u32,
    small_max: u32,
}

impl ContentOrder for Clock2QPlusOrder {
    const NAME: &'static str = "clock2q+";

    fn new(slots: u32) -> Self {
        let ghosts = Ghosts::new(slots / GHOST_SHARE);
        Clock2QPlusOrder { queues: Queues::new(), ghosts, since: Vec::new(), entered: 0, small_max: small_max(slots) }
    }

    fn push(&mut self, slot: ChunkSlot, content: &Fingerprint) {
        if self.ghosts.take(content) {
            self.queues.push(slot, MAIN);
            return;
        }
        self.entered = self.entered.wrapping_add(1);
        let i = slot.0 as usize;
        if i >= self.since.len() {
            self.since.resize(i + 1, 0);
        }
        self.since[i] = self.entered;
        self.queues.push(slot, SMALL);
    }

    fn touch(&mut self, slot: ChunkSlot) {
        let is_in_window = self.queues.queue(slot) == SMALL
            && self.entered.wrapping_sub(self.since[slot.0 as usize]) < self.small_max / WINDOW_SHARE;
        if !is_in_window {
            self.queues.set_mark(slot, 1);
        }
    }

    fn remove(&mut self, slot: ChunkSlot) {
        self.queues.remove(slot);
    }

    fn evict(&mut self, content_of: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        loop {
            let (slot, queue, mark) = self.queues.next_out(self.small_max)?;
            if mark != 0 {
                self.queues.push(slot, MAIN);
                continue;
            }
            if queue == SMALL {
                self.ghosts.add(&content_of(slot));
            }
            return Some(slot);
        }
    }

    fn ram_bytes(&self) -> usize {
        self.queues.ram_bytes() + self.ghosts.ram_bytes() + self.since.capacity() * size_of::<u32>()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        let ghosts = Ghosts::ram_bytes_max(slots / GHOST_SHARE);
        Queues::<2>::ram_bytes_max(slots) + ghosts + vec_bytes_max::<u32>(slots as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{self, Model},
        *,
    };
    use std::collections::VecDeque;

    /// Contents with their bits, the oldest first; in the small queue with their ages.
    struct NaiveClock {
        slots: usize,
        small: VecDeque<(u64, bool, usize)>,
        main: VecDeque<(u64, bool)>,
        ghosts: VecDeque<u64>,
    }

    impl NaiveClock {
        fn small_max(&self) -> usize {
            (self.slots / 10).max(1)
        }

        fn evict(&mut self) {
            loop {
                if self.small.len() >= self.small_max() || self.main.is_empty() {
                    let (content, is_referenced, _) = self.small.pop_front().unwrap();
                    if is_referenced {
                        self.main.push_back((content, false));
                        continue;
                    }
                    self.ghosts.push_back(content);
                    if self.ghosts.len() > self.slots / 2 {
                        self.ghosts.pop_front();
                    }
                    return;
                }
                let (content, is_referenced) = self.main.pop_front().unwrap();
                if !is_referenced {
                    return;
                }
                self.main.push_back((content, false));
            }
        }
    }

    impl Model for NaiveClock {
        fn new(slots: usize) -> Self {
            NaiveClock { slots, small: VecDeque::new(), main: VecDeque::new(), ghosts: VecDeque::new() }
        }

        fn request(&mut self, content: u64) -> bool {
            let window = self.small_max() / 2;
            if let Some((_, is_referenced, age)) = self.small.iter_mut().find(|(known, ..)| *known == content) {
                *is_referenced |= *age >= window;
                return true;
            }
            if let Some((_, is_referenced)) = self.main.iter_mut().find(|(known, _)| *known == content) {
                *is_referenced = true;
                return true;
            }
            if self.small.len() + self.main.len() == self.slots {
                self.evict();
            }
            if let Some(at) = self.ghosts.iter().position(|&ghost| ghost == content) {
                self.ghosts.remove(at);
                self.main.push_back((content, false));
            } else {
                self.small.iter_mut().for_each(|(_, _, age)| *age += 1);
                self.small.push_back((content, false, 0));
            }
            false
        }
    }

    #[test]
    fn it_is_its_model() {
        model::agrees::<Clock2QPlusOrder, NaiveClock>();
    }

    /// Correlated references (section 2.2): a scan that uses each content thrice at once.
    #[test]
    fn uses_right_after_the_first_make_no_content_hot() {
        // The hot contents are used again when they are behind the window.
        let hot: Vec<u64> = (0..50).collect();
        let others: Vec<u64> = (900..910).collect();
        let correlated: Vec<u64> = (1000..1200).flat_map(|content| [content; 3]).collect();
        let before = [hot.clone(), others, hot.clone(), hot.clone(), hot.clone(), correlated].concat();
        let requests = [before.clone(), hot].concat();
        let stayed = |hits: Vec<bool>| hits[before.len()..].iter().filter(|hit| **hit).count();
        assert_eq!(stayed(model::hits::<Clock2QPlusOrder>(100, &requests)), 50);
        assert_eq!(stayed(model::hits::<larder_core::d_lru::LastUse>(100, &requests)), 0);
        // S3-FIFO takes each content of the scan for a hot one.
        assert_eq!(stayed(model::hits::<crate::peers::s3_fifo::S3FifoOrder>(100, &requests)), 0);
    }
}
