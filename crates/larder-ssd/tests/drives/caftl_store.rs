//! CAFTL's fingerprint store against a naive one, which is a map. The tests cover replacement and
//! the faster ways to search, too.
//!
//! It does not simulate a drive.

use std::collections::BTreeMap;

use crate::common::ssd::content;
use larder_ssd::{
    caftl::{
        digest::Digest,
        entry::{Order, StoreEntry, StoreOptions},
        location::{Location, Vba},
        store::{Inserted, Store},
    },
    geometry::Ppa,
};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of the drawn operations.
const SEED: u64 = 20_262;

#[derive(Clone, Debug)]
enum Step {
    /// Inserts an entry, or changes the one that is there.
    Put(u64, u32, u8),
    LookUp(u64),
    Remove(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u64..300;
    let step = prop_oneof![
        6 => (number.clone(), 0u32..1000, any::<u8>()).prop_map(|(n, at, reference)| Step::Put(n, at, reference)),
        3 => number.clone().prop_map(Step::LookUp),
        2 => number.prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..600)
}

fn options() -> impl Strategy<Value = StoreOptions> {
    let order = prop_oneof![Just(Order::Allocated), Just(Order::Hotness), Just(Order::Fingerprint)];
    (1u32..4, 2u32..8, prop_oneof![1u32..12, Just(1000)], any::<bool>(), order).prop_map(
        |(segments, entries, buckets_max, range_check, order)| StoreOptions {
            segments,
            bucket_bytes: entries * 29,
            buckets_max,
            range_check,
            order,
        },
    )
}

fn digest(number: u64) -> Digest {
    Digest::of(content(number).expect("a content"))
}

fn location(at: u32) -> Location {
    if at.is_multiple_of(3) { Location::shared(Vba(at)) } else { Location::page(Ppa(at)) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_store_is_a_map_that_forgets_the_coldest(options in options(), has_crcs in any::<bool>(), steps in steps()) {
        let mut store = Store::new(options, has_crcs).expect("a store");
        let mut model: BTreeMap<Digest, (Location, u8)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(number, at, reference) => {
                    let (digest, location) = (digest(number), location(at));
                    if model.contains_key(&digest) {
                        store.change(digest, location, reference);
                        model.insert(digest, (location, reference));
                    } else {
                        let is_full = store.buckets() == options.buckets_max;
                        match store.insert(StoreEntry { digest, location, reference }) {
                            Inserted::Added => { model.insert(digest, (location, reference)); }
                            Inserted::Replaced(old) => {
                                prop_assert!(is_full && old.reference <= reference);
                                prop_assert_eq!(model.remove(&old.digest), Some((old.location, old.reference)));
                                model.insert(digest, (location, reference));
                            }
                            Inserted::Refused => prop_assert!(is_full),
                        }
                    }
                }
                Step::LookUp(number) => {
                    let found = store.look_up(digest(number)).map(|entry| (entry.location, entry.reference));
                    prop_assert_eq!(found, model.get(&digest(number)).copied());
                }
                Step::Remove(number) => {
                    if let Some((location, reference)) = model.remove(&digest(number)) {
                        let digest = digest(number);
                        prop_assert_eq!(store.remove(digest), StoreEntry { digest, location, reference });
                    }
                }
            }
            store.check();
        }
        prop_assert_eq!(store.len() as usize, model.len());
        let mut entries: Vec<StoreEntry> = store.entries().copied().collect();
        entries.sort_by_key(|entry| entry.digest);
        let expected = model.iter().map(|(&digest, &(location, reference))| StoreEntry { digest, location, reference });
        prop_assert!(entries.into_iter().eq(expected));
        for number in 0..300 {
            let is_there = model.keys().any(|other| other.crc32() == digest(number).crc32());
            prop_assert_eq!(store.has_crc(digest(number).crc32()), has_crcs && is_there);
        }
    }
}

fn entry(number: u64, reference: u8) -> StoreEntry {
    StoreEntry { digest: digest(number), location: Location::page(Ppa(number as u32)), reference }
}

/// Returns one segment of two buckets of 4 entries each, all full.
fn full(order: Order) -> Store {
    let options = StoreOptions { segments: 1, bucket_bytes: 100, buckets_max: 2, range_check: true, order };
    let mut store = Store::new(options, false).expect("a store");
    for number in 0..8 {
        assert_eq!(store.insert(entry(number, 10 + number as u8)), Inserted::Added);
    }
    assert_eq!((store.len(), store.buckets()), (8, 2));
    store
}

#[test]
fn the_coldest_of_the_bucket_in_turn_gives_way_unless_the_new_one_is_colder() {
    let mut store = full(Order::Allocated);
    // The first bucket has 0 to 3, the second 4 to 7.
    assert_eq!(store.insert(entry(20, 10)), Inserted::Replaced(entry(0, 10)));
    assert_eq!(store.insert(entry(21, 14)), Inserted::Replaced(entry(4, 14)));
    // The first's turn: 20 has 10.
    assert_eq!(store.insert(entry(22, 9)), Inserted::Refused);
    // The second's: 21 has 14.
    assert_eq!(store.insert(entry(23, 13)), Inserted::Refused);
    assert_eq!(store.insert(entry(24, 200)), Inserted::Replaced(entry(20, 10)));
    assert_eq!((store.counts().refused, store.counts().replaced), (2, 3));
    store.check();
}

