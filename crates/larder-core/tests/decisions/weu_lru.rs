//! Exact hit counts of replacement in LRU order of WEUs, against an independent simulation.
//!
//! The simulation shares no code or structure with the design. Each address has the number of its
//! WEU, and each WEU the time of its last use.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass, design::Slots,
    nitro::Nitro,
};
use std::collections::HashMap;

#[derive(Clone, Copy)]
struct Cache {
    slots: u32,
    records: u32,
    /// Number of different contents; 0 for no deduplication.
    contents: u64,
}

/// Returns Zipf-distributed addresses (exponent about 1), of `lbas` different ones.
fn zipf(seed: u64, lbas: u64, len: usize) -> Vec<(u64, bool)> {
    let mut rng = Rng::new(seed);
    let mut sums = Vec::with_capacity(lbas as usize);
    let mut sum = 0;
    for rank in 1..=lbas {
        sum += 1_000_000_000 / rank;
        sums.push(sum);
    }
    let one = |rng: &mut Rng| {
        let at = rng.below(sum);
        sums.partition_point(|&sum| sum <= at) as u64
    };
    (0..len).map(|_| (one(&mut rng), rng.chance(20))).collect()
}

/// Returns the content of an address after `writes` writes.
fn content_of(lba: u64, writes: u64, contents: u64) -> u64 {
    (lba * 31 + writes * 17) % contents
}

fn reference(cache: Cache, trace: &[(u64, bool)]) -> u64 {
    // WEU numbers are never reused. The map has the time of last use by number; the newest is the
    // open one.
    let mut used: HashMap<u64, u64> = HashMap::new();
    let (mut weu, mut filled) = (0, 0);
    let mut at: HashMap<u64, u64> = HashMap::new();
    let mut stored: HashMap<u64, u64> = HashMap::new();
    let mut writes: HashMap<u64, u64> = HashMap::new();
    let (mut clock, mut hits) = (0, 0);
    for &(lba, write) in trace {
        clock += 1;
        if write {
            *writes.entry(lba).or_default() += 1;
        } else if let Some(&in_weu) = at.get(&lba)
            && (in_weu == weu || used.contains_key(&in_weu))
        {
            hits += 1;
            used.entry(in_weu).and_modify(|time| *time = clock);
            continue;
        }
        let content =
            (cache.contents > 0).then(|| content_of(lba, writes.get(&lba).copied().unwrap_or(0), cache.contents));
        if let Some(&in_weu) = content.and_then(|content| stored.get(&content))
            && (in_weu == weu || used.contains_key(&in_weu))
        {
            used.entry(in_weu).and_modify(|time| *time = clock);
            at.insert(lba, in_weu);
            continue;
        }
        if filled == cache.records {
            // The open WEU is full: it joins the others, and a new one needs room.
            used.insert(weu, clock);
            if used.len() as u32 == cache.slots {
                let oldest = used.iter().min_by_key(|(_, time)| **time).map(|(&weu, _)| weu).expect("some WEU");
                used.remove(&oldest);
            }
            (weu, filled) = (weu + 1, 0);
        }
        filled += 1;
        at.insert(lba, weu);
        if let Some(content) = content {
            stored.insert(content, weu);
        }
    }
    hits
}

