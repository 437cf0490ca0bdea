//! Caches of equal slots under replay.
//!
//! The tests cover D-LRU without duplicates, and the cost of requests under each write policy.

use crate::common::{references, traces};
use larder_core::{
    Fingerprint, Lba,
    arc::Arc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{METADATA_PAGE_BYTES, Slotted},
};
use larder_sim::{
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    replay::own_content,
    slotted::SlottedCache,
    traffic::Traffic,
};
use proptest::{prelude::*, test_runner::RngSeed};

const CHUNK_BYTES: u32 = 4096;
const CHUNK: u64 = CHUNK_BYTES as u64;

fn content(number: u64) -> Content {
    Content { fingerprint: Fingerprint((u128::from(number) << 64).to_le_bytes()), stored_bytes: 1000 }
}

fn cache<D: Slotted>(design: D, policy: WritePolicy) -> SlottedCache<D> {
    SlottedCache::new(design, policy, CHUNK_BYTES)
}

/// Asks both caches the same, and compares each answer.
fn same_hits(chunks: u64, addresses: u64, requests: impl Iterator<Item = (u64, bool)>) {
    let mut lru = cache(Lru::new(chunks).expect("a size"), WritePolicy::Back);
    let mut d_lru = cache(DLru::new(chunks, addresses).expect("a size"), WritePolicy::Back);
    for (at, (lba, is_write)) in requests.enumerate() {
        let content = own_content(Lba(lba), CHUNK_BYTES);
        let hits = if is_write {
            (lru.write(Lba(lba), &content), d_lru.write(Lba(lba), &content))
        } else {
            (lru.read(Lba(lba), &content), d_lru.read(Lba(lba), &content))
        };
        assert_eq!(hits.0, hits.1, "request {at}, of address {lba}, with {chunks} chunks");
    }
    assert_eq!(lru.traffic().origin_chunks_written, d_lru.traffic().origin_chunks_written, "as much was destaged");
}

