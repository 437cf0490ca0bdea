//! Random requests of a peer beside a naive model, for the tests of the peers.
//!
//! Addresses are plenty, so that contents alone compete. It does not model dirty data.

use larder_core::{
    d_lru::OverContents,
    slotted::{ChunkSlot, ContentOrder, Decision, Slotted},
    types::{Fingerprint, Lba, mix},
};

/// A cache of contents alone.
pub trait Model {
    /// Makes an empty cache of so many contents.
    fn new(slots: usize) -> Self;

    /// Requests a content, and returns whether it was cached.
    fn request(&mut self, content: u64) -> bool;
}

const ADDRESSES: u64 = 4096;

/// An order whose RAM stays within its maximum after each change.
struct Bounded<O> {
    order: O,
    slots: u32,
}

impl<O: ContentOrder> Bounded<O> {
    fn check(&self) {
        assert!(self.order.ram_bytes() <= O::ram_bytes_max(self.slots), "{} of {} slots", O::NAME, self.slots);
    }
}

impl<O: ContentOrder> ContentOrder for Bounded<O> {
    const NAME: &'static str = O::NAME;
    const IS_SELECTIVE: bool = O::IS_SELECTIVE;

    fn new(slots: u32) -> Self {
        Bounded { order: O::new(slots), slots }
    }

    fn admits(&mut self, content: &Fingerprint) -> bool {
        let is_admitted = self.order.admits(content);
        self.check();
        is_admitted
    }

    fn push(&mut self, slot: ChunkSlot, content: &Fingerprint) {
        self.order.push(slot, content);
        self.check();
    }

    fn touch(&mut self, slot: ChunkSlot) {
        self.order.touch(slot);
        self.check();
    }

    fn remove(&mut self, slot: ChunkSlot) {
        self.order.remove(slot);
    }

    fn evict(&mut self, content_of: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        let slot = self.order.evict(content_of);
        self.check();
        slot
    }

    fn ram_bytes(&self) -> usize {
        self.order.ram_bytes()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        O::ram_bytes_max(slots)
    }
}

pub fn fingerprint(content: u64) -> Fingerprint {
    Fingerprint((u128::from(mix(content)) << 64 | u128::from(mix(content + 1))).to_le_bytes())
}

fn cache<O: ContentOrder>(slots: u64) -> OverContents<O> {
    OverContents::new(slots, ADDRESSES).expect("a size")
}

/// Requests `content` at `lba`, and returns whether it was cached.
fn request<O: ContentOrder>(cache: &mut OverContents<O>, lba: u64, content: u64, reads: bool) -> bool {
    let is_cached = cache.slot_of(&fingerprint(content)).is_some();
    let (lba, mut decision) = (Lba(lba), Decision::default());
    let is_there = cache.content_of(lba) == Some(fingerprint(content));
    let is_hit = reads && is_there && cache.read(lba, &mut decision).is_some();
    if !is_hit && cache.admits(lba, &fingerprint(content), &mut decision) {
        cache.put(lba, &fingerprint(content), false, &mut decision);
    }
    is_cached
}

/// Returns the hits of a cache of so many slots, each content at an address of its own.
pub fn hits<O: ContentOrder>(slots: u64, contents: &[u64]) -> Vec<bool> {
    let mut cache = cache::<O>(slots);
    contents.iter().map(|&content| request(&mut cache, content, content, true)).collect()
}

/// Checks that each request hits if the model's does, at addresses that share contents.
pub fn agrees<O: ContentOrder, M: Model>() {
    for (seed, slots) in (0u64..40).zip([1, 2, 3, 9, 10, 20, 37, 64].into_iter().cycle()) {
        let (mut cache, mut model) = (cache::<Bounded<O>>(slots), M::new(slots as usize));
        let mut hits = 0;
        for step in 0..6000u64 {
            let drawn = mix(seed << 32 | step);
            // Half of the requests go to a few contents, and some scan.
            let content = match drawn >> 40 & 7 {
                0..4 => drawn % (slots + 2),
                4..7 => drawn % (4 * slots + 7),
                _ => 500 + step % (3 * slots),
            };
            // Each content has three addresses, and some addresses change theirs.
            let lba = if drawn >> 50 & 15 == 0 { 4000 + (drawn >> 20) % 90 } else { 3 * content + (drawn >> 24) % 3 };
            let expected = model.request(content);
            let found = request(&mut cache, lba, content, drawn >> 60 & 1 == 0);
            assert_eq!(found, expected, "seed {seed}, {slots} slots, step {step}: content {content}");
            hits += u32::from(found);
        }
        assert!(hits > 500, "{hits} hits");
    }
}