fn nitro(cache: Cache, trace: &[(u64, bool)]) -> u64 {
    let config = DesignConfig {
        slot_count: cache.slots,
        mappings_max: 1 << 20,
        fp_entries_max: if cache.contents > 0 { 1 << 20 } else { 0 },
    };
    let mut design = Decider::new(Box::new(Nitro::new(config)));
    let mut open: Option<(SlotId, u32, u32)> = None;
    let mut writes: HashMap<u64, u64> = HashMap::new();
    let mut hits = 0;
    for &(lba, write) in trace {
        if write {
            *writes.entry(lba).or_default() += 1;
        } else if let Lookup::Chunk { .. } = design.lookup(Lba(lba)) {
            hits += 1;
            continue;
        }
        let fingerprint = (cache.contents > 0).then(|| {
            let content = content_of(lba, writes.get(&lba).copied().unwrap_or(0), cache.contents);
            Fingerprint((u128::from(content) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes())
        });
        if let Some(place) = fingerprint.and_then(|fingerprint| design.find_duplicate(&fingerprint)) {
            design.map(Lba(lba), NewMapping::Duplicate { place }, None);
            continue;
        }
        if let Some((slot, _, records)) = open
            && records == cache.records
        {
            design.seal_slot(slot);
            open = None;
        }
        let (slot, generation, records) = open.unwrap_or_else(|| {
            if design.free_slots() == 0 {
                let victim = design.choose_victim(&mut |_| false).expect("a sealed slot");
                assert!(design.evict(victim.slot).is_some());
                design.release_slot(victim.slot);
            }
            let (slot, generation) = design.open_slot(StreamClass::Clean).expect("one was released");
            (slot, generation, 0)
        });
        open = Some((slot, generation, records + 1));
        let place = Place { slot, generation, offset: records * 64, stored_len: 64, crc: 0, encoding: 0 };
        design.map(Lba(lba), NewMapping::Unique { place, fingerprint }, None);
        if hits % 64 == 0 {
            design.sweep();
        }
    }
    hits
}

#[test]
fn hit_counts_are_those_of_an_lru_of_weus() {
    for_seeds(0..4, |seed| {
        let trace = zipf(seed, 5000, 60_000);
        let mut last = 0;
        for slots in [2, 3, 8, 40] {
            for (records, contents) in [(1, 0), (7, 0), (32, 0), (1, 900), (7, 900), (32, 4000)] {
                let cache = Cache { slots, records, contents };
                let expected = reference(cache, &trace);
                assert_eq!(nitro(cache, &trace), expected, "{slots} slots of {records} records, {contents} contents");
                assert!(expected > 0);
                last = expected;
            }
        }
        assert!(last > 10_000, "the largest cache hits often");
    });
}

/// With one record a WEU, this is plain LRU, counted here by stack distance. A read hits if fewer
/// than `slots` other addresses were used since the last use of its own.
#[test]
fn one_record_a_weu_is_plain_lru() {
    for_seeds(10..13, |seed| {
        let trace: Vec<(u64, bool)> = zipf(seed, 300, 8000).into_iter().map(|(lba, _)| (lba, false)).collect();
        for slots in [2, 5, 50] {
            let mut stack: Vec<u64> = Vec::new();
            let mut expected = 0;
            for &(lba, _) in &trace {
                if let Some(at) = stack.iter().position(|&other| other == lba) {
                    expected += u64::from(at < slots as usize);
                    stack.remove(at);
                }
                stack.insert(0, lba);
            }
            // A WEU is sealed when the next is needed. The open one notes no use, and becomes the
            // most recent when it is sealed. Sealed at once, it is exactly LRU.
            let config = DesignConfig { slot_count: slots, mappings_max: 1000, fp_entries_max: 0 };
            let mut design = Decider::new(Box::new(Nitro::new(config)));
            let mut hits = 0;
            for &(lba, _) in &trace {
                if design.lookup(Lba(lba)) != Lookup::Miss {
                    hits += 1;
                    continue;
                }
                if design.free_slots() == 0 {
                    let victim = design.choose_victim(&mut |_| false).expect("a sealed slot");
                    assert!(design.evict(victim.slot).is_some());
                    design.release_slot(victim.slot);
                }
                let (slot, generation) = design.open_slot(StreamClass::Clean).expect("one was released");
                let place = Place { slot, generation, offset: 64, stored_len: 64, crc: 0, encoding: 0 };
                design.map(Lba(lba), NewMapping::Unique { place, fingerprint: None }, None);
                design.seal_slot(slot);
            }
            assert_eq!(hits, expected, "{slots} slots");
        }
    });
}
