//! The parts of the designs against naive models: fingerprint index, LBA index, runs, packing,
//! streams.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Fingerprint, Lba, Place, SlotId,
    fp_index::{FpHandle, FpIndex},
    lba_index::{EntryKind, GENERATION_MASK, LbaEntry, LbaIndex, SHARDS_USUAL},
    packing::{PackingRules, SegmentPacker},
    pages::PageMap,
    ranges::{Advisory, Run, RunMap},
    streams::{PREFETCH_BYTES_MAX, SEQUENTIAL_BYTES_MIN, STREAMS_MAX, Streams},
};
use std::collections::{BTreeMap, HashMap};

fn fingerprint(i: u64) -> Fingerprint {
    let mut bytes = [0; 16];
    // Few different hashes, so that probing goes past entries of other fingerprints.
    bytes[..8].copy_from_slice(&(i % 5).to_le_bytes());
    bytes[8..].copy_from_slice(&i.to_le_bytes());
    Fingerprint(bytes)
}

fn place(rng: &mut Rng, slots: u64) -> Place {
    Place {
        slot: SlotId(rng.below(slots) as u32),
        generation: [0, 1, GENERATION_MASK, GENERATION_MASK + 1, u32::MAX][rng.below(5) as usize],
        offset: rng.below(4 << 20) as u32,
        stored_len: 1 + rng.below(128 << 10) as u32,
        crc: rng.bits() as u32,
        encoding: rng.below(3) as u8,
    }
}

#[test]
fn the_fingerprint_index_is_a_limited_lru_map() {
    for_seeds(0..40, |seed| {
        let mut rng = Rng::new(seed);
        let entries_max = [0, 1, 2, 7, 64][rng.below(5) as usize];
        let keys = 1 + rng.below(100);
        let mut index = FpIndex::new(entries_max);
        // Least recent first.
        let mut model: Vec<(u64, Place, FpHandle)> = Vec::new();
        let mut evictions = 0;
        let mut old_handles: Vec<(FpHandle, SlotId, u32)> = Vec::new();
        for _ in 0..4000 {
            let key = rng.below(keys);
            let at = model.iter().position(|(other, ..)| *other == key);
            match rng.below(10) {
                0..=4 => {
                    let place = place(&mut rng, 4);
                    let handle = index.insert(&fingerprint(key), &place);
                    assert_eq!(handle.is_some(), entries_max > 0);
                    let Some(handle) = handle else { continue };
                    match at {
                        Some(at) => drop(model.remove(at)),
                        None if model.len() == entries_max => {
                            evictions += 1;
                            model.remove(0);
                        }
                        None => {}
                    }
                    assert!(model.iter().all(|(_, _, other)| *other != handle), "a handle is one entry's");
                    model.push((key, place, handle));
                    old_handles.push((handle, place.slot, place.generation));
                }
                5..=7 => {
                    // The slot is at the entry's generation, at another, or takes no references.
                    let answer = at.map(|at| model[at].1.generation);
                    let generation = match rng.below(4) {
                        0 => answer.map(|generation| generation.wrapping_add(1)),
                        1 => None,
                        _ => answer,
                    };
                    let found = index.lookup(&fingerprint(key), |slot| {
                        assert_eq!(Some(slot), at.map(|at| model[at].1.slot));
                        generation
                    });
                    match (at, generation) {
                        (Some(at), Some(generation)) if generation == model[at].1.generation => {
                            let entry = model.remove(at);
                            assert_eq!(found, Some((entry.2, entry.1)));
                            model.push(entry);
                        }
                        (Some(at), Some(_)) => {
                            assert_eq!(found, None);
                            model.remove(at);
                        }
                        _ => assert_eq!(found, None),
                    }
                }
                8 => {
                    index.remove(&fingerprint(key));
                    if let Some(at) = at {
                        model.remove(at);
                    }
                }
                _ => {
                    // Some handles belong to entries that are gone, or to a slab entry that another
                    // one has by now.
                    let Some((handle, slot, generation)) = rng.pick(&old_handles) else { continue };
                    index.remove_handle(handle, slot, generation);
                    model.retain(|(_, place, other)| {
                        let same_generation = place.generation & GENERATION_MASK == generation & GENERATION_MASK;
                        !(*other == handle && place.slot == slot && same_generation)
                    });
                }
            }
            assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
            assert!(index.len() <= entries_max);
            assert_eq!(index.evictions(), evictions);
            let listed: Vec<_> = index.iter_oldest_first().collect();
            let expected: Vec<_> = model
                .iter()
                .map(|(key, place, _)| {
                    (fingerprint(*key), Place { generation: place.generation & GENERATION_MASK, ..*place })
                })
                .collect();
            assert_eq!(listed, expected);
        }
        assert!(index.ram_bytes() <= 4096 + entries_max * 128, "{} bytes", index.ram_bytes());
    });
}