/// Under equal references no entry stays for its value. Entries are forgotten in about the order of
/// their insertion.
#[test]
fn of_equals_each_gives_way_in_its_turn() {
    for order in [Order::Allocated, Order::Hotness, Order::Fingerprint] {
        let options = StoreOptions { segments: 1, bucket_bytes: 1000, buckets_max: 4, range_check: true, order };
        let mut store = Store::new(options, false).expect("a store");
        for number in 0..4_000 {
            store.insert(entry(number, 1));
        }
        let oldest = store.entries().map(|entry| match entry.location {
            location if location == Location::NONE => 0,
            _ => (0..4_000).find(|&number| digest(number) == entry.digest).expect("a number"),
        });
        let kept_from_the_start = oldest.filter(|&number| number < 1_000).count();
        assert!(kept_from_the_start < 8, "{order:?}: {kept_from_the_start} of 160 entries stay");
    }
}

#[test]
fn a_bucket_of_4_kib_has_163_entries_or_141_with_crcs() {
    for (has_crcs, entries) in [(false, 163), (true, 141)] {
        let options = StoreOptions { segments: 1, buckets_max: 1, ..StoreOptions::default() };
        let mut store = Store::new(options, has_crcs).expect("a store");
        let added = (0..1000).filter(|&number| store.insert(entry(number, 1)) == Inserted::Added).count();
        assert_eq!(added, entries);
    }
}

/// Each comparison is counted: by hand in buckets of two.
#[test]
fn comparisons_are_those_that_are_made() {
    let mut numbers: Vec<u64> = (0..6).collect();
    numbers.sort_by_key(|&number| digest(number));
    let compared = |order, range_check, looked_for: usize| {
        let options = StoreOptions { segments: 1, bucket_bytes: 50, buckets_max: 3, range_check, order };
        let mut store = Store::new(options, false).expect("a store");
        // Ascending: three buckets of two.
        for &number in &numbers {
            store.insert(entry(number, 1));
        }
        assert!(store.look_up(digest(numbers[looked_for])).is_some());
        (store.counts().comparisons, store.counts().range_comparisons)
    };
    // The smallest of all. The range of its bucket: not below the first, not above the last. Middle
    // bucket first: below.
    assert_eq!(compared(Order::Allocated, true, 0).1, 2);
    assert_eq!(compared(Order::Fingerprint, true, 0).1, 1 + 2);
    // The largest: above the first two buckets, in the third. By halves: above the middle, in the
    // last.
    assert_eq!(compared(Order::Allocated, true, 5).1, 2 + 2 + 2);
    assert_eq!(compared(Order::Fingerprint, true, 5).1, 2 + 2);
    // Without the check all buckets are searched; the range check saves the searches of the first
    // two.
    let (all, ranges) = compared(Order::Allocated, false, 5);
    assert_eq!(ranges, 0);
    let (with, ranges) = compared(Order::Allocated, true, 5);
    let a_search = with - ranges;
    assert_eq!(all, 3 * a_search);
}

/// Figure 12's order of the three ways, over a segment of many buckets.
#[test]
fn what_finds_sooner_compares_less() {
    let compared = |order, range_check| {
        let options = StoreOptions { segments: 4, buckets_max: 1000, range_check, order, ..StoreOptions::default() };
        let mut store = Store::new(options, false).expect("a store");
        for number in 0..20_000 {
            store.insert(entry(number, if number < 200 { 9 } else { 1 }));
        }
        // Hot ones are at the end of the list unless it is reorganised.
        for number in 20_000..20_200 {
            store.insert(entry(number, 200));
        }
        for number in (0..10_000).map(|at| if at % 2 == 0 { 20_000 + at % 200 } else { 50_000 + at }) {
            store.look_up(digest(number));
        }
        store.check();
        *store.counts()
    };
    let plain = compared(Order::Allocated, false);
    let hot = compared(Order::Hotness, false);
    let sorted = compared(Order::Fingerprint, true);
    assert!(hot.reorganised > 0 && hot.comparisons < plain.comparisons, "{hot:?} {plain:?}");
    assert!(sorted.comparisons * 4 < plain.comparisons, "{sorted:?} {plain:?}");
    assert_eq!((plain.lookups, plain.found), (10_000, 5_000));
}

#[test]
fn a_store_of_nothing_is_refused() {
    let refused = |options| Store::new(options, true).expect_err("nothing").to_string();
    let options = StoreOptions::default();
    assert_eq!(refused(StoreOptions { segments: 0, ..options }), "segments is 0, but has to be from 1 to 16777216");
    assert_eq!(
        refused(StoreOptions { buckets_max: 0, ..options }),
        "buckets_max is 0, but has to be from 1 to 16777216"
    );
    assert_eq!(
        refused(StoreOptions { bucket_bytes: 57, ..options }),
        "bucket_bytes is 57, but has to be from 58 to 1048576"
    );
}
