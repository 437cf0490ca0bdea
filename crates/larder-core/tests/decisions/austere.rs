//! AustereCache's structures: RAM against the paper's formula, refused layouts, and exact counts.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Fingerprint, Lba,
    austere::{
        Austere, AustereConfig, AustereError, AustereRam,
        keys::{Key, KeySpace},
        lba_index::LbaHashIndex,
        sketch::Sketch,
    },
    region::LBAS_MAX,
    types::mix,
};
use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
};

const CHUNK: u32 = 32 << 10;

/// Returns the bytes of an index's parts beside the slots: a lock for each, of 256 parts at most.
fn parts(slots: u64, part_slots: u64, bytes: usize) -> usize {
    slots.div_ceil(part_slots).clamp(1, 256) as usize * bytes
}

/// Subtracts the parts.
fn without_parts(ram: AustereRam, fp_slots: u64, lba_slots: u64) -> AustereRam {
    AustereRam {
        lba_index_bytes: ram.lba_index_bytes - parts(lba_slots, 1024, 144),
        fp_index_bytes: ram.fp_index_bytes - parts(fp_slots, 4096, 112),
        ..ram
    }
}

/// Returns the RAM by §3.1, Analysis: bits a slot, times slots, and a hand for each bucket. Each
/// slot of the LBA index adds four counters of 4 bits (§3.3).
fn formula(fp_slots: u64, fp_bucket_bits: u64, lba_slots: u64) -> AustereRam {
    AustereRam {
        lba_index_bytes: (lba_slots * (16 + 16 + fp_bucket_bits + 1) / 8) as usize,
        fp_index_bytes: (fp_slots * 17 / 8 + fp_slots / 128) as usize,
        sketch_bytes: (lba_slots * 4 * 4 / 8) as usize,
    }
}

#[test]
fn ram_is_that_of_the_papers_analysis() {
    // Its example: 512 GiB of flash for a working set of 4 TiB, in chunks of 32 KiB. Untouched
    // memory is not used.
    let config = AustereConfig { lba_entries: Some(1 << 27), ..AustereConfig::new(512 << 30, CHUNK, false) };
    let ram = without_parts(Austere::new(config).expect("a cache").ram(), 1 << 24, 1 << 27);
    assert_eq!((ram.lba_index_bytes, ram.fp_index_bytes), (800 << 20, (34 << 20) + (128 << 10)));
    assert_eq!(ram, formula(1 << 24, 17, 1 << 27));
    // Other sizes; with compression a slot is a subchunk.
    for (chunks, has_compression, bucket_bits) in
        [(1024u64, true, 5), (1024, false, 3), (5000, true, 8), (128, false, 0)]
    {
        let config = AustereConfig::new(chunks * u64::from(CHUNK), CHUNK, has_compression);
        let per_chunk = if has_compression { 4 } else { 1 };
        let (fp_slots, lba_slots) = (chunks * per_chunk / 128 * 128, chunks * 4 / 128 * 128);
        let expected = formula(fp_slots, bucket_bits, lba_slots);
        let ram = Austere::new(config).expect("a cache").ram();
        assert_eq!(without_parts(ram, fp_slots, lba_slots), expected, "{chunks}");
        // A dirty flag is one more bit.
        let write_back = Austere::new(AustereConfig { is_write_back: true, ..config }).expect("a cache").ram();
        assert_eq!(write_back.lba_index_bytes - ram.lba_index_bytes, (lba_slots / 8) as usize);
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let refused = |config: AustereConfig| Austere::new(config).err().expect("refused");
    let one_bucket = 128 * u64::from(CHUNK);
    let config = AustereConfig::new(one_bucket - 1, CHUNK, false);
    assert_eq!(refused(config), AustereError::FlashTooSmall { data_bytes: one_bucket - 1, least_bytes: one_bucket });
    assert!(refused(config).to_string().ends_with("; 4194304 bytes are the least"), "{}", refused(config));
    let AustereError::FlashTooSmall { least_bytes, .. } = refused(AustereConfig::new(0, CHUNK, true)) else {
        panic!("too small");
    };
    assert_eq!(least_bytes, one_bucket / 4);
    // The reported minimum works, to a byte.
    for has_compression in [true, false] {
        let least = AustereConfig::new(one_bucket / if has_compression { 4 } else { 1 }, CHUNK, has_compression);
        assert_eq!(Austere::new(least).expect("the least works").slot_count(), 128);
        assert!(Austere::new(AustereConfig { data_bytes: least.data_bytes - 1, ..least }).is_err());
    }
    let small = AustereConfig::new(one_bucket, CHUNK, true);
    let with_entries = |entries| AustereConfig { lba_entries: Some(entries), ..small };
    assert_eq!(refused(with_entries(127)), AustereError::TooFewLbaEntries { lba_entries: 127, least: 128 });
    assert!(Austere::new(with_entries(128)).is_ok());
    assert!(matches!(refused(with_entries(1 << 40)), AustereError::TooManyLbaEntries { .. }));
    assert!(matches!(refused(AustereConfig::new(u64::MAX, CHUNK, true)), AustereError::FlashTooLarge { .. }));
    for subchunk_bytes in [0, 5000, CHUNK * 2, 128] {
        let config = AustereConfig { subchunk_bytes, ..small };
        assert!(matches!(refused(config), AustereError::Subchunk { .. }), "{subchunk_bytes}");
    }
    for (bucket_slots, prefix_bits) in [(0, 16), (1, 16), (129, 16), (128, 0), (128, 17)] {
        let config = AustereConfig { bucket_slots, prefix_bits, ..small };
        assert!(matches!(refused(config), AustereError::Bucket { .. }), "{bucket_slots} {prefix_bits}");
    }
    assert!(matches!(refused(AustereConfig::new(1 << 20, 0, false)), AustereError::Subchunk { .. }));
}

#[test]
fn chunks_take_whole_subchunks() {
    let austere = Austere::new(AustereConfig::new(1024 * u64::from(CHUNK), CHUNK, true)).expect("a cache");
    // The paper's example: 15 KiB are two subchunks of 8 KiB.
    let slots = [0, 1, 8192, 8193, 15 << 10, 24577, CHUNK, CHUNK + 1].map(|stored| austere.slots_for(stored));
    assert_eq!(slots, [1, 1, 1, 2, 2, 4, 4, 4]);
    assert_eq!(LBAS_MAX, 60);
}

#[test]
fn it_may_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Austere>();
}