#[test]
fn the_lba_index_is_a_hash_map() {
    for_seeds(0..20, |seed| {
        let mut rng = Rng::new(seed);
        let keys = [1, 50, 3000][rng.below(3) as usize];
        let base = if rng.chance(50) { 0 } else { (1 << 40) - keys };
        let mut index = LbaIndex::new([0, 20_000_000][rng.below(2) as usize]);
        let mut model: HashMap<u64, LbaEntry> = HashMap::new();
        for _ in 0..20_000 {
            let lba = base + rng.below(keys);
            match rng.below(10) {
                0..=5 => {
                    let place = place(&mut rng, 1 << 32);
                    let kinds = [
                        EntryKind::Zero,
                        EntryKind::Fragment,
                        EntryKind::Chunk { duplicate: true },
                        EntryKind::Chunk { duplicate: false },
                    ];
                    let (kind, dirty) = (kinds[rng.below(4) as usize], rng.chance(50));
                    let entry = LbaEntry::new(Lba(lba), kind, Some(&place), dirty);
                    assert_eq!((entry.lba(), entry.kind(), entry.dirty()), (Lba(lba), kind, dirty));
                    if kind == EntryKind::Zero {
                        assert_eq!(entry.slot(), None);
                    } else {
                        assert_eq!(entry.slot(), Some((place.slot, place.generation & GENERATION_MASK)));
                        assert_eq!(entry.place(place.generation), place);
                    }
                    assert_eq!(index.insert(entry), model.insert(lba, entry));
                }
                6 | 7 => assert_eq!(index.remove(Lba(lba)), model.remove(&lba)),
                8 => {
                    let dirty = rng.chance(50);
                    if let Some(entry) = index.get_mut(Lba(lba)) {
                        entry.set_dirty(dirty);
                        assert_eq!(entry.lba(), Lba(lba));
                    }
                    model.entry(lba).and_modify(|entry| entry.set_dirty(dirty));
                }
                _ if rng.chance(2) => {
                    let shard = rng.below(index.shard_count() as u64) as usize;
                    let inside: Vec<u64> = index.shard(shard).map(|entry| entry.lba().0).collect();
                    let gone = index.sweep_shard(shard, |entry| !entry.dirty());
                    let before = model.len();
                    model.retain(|lba, entry| !(inside.contains(lba) && entry.dirty()));
                    assert_eq!(gone, before - model.len());
                }
                _ => {}
            }
            assert_eq!(index.get(Lba(lba)), model.get(&lba));
            assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
        }
        let mut all: Vec<LbaEntry> = (0..index.shard_count()).flat_map(|shard| index.shard(shard).copied()).collect();
        all.sort_by_key(LbaEntry::lba);
        let mut expected: Vec<LbaEntry> = model.values().copied().collect();
        expected.sort_by_key(LbaEntry::lba);
        assert_eq!(all, expected, "every entry is in exactly one shard");
    });
}

/// A task that goes through a shard holds its lock for a bounded time, for any size of index. A
/// checkpoint of a small index passes few shards.
#[test]
fn an_lba_index_has_shards_by_its_size() {
    let shards = |entries_max| LbaIndex::new(entries_max).shard_count();
    assert_eq!([0, 511, 4096, 40_000].map(shards), [1, 1, 16, 256]);
    assert_eq!([1 << 16, 1 << 20, 1 << 23].map(shards), [SHARDS_USUAL; 3]);
    assert_eq!([(1 << 23) + (1 << 20), 100_000_000, u64::MAX].map(shards), [512, 4096, 1 << 16]);
}

