//! A mapping that waits for a flush of the origin is logged behind the entries of the meantime.
//! These may free its slot.

use super::*;
use crate::evict::tests::{CHUNKS, chunk, full_cache};
use larder_core::NewMapping;

#[test]
fn a_slot_that_was_freed_ahead_is_kept_when_a_mapping_is_logged_late() {
    let (cache, runtime) = full_cache();
    let mut state = cache.shared.state.lock();
    // The flush takes the earlier entries out.
    state.origin_flushes.note_durable();
    state.origin_was_flushed(u64::MAX, u64::MAX);
    let mut tried = 0;
    for number in 0..CHUNKS {
        let fingerprint = cache.shared.codec.fingerprint(&chunk(number)).expect("a whole chunk");
        let Some(place) = state.decide().find_duplicate(&fingerprint) else { continue };
        if state.writer.is_in_memory(place.slot) {
            continue;
        }
        state.origin_flushes.note_written();
        state.map_clean(Lba(number), NewMapping::Duplicate { place }, Some(fingerprint));
        assert!(state.unflushed.has(Lba(number)), "the origin was not flushed");
        // It may be freed already, and stays so until the log says otherwise.
        state.free_ahead(place.slot);
        assert!(state.decide().is_freed(place.slot, u64::MAX));
        let logged = state.log.len();
        state.origin_flushes.note_durable();
        state.origin_was_flushed(u64::MAX, u64::MAX);
        assert_eq!(state.log.len(), logged + 1, "the mapping");
        assert!(!state.decide().is_freed(place.slot, u64::MAX), "{:?} has a chunk behind what frees it", place.slot);
        tried += 1;
    }
    assert!(tried > 20, "{tried} chunks were mapped");
    drop(state);
    drop(cache);
    runtime.shutdown();
}