#[test]
fn the_sketch_never_underestimates_and_forgets_what_is_taken() {
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let width = 1 + rng.below(300) as u32;
        let keys = 1 + rng.below(400);
        let hot = rng.below(keys);
        let sketch = Sketch::new(width, u64::MAX);
        let mut exact = HashMap::new();
        for _ in 0..6000 {
            // One key is counted often, far beyond the maximum of a counter.
            let key = if rng.chance(30) { hot } else { rng.below(keys) };
            let count = exact.entry(key).or_insert(0u32);
            if rng.chance(55) {
                *count += 1;
                sketch.add(Key(key));
            } else if *count > 0 {
                *count -= 1;
                sketch.take(Key(key));
            }
            let other = rng.below(keys);
            assert!(sketch.estimate(Key(other)) >= exact.get(&other).copied().unwrap_or(0));
        }
        let sum: u32 = exact.values().sum();
        assert!(exact.iter().all(|(&key, &count)| (count..=sum).contains(&sketch.estimate(Key(key)))));
        for (key, count) in exact {
            (0..count).for_each(|_| sketch.take(Key(key)));
        }
        assert!((0..keys).all(|key| sketch.estimate(Key(key)) == 0), "all was taken");
    });
}

#[test]
fn a_wide_sketch_is_exact() {
    let sketch = Sketch::new(1 << 16, u64::MAX);
    for key in 0..50u64 {
        (0..=key).for_each(|_| sketch.add(Key(key << 20)));
    }
    assert!((0..50u64).all(|key| sketch.estimate(Key(key << 20)) == key as u32 + 1));
}

/// A bucket as the paper draws it: slots in order of recency, each with its address.
type ModelBucket = Vec<Option<(Key, Key, bool)>>;

