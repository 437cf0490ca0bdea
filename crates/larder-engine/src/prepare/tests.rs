//! A content that AustereCache's FP index likely has waits for its metadata slot, uncompressed. Its
//! hash alone does not make it a duplicate.

use super::*;
use crate::segment::tests::{CHUNKS, austere, chunk, read, write};
use larder_core::{Lba, Lookup};
use std::sync::atomic::Ordering::Relaxed;

/// More contents than the cache remembers metadata slots.
const STORED: u64 = 1000;

#[test]
fn what_is_likely_there_is_looked_for_before_it_is_compressed() {
    let (cache, runtime, twin) = austere();
    let shared = &cache.shared;
    (0..STORED).for_each(|number| write(&cache, Lba(number), number));
    // Metadata slots that wait for their write are known.
    cache.flush_blocking().expect("flushed");
    let fingerprint = |number: u64| shared.codec.fingerprint(&chunk(number)).expect("a whole chunk");
    let key = |number: u64| twin.key_of_content(&fingerprint(number)).0;
    let keys: Vec<u64> = (0..STORED).map(key).collect();
    let new = (STORED..).find(|&number| !keys.contains(&key(number))).expect("there are many hashes");
    let alike = (STORED..).find(|&number| keys.contains(&key(number))).expect("there are few enough hashes");

    let prepare = |number: u64| shared.prepare(&chunk(number));
    let is_remembered = |number: u64| shared.state.lock().find_duplicate(&fingerprint(number)).is_some();
    assert!(!is_remembered(0) && matches!(prepare(0), Prepared::Known { .. }), "its hash is there");
    assert!(matches!(prepare(new), Prepared::New { .. }), "no hash of it is there");
    assert!(!is_remembered(alike) && matches!(prepare(alike), Prepared::Known { .. }), "its hash is there");

    let counts = || {
        let counters = &shared.counters;
        (counters.inserted_chunks.load(Relaxed), counters.duplicate_chunks.load(Relaxed))
    };
    let before = counts();
    for (lba, number) in [(CHUNKS - 1, 1), (CHUNKS - 2, alike), (CHUNKS - 3, new)] {
        write(&cache, Lba(lba), number);
        assert!(read(&cache, Lba(lba)) == chunk(number), "what was written");
    }
    assert_eq!(counts(), (before.0 + 3, before.1 + 1), "one of three was there");
    let stored = shared.state.lock().design().peek(Lba(CHUNKS - 2));
    let Lookup::Chunk { place, .. } = stored else { panic!("it is cached: {stored:?}") };
    assert!((place.stored_len as usize) < chunk(alike).len(), "it was compressed after all");
    drop(cache);
    runtime.shutdown();
}