#[test]
fn the_lba_index_grows_and_shrinks() {
    let entries = 400_000_u64;
    let mut index = LbaIndex::new(entries);
    let empty = index.ram_bytes();
    let mut last = empty;
    for lba in 0..entries {
        index.insert(LbaEntry::new(Lba(lba), EntryKind::Zero, None, lba % 100 == 0));
        if lba % 4096 == 0 {
            assert!(index.ram_bytes() >= last);
            last = index.ram_bytes();
        }
    }
    let full = index.ram_bytes() - empty;
    // A table is between 7/16 and 7/8 full; 25 bytes an entry with its tag. Shards differ by
    // chance.
    assert!(full as u64 >= entries * 25 && full as u64 <= entries * 25 * 16 / 7 + (SHARDS_USUAL * 64) as u64, "{full}");
    let sizes: Vec<usize> = (0..SHARDS_USUAL).map(|shard| index.shard(shard).count()).collect();
    let mean = entries as usize / SHARDS_USUAL;
    assert!(sizes.iter().all(|&size| size > mean * 3 / 4 && size < mean * 5 / 4), "shards are of one size: {sizes:?}");
    for shard in 0..SHARDS_USUAL {
        index.sweep_shard(shard, LbaEntry::dirty);
    }
    assert_eq!(index.len() as u64, entries.div_ceil(100));
    let small = index.ram_bytes() - empty;
    assert!(small < full / 10, "{small} of {full} bytes stay for a hundredth of the entries");
    for lba in 0..entries {
        assert_eq!(index.get(Lba(lba)).is_some(), lba % 100 == 0);
    }
    for shard in 0..SHARDS_USUAL {
        index.sweep_shard(shard, |_| false);
    }
    assert!(index.is_empty());
    assert_eq!(index.ram_bytes(), empty, "an empty index has given everything back");
}

/// Two flags of a run: it stays allocated, and it is a client's trim.
const RUN_KINDS: [[bool; 2]; 3] = [[false, false], [true, false], [false, true]];