#[test]
fn the_lba_index_keeps_order_and_counts() {
    for_seeds(0..60, |seed| {
        let mut rng = Rng::new(seed);
        let slots = rng.one_of(&[2usize, 3, 8, 127, 128]);
        let fp_bits = rng.one_of(&[16u32, 17, 33, 48]);
        let space = KeySpace::new(1 + rng.below(4) as u32, rng.one_of(&[1, 2, 16]));
        let index = LbaHashIndex::new(space, slots, fp_bits, true);
        // As wide as keys are few: estimates are exact.
        let sketch = Sketch::new(1 << 20, u64::MAX);
        let mut model: Vec<ModelBucket> = vec![vec![None; slots]; space.buckets()];
        let fp = |number: u64| Key(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << fp_bits) - 1));
        for _ in 0..3000 {
            let lba_key = space.of_lba(Lba(rng.below(slots as u64 * 6)));
            let bucket = &mut model[space.bucket(lba_key)];
            let at = bucket.iter().position(|slot| slot.is_some_and(|(key, ..)| key == lba_key));
            let found = index.find(lba_key);
            assert_eq!(found.map(|entry| Some((entry.lba_key, entry.fp_key, entry.is_dirty))), at.map(|at| bucket[at]));
            match (rng.below(10), found, at) {
                (0, Some(_), Some(at)) => {
                    index.remove(lba_key, &sketch);
                    bucket[at] = None;
                }
                (1..4, Some(_), Some(at)) => {
                    index.promote(lba_key, &sketch);
                    let moved = bucket.remove(at);
                    bucket.insert(0, moved);
                }
                (4, Some(_), Some(at)) => {
                    index.clean(lba_key);
                    bucket[at] = bucket[at].map(|(lba, fp, _)| (lba, fp, false));
                }
                (_, _, at) => {
                    let (fp_key, is_dirty) = (fp(rng.below(40)), rng.chance(30));
                    let full = index.last_of_full(lba_key).map(|entry| entry.lba_key);
                    let is_full = bucket.iter().all(Option::is_some);
                    assert_eq!(full, if is_full { bucket[slots - 1].map(|(key, ..)| key) } else { None });
                    index.map(lba_key, fp_key, is_dirty, &sketch);
                    let leaves = at.or_else(|| bucket.iter().position(Option::is_none)).unwrap_or(slots - 1);
                    bucket.remove(leaves);
                    bucket.insert(0, Some((lba_key, fp_key, is_dirty)));
                }
            }
        }
        let mut counts = HashMap::new();
        let mut expected = Vec::new();
        for (i, slot) in model.iter().flat_map(|bucket| bucket.iter().enumerate()) {
            if let Some((lba, fp, is_dirty)) = *slot {
                *counts.entry(fp).or_insert(0) += if i < slots / 2 { 2 } else { 1 };
                expected.push(((lba, fp, is_dirty), i < slots / 2));
            }
        }
        let entries = index.entries().map(|(entry, recent)| ((entry.lba_key, entry.fp_key, entry.is_dirty), recent));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        for number in 0..40 {
            assert_eq!(sketch.estimate(fp(number)), counts.get(&fp(number)).copied().unwrap_or(0), "seed {seed}");
        }
    });
}

/// Concurrent touches, maps and forgets lose nothing in any bucket or count, those beyond 15
/// included.
#[test]
fn changes_by_several_threads_lose_nothing() {
    const ADDRESSES: u64 = 6000;
    const THREADS: u64 = 4;
    for_seeds(0..8, |seed| {
        let mut rng = Rng::new(seed);
        let space = KeySpace::new(64, 16);
        let width = 64 * 128;
        let index = LbaHashIndex::new(space, 128, 20, false);
        let sketch = Sketch::new(width, u64::MAX);
        // With few contents, counts are near 15, and beyond, all the time.
        let contents = rng.one_of(&[20, 600, 4000]);
        let fp = |number: u64| Key(mix(number) & 0xf_ffff);
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (index, sketch) = (&index, &sketch);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed << 8 | number);
                    for _ in 0..20_000 {
                        // Each address belongs to one thread, so its last change is known.
                        let address = rng.below(ADDRESSES / THREADS) * THREADS + number;
                        let lba_key = space.of_lba(Lba(address));
                        match rng.below(8) {
                            0 => index.remove(lba_key, sketch),
                            1..5 => index.promote(lba_key, sketch),
                            5 => drop(index.hold(lba_key).map(fp(rng.below(contents)), false, sketch)),
                            _ => drop(index.map(lba_key, fp(rng.below(contents)), false, sketch)),
                        }
                        sketch.estimate(fp(rng.below(contents)));
                    }
                });
            }
        });
        assert!(index.entries().all(|(entry, _)| index.find(entry.lba_key) == Some(entry)), "each once");
        assert!(index.valid_count() > ADDRESSES / 4, "they are there");
        let counted = Sketch::new(width, u64::MAX);
        index.recount(&counted);
        assert!((0..contents).all(|number| counted.estimate(fp(number)) == sketch.estimate(fp(number))), "all counts");
    });
}

