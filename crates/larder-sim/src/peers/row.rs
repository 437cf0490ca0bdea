//! The row of a peer: slots of one chunk under d-lru's cache, with the order of the peer.
//!
//! It does not list the peers.

use larder_core::{
    d_lru::OverContents,
    named::{NamedDesign, Over, OverSlots},
    slotted::{ContentOrder, of_slots},
};

/// Returns the row of a peer.
pub(super) const fn peer<O: ContentOrder + 'static>(about: &'static str) -> NamedDesign {
    NamedDesign {
        name: O::NAME,
        about,
        over: Over::Slots(OverSlots {
            dedup: true,
            make: |slots, chunk_bytes| of_slots(slots, |size| OverContents::<O>::for_flash(size, chunk_bytes)),
        }),
    }
}