fn runs_of(model: &[Option<(u64, [bool; 2])>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (i, cell) in model.iter().enumerate() {
        let Some((seq, [no_hole, advisory])) = *cell else { continue };
        match runs.last_mut() {
            Some(run) if run.first.0 + run.count == i as u64 && run.seq == seq => run.count += 1,
            _ => runs.push(Run { first: Lba(i as u64), count: 1, seq, no_hole, advisory }),
        }
    }
    runs
}

#[test]
fn runs_are_a_bitmap_with_numbers() {
    for_seeds(0..100, |seed| {
        let mut rng = Rng::new(seed);
        let cells = [1, 10, 200][rng.below(3) as usize];
        let mut map = RunMap::default();
        let mut model: Vec<Option<(u64, [bool; 2])>> = vec![None; cells as usize];
        for seq in 1..400 {
            let first = rng.below(cells + 1);
            // Zero is a legal count, and must leave everything as it is.
            let count = rng.below(cells - first + 1);
            let range = first as usize..(first + count) as usize;
            match rng.below(5) {
                0 => {
                    let expected = model[range.clone()].iter().flatten().count() as u64;
                    assert_eq!(map.remove(Lba(first), count), expected);
                    model[range].fill(None);
                }
                1 | 2 => {
                    let of = map.get(Lba(rng.below(cells))).map_or(rng.below(seq), |run| run.seq);
                    let [no_hole, advisory] = RUN_KINDS[rng.below(3) as usize];
                    map.remove_if_unchanged(&Run { first: Lba(first), count, seq: of, no_hole, advisory });
                    for cell in &mut model[range] {
                        if cell.is_some_and(|(seq, _)| seq == of) {
                            *cell = None;
                        }
                    }
                }
                _ => {
                    let [no_hole, advisory] = RUN_KINDS[rng.below(3) as usize];
                    map.insert(Run { first: Lba(first), count, seq, no_hole, advisory });
                    model[range].fill(Some((seq, [no_hole, advisory])));
                }
            }
            let expected = runs_of(&model);
            assert_eq!(map.iter().collect::<Vec<_>>(), expected);
            assert_eq!((map.len(), map.is_empty()), (expected.len(), expected.is_empty()));
            assert_eq!(map.chunks(), model.iter().flatten().count() as u64);
            let advisory = || expected.iter().filter(|run| run.advisory);
            let chunks = advisory().map(|run| run.count).sum();
            assert_eq!(map.advisory(), Advisory { runs: advisory().count() as u64, chunks });
            for at in 0..cells + 1 {
                let holds = |run: &&Run| (run.first.0..run.first.0 + run.count).contains(&at);
                assert_eq!(map.get(Lba(at)), expected.iter().find(holds).copied());
                let next = expected.iter().find(|run| run.first.0 + run.count > at).copied();
                assert_eq!(map.next(Lba(at)), next);
            }
        }
    });
}

#[test]
fn runs_reach_the_end_of_the_numbers() {
    let mut map = RunMap::default();
    let all = Run::new(Lba(0), u64::MAX, 1);
    map.insert(Run::new(Lba(10), 5, 1));
    map.remove_if_unchanged(&Run { first: Lba(7), ..all });
    assert!(map.is_empty());
    map.insert(all);
    assert_eq!(map.remove(Lba(3), u64::MAX), u64::MAX - 3);
    assert_eq!(map.chunks(), 3);
}

/// `docs/FORMAT.md` has the rules for WEUs and segments.
#[test]
fn segments_are_packed_as_the_format_says() {
    for_seeds(0..300, |seed| {
        let mut rng = Rng::new(seed);
        let rules = PackingRules {
            slot_bytes: 512 << (10 + rng.below(4)),
            sector_bytes: 512 << rng.below(4),
            header_bytes: 64,
            entry_bytes: 64,
        };
        let chunk = 4096_u32 << rng.below(6);
        let (flush_percent, raw_percent) =
            ([0, 1, 20, 100][rng.below(4) as usize], [0, 30, 100][rng.below(3) as usize]);
        let mut packer = SegmentPacker::new(rules);
        assert_eq!(packer.start(), 0, "the first segment of a slot is at offset 0");
        let mut closed_to = 0;
        let mut records: Vec<(u32, u32)> = Vec::new();
        let close = |packer: &SegmentPacker, records: &mut Vec<(u32, u32)>, closed_to: &mut u32| {
            assert_eq!(packer.start(), *closed_to, "the next one is where the last ended");
            assert_eq!(packer.start() % rules.sector_bytes, 0);
            assert_eq!(packer.records() as usize, records.len());
            let mut end = packer.start() + rules.header_bytes;
            for &(offset, len) in records.iter() {
                assert!(offset >= end, "payloads are in order and do not overlap");
                end = offset + len;
            }
            assert_eq!(packer.payload_end(), end);
            assert!(packer.table_offset() >= end && packer.table_offset() - end < 8);
            assert_eq!(packer.table_offset() % 8, 0);
            let table_end = packer.table_offset() + packer.records() * rules.entry_bytes;
            assert!(packer.closed_end() >= table_end && packer.closed_end() - table_end < rules.sector_bytes);
            assert_eq!(packer.closed_end() % rules.sector_bytes, 0, "padded to a sector");
            assert!(packer.closed_end() <= rules.slot_bytes, "a segment stays in its WEU");
            records.clear();
            *closed_to = packer.closed_end();
        };
        loop {
            let raw = rng.chance(raw_percent);
            let len = if raw { chunk } else { 1 + rng.below(u64::from(chunk) - 1) as u32 };
            let before = packer;
            let Some(offset) = packer.place(len, raw) else {
                assert_eq!(
                    (packer.records(), packer.payload_end(), packer.start()),
                    (before.records(), before.payload_end(), before.start()),
                    "what does not fit changes nothing"
                );
                // It had no room indeed: aligned as far as possible, with its entry and the
                // padding.
                let alignment = if raw && before.records() == 0 { rules.sector_bytes } else { 512 };
                let at = if raw { before.payload_end().next_multiple_of(alignment) } else { before.payload_end() };
                let table = (at + len).next_multiple_of(8) + (before.records() + 1) * rules.entry_bytes;
                assert!(table.next_multiple_of(rules.sector_bytes) > rules.slot_bytes);
                break;
            };
            if raw {
                let alignment = if records.is_empty() { rules.sector_bytes } else { 512 };
                assert_eq!(offset % alignment, 0, "raw payloads are read in place");
                assert!(offset - before.payload_end() < alignment, "and waste no more than that");
            } else {
                assert_eq!(offset, before.payload_end(), "compressed ones are packed to the byte");
            }
            assert!(offset + len <= rules.slot_bytes && offset < 1 << 22, "the offset fits an index entry");
            records.push((offset, len));
            if rng.chance(flush_percent) {
                close(&packer, &mut records, &mut closed_to);
                if !packer.next_segment() {
                    assert!(closed_to + 2 * rules.sector_bytes > rules.slot_bytes);
                    assert_eq!(packer.place(rules.sector_bytes, true), None, "no useful room is left");
                    return;
                }
                assert_eq!((packer.start(), packer.records()), (closed_to, 0));
            }
        }
        if !records.is_empty() {
            close(&packer, &mut records, &mut closed_to);
        }
    });
}

#[test]
fn an_empty_weu_takes_any_record() {
    // Else the engine would open one slot after the other for it, without end.
    for weu_bytes in [512 << 10, 4 << 20] {
        for sector_bytes in [512, 4096] {
            let rules = PackingRules { slot_bytes: weu_bytes, sector_bytes, header_bytes: 64, entry_bytes: 64 };
            assert_eq!(SegmentPacker::new(rules).place(128 << 10, true), Some(sector_bytes));
            assert_eq!(SegmentPacker::new(rules).place((128 << 10) - 1, false), Some(64));
        }
    }
}

#[test]
fn read_ahead_stays_on_the_device_and_never_repeats_itself() {
    for_seeds(0..50, |seed| {
        let mut rng = Rng::new(seed);
        let device_bytes = 64 << 20;
        let mut streams = Streams::default();
        // A sequential reader among random ones, fewer than would push it out.
        let (mut at, mut ahead, mut consecutive) = (rng.below(1 << 20) * 512 % (8 << 20), 0, 0);
        for _ in 0..2000 {
            for _ in 0..rng.below(STREAMS_MAX as u64 / 2) {
                // The upper half belongs to the random readers.
                let offset = (32 << 20) + rng.below(60_000) * 512;
                let (prefetch, _) = streams.observe(offset, 512 + rng.below(8) * 512, device_bytes);
                assert!(prefetch.is_none_or(|p| p.offset + p.len <= device_bytes && p.len > 0));
            }
            let len = (512 + rng.below(16) * 512).min((32 << 20) - at);
            if len == 0 {
                break;
            }
            let (prefetch, sequential) = streams.observe(at, len, 32 << 20);
            at += len;
            consecutive += len;
            // The first read of a stream only starts it.
            if consecutive > len {
                assert_eq!(sequential, consecutive >= SEQUENTIAL_BYTES_MIN);
            }
            if let Some(prefetch) = prefetch {
                assert!(prefetch.len > 0 && prefetch.len <= PREFETCH_BYTES_MAX);
                assert!(prefetch.offset >= at && prefetch.offset + prefetch.len <= 32 << 20);
                assert_eq!(prefetch.offset, at.max(ahead), "each byte once, and without a hole");
                ahead = prefetch.offset + prefetch.len;
            }
        }
    });
}

/// In order, backwards, strewn, and in a few places.
fn key(rng: &mut Rng, pattern: u64, step: u64, keys: u64) -> u64 {
    match pattern {
        0 => step % keys,
        1 => keys - step % keys,
        2 => rng.below(keys),
        _ => (rng.skewed(keys) * 7919) % keys,
    }
}

#[test]
fn a_page_map_is_an_ordered_map() {
    for_seeds(0..48, |seed| {
        let mut rng = Rng::new(seed);
        let keys = [3, 100, 1000, 100_000][rng.below(4) as usize];
        let (mut map, mut model) = (PageMap::<u64>::default(), BTreeMap::new());
        for phase in 0..6 {
            // It grows, shrinks to almost nothing, and grows again.
            let (pattern, removes) = (rng.below(4), [1, 1, 9, 5, 10, 2][phase]);
            for step in 0..keys.min(25_000) {
                let key = key(&mut rng, pattern, step, keys);
                if rng.below(10) < removes {
                    assert_eq!(map.remove(key), model.remove(&key));
                } else {
                    assert_eq!(map.insert(key, step), model.insert(key, step));
                }
                if step % 16 == 0 {
                    let at = rng.below(keys + 2);
                    let pair = |(&key, &value): (&u64, &u64)| (key, value);
                    assert_eq!(map.get(at), model.get(&at).copied());
                    assert_eq!(map.at_or_before(at), model.range(..=at).next_back().map(pair));
                    assert_eq!(map.at_or_after(at), model.range(at..).next().map(pair));
                    assert!(map.iter_from(at).take(200).eq(model.range(at..).take(200).map(pair)));
                }
                if step % 2048 == 0 {
                    map.check();
                }
            }
            map.check();
            assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            assert!(map.iter_from(0).eq(model.iter().map(|(&key, &value)| (key, value))));
        }
        model.keys().for_each(|&key| assert!(map.remove(key).is_some()));
        assert_eq!((map.len(), map.ram_bytes()), (0, 0), "an empty map has given everything back");
    });
}

#[test]
fn a_page_map_takes_no_more_ram_than_it_says_however_it_is_thinned_out() {
    const KEYS: u64 = 300_000;
    for keep in [2, 3, 5, 17, 63, 64, 65, 1000] {
        let mut map = PageMap::<u64>::default();
        (0..KEYS).for_each(|key| _ = map.insert(key * 7919 % KEYS, key));
        map.check();
        // One in so many stays, or so many in a row of a thousand.
        (0..KEYS).filter(|key| key % keep != 0).for_each(|key| _ = map.remove(key));
        map.check();
        (0..KEYS).for_each(|key| _ = map.insert(key, key));
        (0..KEYS).filter(|key| key % 1000 >= keep).for_each(|key| _ = map.remove(key));
        map.check();
        // Each page is split again, and most of it taken back.
        (0..KEYS).filter(|key| key % 64 < 40).for_each(|key| _ = map.insert(key, key));
        (0..KEYS).rev().filter(|key| key % 64 < 39).for_each(|key| _ = map.remove(key));
        map.check();
    }
}