#[test]
fn runs_stay_together_and_room_is_made() {
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let bucket_slots = rng.one_of(&[4u32, 9, 128]);
        let config = AustereConfig {
            bucket_slots,
            data_bytes: u64::from(bucket_slots) * 8192 * (1 + rng.below(3)),
            lba_entries: Some(4096),
            ..AustereConfig::new(0, CHUNK, true)
        };
        let austere = Austere::new(config).expect("a cache");
        // The first of two contents of one hash counts: no metadata slot is read here.
        let space = KeySpace::new((config.data_bytes / 8192) as u32 / bucket_slots, 16);
        let mut stored: HashMap<Key, (Fingerprint, u32)> = HashMap::new();
        for step in 0..1500u64 {
            let fingerprint = Fingerprint(u128::from(rng.bits() % 500).to_le_bytes());
            let count = 1 + rng.below(4) as u32;
            austere.map(Lba(rng.below(3000)), &fingerprint, false);
            if austere.find_content(&fingerprint).is_none() {
                let victims: Vec<_> = austere.victims(&fingerprint, count).collect();
                assert_eq!(austere.store(&fingerprint, count).is_none(), !victims.is_empty());
                if victims.is_empty() {
                    austere.find_content(&fingerprint).into_iter().for_each(|run| austere.evict(run));
                }
                for victim in victims {
                    assert!(!victim.may_be_dirty && austere.runs().any(|run| run == victim.run));
                    austere.evict(victim.run);
                }
                let run = austere.store(&fingerprint, count).expect("room");
                assert_eq!((run.count, austere.find_content(&fingerprint)), (count, Some(run)));
                stored.insert(space.of_content(&fingerprint), (fingerprint, count));
            }
            if step % 50 == 0 {
                austere.check();
            }
        }
        // A stored content has its first length.
        for (fingerprint, count) in stored.values() {
            assert!(austere.find_content(fingerprint).is_none_or(|run| run.count == *count));
        }
        let used: u32 = austere.runs().map(|run| run.count).sum();
        assert!(used as usize <= austere.slot_count());
    });
}

/// A restart knows a run for an address, but no FP-hash is left for it, or its slots are in no
/// bucket. The address then misses, because its earlier entry names older content.
#[test]
fn an_address_whose_run_has_no_hash_is_forgotten() {
    let config = AustereConfig { bucket_slots: 8, prefix_bits: 1, ..AustereConfig::new(64 << 10, 8 << 10, false) };
    for slot in [7, 1000] {
        let core = Austere::new(config).expect("a layout");
        assert_eq!(core.slot_count(), 8);
        let mut contents = (0..).map(|number: u128| Fingerprint(number.to_le_bytes()));
        while core.run_count() < 2 {
            let content = contents.next().expect("no end");
            if core.find_content(&content).is_none() {
                core.store(&content, 1).expect("a slot is free");
                core.map(Lba(5), &content, false);
            }
        }
        assert!(core.lookup(Lba(5)).is_some());
        core.reserve(Lba(5), slot, 1);
        assert_eq!(core.lookup(Lba(5)), None, "slot {slot}");
        core.check();
    }
}

/// Among chunks with equally many references, eviction takes the oldest first and the newest last.
#[test]
fn among_equals_a_hand_goes_round() {
    for is_mapped in [false, true] {
        let config = AustereConfig {
            bucket_slots: 8,
            lba_entries: Some(1 << 15),
            ..AustereConfig::new(8 * u64::from(CHUNK), CHUNK, false)
        };
        let austere = Austere::new(config).expect("a cache of one bucket");
        let mut stored = VecDeque::new();
        for number in 0..200u64 {
            let fingerprint = Fingerprint(u128::from(mix(number)).to_le_bytes());
            if is_mapped {
                austere.map(Lba(number), &fingerprint, false);
            }
            let victims: Vec<_> = austere.victims(&fingerprint, 1).map(|victim| victim.run).collect();
            assert!(austere.victims(&fingerprint, 1).map(|victim| victim.run).eq(victims.iter().copied()));
            let oldest = if stored.len() == 8 { stored.pop_front() } else { None };
            assert_eq!(victims, oldest.into_iter().collect::<Vec<_>>(), "{number}, mapped: {is_mapped}");
            victims.into_iter().for_each(|run| austere.evict(run));
            stored.push_back(austere.store(&fingerprint, 1).expect("room was made"));
        }
        // A chunk with fewer references goes before them, from any slot.
        if is_mapped {
            let (poor, other) = (stored[5], Fingerprint(u128::MAX.to_le_bytes()));
            austere.forget(Lba(197));
            assert!(austere.victims(&other, 1).map(|victim| victim.run).eq([poor]));
        }
    }
}

