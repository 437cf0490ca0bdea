//! Units that wait, beside a list of them in the order in which they began.

use std::collections::BTreeSet;

use super::*;
use crate::seeded::{Rng, for_seeds};

const PAGE_SECTORS: u64 = 2;
const UNIT_PAGES: u64 = 4;
const UNIT_SECTORS: u64 = UNIT_PAGES * PAGE_SECTORS;
const UNIT: u64 = UNIT_SECTORS * SECTOR_BYTES;
const UNITS: u64 = 12;
const UNITS_MAX: usize = 4;

/// Units with the sectors that wait of each, first begun first.
type Model = Vec<(u64, BTreeSet<u64>)>;

fn bytes_of(sectors: Range<u64>) -> Range<u64> {
    sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES
}

fn take(model: &mut Model, unit: u64) -> Option<BTreeSet<u64>> {
    let at = model.iter().position(|(waiting, _)| *waiting == unit)?;
    Some(model.remove(at).1)
}

fn sectors_of(waiting: &WaitingUnit) -> BTreeSet<u64> {
    (0..UNIT_SECTORS).filter(|&sector| waiting.has_all(sector..sector + 1)).collect()
}

fn put(waiting: &mut Waiting, model: &mut Model, unit: u64, sectors: Range<u64>) {
    let waited = model.iter().any(|(waiting, _)| *waiting == unit);
    if !waited {
        model.push((unit, BTreeSet::new()));
    }
    let (_, there) = model.iter_mut().find(|(waiting, _)| *waiting == unit).expect("it waits");
    there.extend(sectors.clone());
    let is_whole = there.len() as u64 == UNIT_SECTORS;
    if is_whole {
        take(model, unit);
    }
    let start = unit * UNIT_SECTORS;
    assert_eq!(waiting.put(bytes_of(start + sectors.start..start + sectors.end)), Put { waited, is_whole });
    while let Some((unit, left)) = waiting.take_excess() {
        assert!(model.len() > UNITS_MAX, "unit {unit} had room");
        let (oldest, there) = model.remove(0);
        let missing = |page: &u64| (0..PAGE_SECTORS).any(|sector| !there.contains(&(page * PAGE_SECTORS + sector)));
        let missing = (0..UNIT_PAGES).filter(missing).map(|page| unit * UNIT_PAGES + page);
        assert!(waiting.pages_missing(unit, &left).eq(missing), "pages to be read of {there:?}");
        assert_eq!((unit, sectors_of(&left)), (oldest, there), "the one that waited longest");
    }
    assert!(model.len() <= UNITS_MAX, "one more has to go");
}

#[test]
fn units_leave_whole_or_in_the_order_in_which_they_began() {
    for_seeds(0..20, |seed| {
        let mut rng = Rng::new(seed);
        let mut waiting = Waiting::of_units(PAGE_SECTORS * SECTOR_BYTES, UNIT_PAGES, UNITS_MAX as u64 * UNIT);
        let mut model = Model::new();
        for _ in 0..5_000 {
            let unit = rng.below(UNITS);
            match rng.below(10) {
                0 => {
                    let there = take(&mut model, unit);
                    assert_eq!(waiting.forget(unit).as_ref().map(sectors_of), there);
                }
                1 => {
                    let is_unit = rng.below(2) == 0;
                    let end = (unit + 1) * UNIT + if is_unit { 0 } else { UNIT };
                    let there = is_unit.then(|| take(&mut model, unit)).flatten().map(|there| (unit, there));
                    let left = waiting.forget_unit_of(&(unit * UNIT..end));
                    assert_eq!(left.map(|(unit, left)| (unit, sectors_of(&left))), there);
                }
                2 => {
                    let sectors = unit * UNIT_SECTORS + rng.below(3)..(unit + 2) * UNIT_SECTORS - rng.below(3);
                    let bytes = bytes_of(sectors);
                    model.retain(|(unit, _)| unit * UNIT < bytes.start || (unit + 1) * UNIT > bytes.end);
                    waiting.forget_units_in(&bytes);
                }
                _ => {
                    let start = rng.below(UNIT_SECTORS);
                    let end = (start + 1 + rng.below(4)).min(UNIT_SECTORS);
                    put(&mut waiting, &mut model, unit, start..end);
                }
            }
            let waits = |sector: u64| {
                let (unit, sector) = (sector / UNIT_SECTORS, sector % UNIT_SECTORS);
                model.iter().any(|(waiting, there)| *waiting == unit && there.contains(&sector))
            };
            let start = rng.below(UNITS * UNIT_SECTORS - 1);
            let end = (start + 1 + rng.below(2 * UNIT_SECTORS)).min(UNITS * UNIT_SECTORS);
            let on_drive: BTreeSet<u64> =
                (start..end).filter(|&sector| !waits(sector)).map(|at| at / PAGE_SECTORS).collect();
            let read: Vec<u64> = waiting.pages_read(&bytes_of(start..end)).collect();
            assert!(read.iter().eq(&on_drive), "of sectors {start} to {end}: {read:?} and not {on_drive:?}");
            assert!(waiting.order.len() <= 2 * (UNITS_MAX + 1), "{} waits are remembered", waiting.order.len());
        }
    });
}
