//! The verbs that a [`Decider`] passes on to its design: none of them changes dirty data.
//!
//! Invariants: a slot with dirty references is never evicted. Only clean chunks of zeroes are
//! dropped.
//!
//! It leaves the verbs that change dirty data to `decider.rs`.

use super::Decider;
use crate::{
    design::{Design, Mapping, Persist, Slots, ToldBy, Use, Victim},
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

macro_rules! passed_on {
    ($($of:ident: fn $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        impl<D: Design + ?Sized> Decider<D> {
            $(
                #[doc = concat!("Passes on [`", stringify!($of), "::", stringify!($name), "`].")]
                #[inline]
                pub fn $name(&mut self, $($argument: $type),*) $(-> $answer)? {
                    $of::$name(&mut *self.design, $($argument),*)
                }
            )*
        }
    };
}

passed_on! {
    Mapping: fn used(uses: &[Use]);
    Mapping: fn find_duplicate(fingerprint: &Fingerprint) -> Option<Place>;
    Slots: fn open_slot(class: StreamClass) -> Option<(SlotId, u32)>;
    Slots: fn seal_slot(slot: SlotId);
    Slots: fn choose_victim(busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim>;
    Slots: fn spare_victim(slot: SlotId);
    Slots: fn evict(slot: SlotId) -> Option<u32>;
    Slots: fn release_slot(slot: SlotId);
    Slots: fn sweep() -> usize;
    Slots: fn drop_clean_zeroes(all: bool, max: usize) -> Vec<Lba>;
    Persist: fn begin_export();
    Persist: fn export_is_durable();
    Persist: fn next_slots() -> Option<Vec<ExportedSlot>>;
    Persist: fn next_fingerprints() -> Option<Vec<(Fingerprint, Place)>>;
    Persist: fn restore_fingerprint(fingerprint: &Fingerprint, place: &Place, told_by: ToldBy);
}