#[test]
fn counts_that_were_lost_for_want_of_room_come_back() {
    let lossy_seeds = Cell::new(0);
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let space = KeySpace::new(1 + rng.below(6) as u32, 16);
        let width = (space.buckets() * 128) as u32;
        let (index, twin) = (LbaHashIndex::new(space, 128, 20, false), LbaHashIndex::new(space, 128, 20, false));
        let (scant, ample) = (Sketch::new(width, rng.one_of(&[0, 40, 200, 800, 3000])), Sketch::new(width, u64::MAX));
        let fp = |number: u64| Key(larder_core::types::mix(number) & 0xf_ffff);
        let contents = 1 + rng.below(60);
        for step in 0..4000 {
            let lba_key = space.of_lba(Lba(rng.below(u64::from(width) * 2)));
            let (found, same) = (index.find(lba_key), twin.find(lba_key));
            assert_eq!(found, same);
            // In the end there are few.
            let is_removal = step > 2500 && rng.chance(70);
            match found {
                Some(_) if is_removal || rng.chance(10) => {
                    index.remove(lba_key, &scant);
                    twin.remove(lba_key, &ample);
                }
                _ if is_removal => {}
                _ => {
                    let fp_key = fp(rng.skewed(contents));
                    index.map(lba_key, fp_key, false, &scant);
                    twin.map(lba_key, fp_key, false, &ample);
                }
            }
            if scant.wants_recount() {
                lossy_seeds.set(lossy_seeds.get() + 1);
                index.recount(&scant);
                assert!(!scant.wants_recount(), "once is enough");
            }
            for number in [rng.below(contents), 0] {
                let (told, is) = (scant.estimate(fp(number)), ample.estimate(fp(number)));
                let range = if scant.is_lossy() { is.min(15)..=u32::MAX } else { is..=is };
                assert!(range.contains(&told), "step {step}: {told} for {is}");
            }
        }
        for entry in index.entries().map(|(entry, _)| entry).collect::<Vec<_>>() {
            index.remove(entry.lba_key, &scant);
        }
        index.recount(&scant);
        assert!((0..contents).all(|number| scant.estimate(fp(number)) == 0), "nothing is counted that is not there");
    });
    assert!(lossy_seeds.get() > 20, "{} losses", lossy_seeds.get());
}

#[test]
fn mappings_of_a_large_index_are_counted_by_a_part_of_it() {
    let core = Austere::new(AustereConfig::new(2 << 30, CHUNK, false)).expect("a cache");
    let fingerprint = |number: u64| Fingerprint((u128::from(mix(number)) << 64 | u128::from(number)).to_le_bytes());
    // Two thirds of the addresses have a stored content.
    for number in 0..60_000 {
        core.map(Lba(number), &fingerprint(number), false);
        if number % 3 > 0 {
            core.store(&fingerprint(number), 1);
        }
    }
    let all = core.mappings_where(u64::MAX, |_, _| true);
    let mapped = (0..60_000).filter(|&number| core.lookup(Lba(number)).is_some()).count() as u64;
    assert!((30_000..41_000).contains(&all) && all.abs_diff(mapped) < 600, "{all}, {mapped} are found");
    let looked = std::cell::Cell::new(0u64);
    let part = core.mappings_where(8192, |_, _| {
        looked.set(looked.get() + 1);
        true
    });
    assert!((1000..=8192).contains(&looked.get()) && part.abs_diff(all) * 20 < all, "{part} in place of {all}");
    assert_eq!(core.mappings_where(8192, |_, _| false), 0);
}