#[test]
fn d_lru_is_lru_without_duplicates_on_oltp() {
    let Some(traces) = traces("d_lru_is_lru_without_duplicates_on_oltp") else { return };
    let oltp = references(&traces.join("public/arc-fast03/OLTP.lis.zst"), larder_trace::FormatId::ArcLis, CHUNK_BYTES);
    for chunks in [1, 1_000, 15_000] {
        let requests = oltp.iter().enumerate().map(|(at, &lba)| (u64::from(lba), at % 3 == 0));
        same_hits(chunks, 3 * chunks, requests);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(20_260), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d_lru_is_lru_without_duplicates(
        chunks in 1u64..20,
        more in 0u64..20,
        requests in prop::collection::vec((0u64..40, any::<bool>()), 1..500),
    ) {
        same_hits(chunks, chunks + more, requests.into_iter());
    }
}

/// Replays more requests than two chunks hold, under each policy: reads, writes, origin, flash.
fn replay(mut cache: impl ReplayCache) -> (Vec<bool>, Traffic, CacheFigures) {
    let hits = vec![
        cache.write(Lba(1), &content(10)),
        cache.read(Lba(1), &content(10)),
        cache.write(Lba(2), &content(10)),
        cache.write(Lba(2), &content(20)),
        cache.read(Lba(3), &content(30)),
        cache.read(Lba(2), &content(20)),
    ];
    (hits, cache.traffic(), cache.figures())
}

#[test]
fn each_policy_costs_what_it_should() {
    use WritePolicy::{Around, Back, Through};
    // Policy; hits; stored, deduplicated, evicted; origin read, written; flash data read.
    let expected = [
        (Through, [false, true, false, true, false, true], [3, 1, 1], [1, 3], 2),
        // 1 is dirty when 3 comes in, and is destaged: read from flash, written to the origin.
        (Back, [false, true, false, true, false, true], [3, 1, 1], [1, 1], 3),
        (Around, [false, false, false, false, false, false], [3, 0, 1], [3, 3], 0),
    ];
    for (policy, hits, [stored, deduplicated, evicted], [read, written], flash_read) in expected {
        let (found, traffic, figures) = replay(cache(DLru::new(2, 10).unwrap(), policy));
        assert_eq!(found, hits, "{policy:?}");
        let counts = [traffic.chunks_stored, traffic.chunks_deduplicated, traffic.chunks_evicted];
        assert_eq!(counts, [stored, deduplicated, evicted], "{policy:?}");
        assert_eq!([traffic.origin_chunks_read, traffic.origin_chunks_written], [read, written], "{policy:?}");
        assert_eq!(traffic.flash_data_bytes_written, stored * CHUNK, "{policy:?}");
        assert_eq!(traffic.flash_data_bytes_read, flash_read * CHUNK, "{policy:?}");
        assert_eq!((figures.mapped_chunks, figures.live_chunks, figures.stale_chunks), (2, 2, 0), "{policy:?}");
        assert_eq!(figures.live_stored_bytes, 2 * CHUNK);
    }
    // The baseline stores each write, and has no duplicates.
    let (_, traffic, _) = replay(cache(Lru::new(2).unwrap(), Through));
    assert_eq!((traffic.chunks_stored, traffic.chunks_deduplicated), (4, 0));
}

#[test]
fn metadata_goes_in_pages_and_at_once_where_it_is_dirty() {
    // Two entries of 24 bytes for each new chunk: 170 entries fill a page, the next one has it
    // written.
    let mut clean = cache(DLru::new(1000, 2000).unwrap(), WritePolicy::Through);
    let written = |cache: &SlottedCache<DLru>| cache.traffic().flash_metadata_bytes_written / METADATA_PAGE_BYTES;
    for lba in 0..85 {
        clean.read(Lba(lba), &content(lba));
    }
    assert_eq!(written(&clean), 0);
    clean.read(Lba(85), &content(85));
    assert_eq!(written(&clean), 1);
    (0..86).for_each(|lba| assert!(clean.read(Lba(lba), &content(lba)), "hits change no entry"));
    assert_eq!(written(&clean), 1);
    clean.flush();
    clean.flush();
    assert_eq!(written(&clean), 2, "what was gathered, once");

    let mut dirty = cache(DLru::new(1000, 2000).unwrap(), WritePolicy::Back);
    (0..5).for_each(|lba| assert!(!dirty.write(Lba(lba), &content(lba))));
    assert_eq!(written(&dirty), 5, "each write commits its metadata");
    (0..5).for_each(|lba| assert!(dirty.write(Lba(lba), &content(lba))));
    assert_eq!(written(&dirty), 5, "nothing changed");
    dirty.trim(Lba(0));
    dirty.flush();
    assert_eq!(written(&dirty), 6);
}

#[test]
fn trims_free_slots_in_every_design() {
    fn check(mut cache: impl ReplayCache) {
        for lba in 0..3 {
            cache.write(Lba(lba), &content(lba));
        }
        cache.trim(Lba(1));
        cache.trim(Lba(1));
        assert_eq!((cache.figures().mapped_chunks, cache.traffic().chunks_evicted), (2, 1));
        assert!(!cache.read(Lba(1), &content(0)), "what was trimmed is a miss");
        assert!(cache.read(Lba(0), &content(0)) && cache.read(Lba(2), &content(2)), "nothing had to leave for it");
        assert_eq!(cache.traffic().chunks_evicted, 1);
        assert_eq!(cache.traffic().origin_chunks_written, 0, "trimmed data is not destaged");
    }
    check(cache(Lru::new(3).unwrap(), WritePolicy::Back));
    check(cache(Arc::new(3).unwrap(), WritePolicy::Back));
    check(cache(DLru::new(3, 9).unwrap(), WritePolicy::Back));
    check(cache(DArc::new(3, 3).unwrap(), WritePolicy::Back));
}

/// An address maps to a slot for which it was not stored, if another brings its content back.
#[test]
fn a_drop_takes_the_addresses_whose_content_came_back() {
    let mut cache = cache(DLru::new(1, 8).expect("a size"), WritePolicy::Through);
    assert!(cache.expect_drops());
    let [shared, other] = [1, 2].map(content);
    cache.read(Lba(1), &shared);
    cache.read(Lba(2), &other);
    assert!(!cache.read(Lba(3), &shared) && cache.read(Lba(1), &shared), "the content is back");
    cache.evict_range(0..CHUNK);
    assert_eq!(cache.figures().mapped_chunks, 0, "none maps to what was dropped");
    assert!(!cache.read(Lba(1), &shared));
}
