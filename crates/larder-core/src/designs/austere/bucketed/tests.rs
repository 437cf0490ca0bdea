//! Data about a run beside the indices leaves with it, on each way out.
//!
//! From outside it is invisible that a slot's next run counts as unable to leave, or that data of
//! gone runs leaks.

use super::*;
use crate::{
    NewMapping, StreamClass,
    design::{Mapping, Provisional, Slots},
    types::mix,
};

const CHUNK_BYTES: u32 = 8 << 10;

fn stored_fingerprint(lba: Lba) -> Fingerprint {
    Fingerprint((u128::from(mix(lba.0)) << 64 | u128::from(lba.0)).to_le_bytes())
}

/// Stores chunks until one finds no room; returns its address.
fn filled() -> (Bucketed, Lba) {
    let austere = AustereConfig { lba_entries: Some(256), ..AustereConfig::new(2 << 20, CHUNK_BYTES, true) };
    let mut design = Bucketed::new(BucketedConfig { austere, chunk_count: 4096, exact_max: 200 }).expect("a layout");
    for lba in (0..4096).map(Lba) {
        let fingerprint = stored_fingerprint(lba);
        let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK_BYTES };
        let Some((slot, generation)) = design.open_slot_for(StreamClass::Clean, &wanted) else { return (design, lba) };
        let place = Place { slot, generation, offset: 0, stored_len: CHUNK_BYTES, crc: 0, encoding: 0 };
        let new = NewMapping::Unique { place, fingerprint: Some(fingerprint) };
        design.map(lba, new, false);
        design.settle(lba, true);
    }
    panic!("there is room for all");
}

/// Lets a run in the way of a waiting record fail to leave, and then leave.
fn leaves_after_all(leave: impl FnOnce(&mut Bucketed, SlotId)) {
    let (mut design, lba) = filled();
    let slot = design.choose_victim(&mut |_| false).expect("a victim").slot;
    assert!(design.entries.get(slot).is_some(), "its chunk was just stored");
    design.spare_victim(slot);
    assert!(design.stuck.contains(&slot));
    leave(&mut design, slot);
    assert_eq!(design.core().run_from(slot.0), None, "{slot:?} is free");
    assert!(!design.stuck.contains(&slot), "{slot:?} left, and {lba:?} may have it");
    assert!(design.entries.get(slot).is_none(), "what was known of {slot:?} is not true of what comes there");
    assert!(!design.ahead.has(slot));
    design.check();
}

#[test]
fn an_evicted_run_leaves_nothing_behind() {
    leaves_after_all(|design, slot| {
        assert!(design.evict(slot).is_some());
        design.release_slot(slot);
    });
}

#[test]
fn a_run_that_was_freed_ahead_leaves_nothing_behind() {
    leaves_after_all(|design, slot| {
        assert!(design.free_ahead(slot, 1).is_some());
        assert!(design.is_freed(slot, 2));
        design.reuse(&[slot]);
    });
}

#[test]
fn a_run_that_recovery_finds_wrong_leaves_nothing_behind() {
    leaves_after_all(|design, slot| design.forget_clean(&|of| of == slot));
}
