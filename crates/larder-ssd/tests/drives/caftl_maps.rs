//! CAFTL's two-level mapping, and its tables in flash, journal and log, against a naive mapping.
//!
//! It does not simulate a drive.

use std::collections::BTreeMap;

use larder_ssd::{
    caftl::{
        journal::{JournalRecord, Log, Tables},
        location::{At, Vba},
        maps::{Maps, Released},
    },
    geometry::{Lpn, Ppa},
};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of the drawn operations.
const SEED: u64 = 20_263;
const LOGICAL_PAGES: u32 = 40;

#[derive(Clone, Debug)]
enum Step {
    /// Maps a new page.
    Map(u32),
    /// Makes the first refer to the page of the second.
    Share(u32, u32),
    Unmap(u32),
    /// Moves the page that it refers to.
    Move(u32),
    /// Joins the contents of the second to those of the first, each by its page.
    Join(u32, u32),
    /// Writes this many records to the journal.
    Journal(usize),
    /// Writes the tables out as they were before this many of the last records.
    Sync(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lpn = 0..LOGICAL_PAGES;
    let step = prop_oneof![
        5 => lpn.clone().prop_map(Step::Map),
        8 => (lpn.clone(), lpn.clone()).prop_map(|(one, other)| Step::Share(one, other)),
        2 => lpn.clone().prop_map(Step::Unmap),
        3 => lpn.clone().prop_map(Step::Move),
        2 => (lpn.clone(), lpn).prop_map(|(one, other)| Step::Join(one, other)),
        2 => (1usize..20).prop_map(Step::Journal),
        1 => (0usize..4).prop_map(Step::Sync),
    ];
    prop::collection::vec(step, 1..300)
}

/// The physical page that each logical page refers to.
type Model = BTreeMap<u32, Ppa>;

fn referring(model: &Model, ppa: Ppa) -> u32 {
    model.values().filter(|other| **other == ppa).count() as u32
}

/// Checks that `lpn` refers to `to`, and that the released page has no reference left.
fn released(model: &mut Model, maps: &Maps, lpn: u32, to: Option<Ppa>, released: Released) {
    let old = match to {
        Some(to) => model.insert(lpn, to),
        None => model.remove(&lpn),
    };
    match released {
        Released::Nothing => assert!(old.is_none() || old == to),
        Released::Page(ppa) => assert_eq!((Some(ppa), referring(model, ppa)), (old, 0)),
        Released::Shared(vba) => {
            let shared = maps.shared(vba);
            assert_eq!(Some(shared.ppa), old);
            assert!(shared.references > 0 && shared.references == referring(model, shared.ppa));
        }
    }
}

/// Returns the VBA of a page, and makes one if there is none.
fn shared(maps: &mut Maps, lpn: u32, log: &mut Log) -> Option<Vba> {
    match maps.location(Lpn(lpn)).at()? {
        At::Virtual(vba) => Some(vba),
        At::Page(ppa) => Some(maps.make_shared(Lpn(lpn), ppa, log)),
    }
}

/// The tables' content on flash.
struct Flash {
    tables: Tables,
    journal: Vec<JournalRecord>,
}

impl Flash {
    fn new() -> Flash {
        Flash { tables: Tables::new(LOGICAL_PAGES), journal: Vec::new() }
    }

    /// Writes the tables as they were after these records of the log. The journal begins anew.
    fn write_tables(&mut self, logged: &[JournalRecord]) {
        self.tables = self.load(logged);
        self.journal.clear();
    }

    fn load(&self, logged: &[JournalRecord]) -> Tables {
        let mut tables = self.tables.clone();
        self.journal.iter().chain(logged).for_each(|record| tables.apply(*record));
        tables
    }

    fn check(&self, log: &Log, maps: &Maps) {
        let tables = self.load(log.records());
        assert!(tables.primary == maps.primary(), "tables, journal and log are the primary table");
        assert!(tables.secondary == maps.secondary(), "tables, journal and log are the secondary table");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn two_levels_are_one_map(steps in steps()) {
        let mut maps = Maps::new(LOGICAL_PAGES);
        let (mut log, mut flash) = (Log::new(512), Flash::new());
        let mut model = Model::new();
        let mut next = 0;
        let mut new = || {
            next += 1;
            Ppa(next)
        };
        for step in steps {
            match step {
                Step::Map(lpn) => {
                    let ppa = new();
                    let old = maps.map(Lpn(lpn), ppa, &mut log);
                    released(&mut model, &maps, lpn, Some(ppa), old);
                }
                Step::Share(lpn, with) if lpn != with => {
                    if let Some(vba) = shared(&mut maps, with, &mut log) {
                        let ppa = maps.shared(vba).ppa;
                        let old = maps.refer(Lpn(lpn), vba, &mut log);
                        released(&mut model, &maps, lpn, Some(ppa), old);
                    }
                }
                Step::Share(..) => {}
                Step::Unmap(lpn) => {
                    let old = maps.unmap(Lpn(lpn), &mut log);
                    released(&mut model, &maps, lpn, None, old);
                }
                Step::Move(lpn) => {
                    let Some(at) = maps.location(Lpn(lpn)).at() else { continue };
                    let (from, to) = (model[&lpn], new());
                    match at {
                        At::Page(_) => maps.page_moved(Lpn(lpn), to, &mut log),
                        // One change, for all pages that refer to it.
                        At::Virtual(vba) => {
                            let before = log.len();
                            maps.shared_moved(vba, to, &mut log);
                            assert_eq!(log.len(), before + 1);
                        }
                    }
                    model.values_mut().filter(|ppa| **ppa == from).for_each(|ppa| *ppa = to);
                }
                Step::Join(one, other) => {
                    let (Some(into), Some(vba)) = (shared(&mut maps, one, &mut log), shared(&mut maps, other, &mut log))
                        else { continue };
                    if into != vba {
                        let (gone, kept) = (maps.shared(vba).ppa, maps.shared(into).ppa);
                        assert_eq!(maps.join(&[(vba, into)], &mut log), [gone]);
                        model.values_mut().filter(|ppa| **ppa == gone).for_each(|ppa| *ppa = kept);
                    }
                }
                Step::Journal(records) => flash.journal.extend(log.take(records)),
                Step::Sync(later) => {
                    let records = log.len().saturating_sub(later);
                    let kept = log.len() - records;
                    let last = log.next() - kept as u64;
                    flash.write_tables(&log.records()[..records]);
                    log.forget_before(last);
                    assert_eq!(log.len(), kept, "what was logged meanwhile is in the log");
                }
            }
            maps.check();
            flash.check(&log, &maps);
            for lpn in 0..LOGICAL_PAGES {
                prop_assert_eq!(maps.resolve(maps.location(Lpn(lpn))), model.get(&lpn).copied());
            }
        }
    }
}
