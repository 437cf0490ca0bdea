//! Target: `verify --repair` over a damaged image, then opening it and reading every sector.
//!
//! Properties, after any damage: no panic and no endless run. A dry run writes nothing. An image
//! that the report calls whole opens, with the origin that it names, and every sector of it can be
//! read. If checksums can tell the damage, there are more. An image that opens without a repair can
//! be repaired. Each repair ends whole. A sector reads as its newest bytes, or as older ones of its
//! own if the report lists it as lost, suspect or unknown.
//!
//! It does not crash in the middle of a repair.

use super::super::{input::Input, memory};
use super::{
    ALLOCATED_BYTES_MAX, Expected, Run, SECTOR,
    base::{VOLUME_BYTES, runtime, tuning},
    bases, damage, expectation,
    medium::Medium,
};
use larder_check::verify::repair::{RepairOptions, repair};
use larder_device::sim::Schedule;
use larder_engine::{Cache, EngineError};
use std::sync::Arc;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub sealed: bool,
    pub hopeless: bool,
    pub needed: bool,
    pub loses_data: bool,
    pub whole: bool,
}

/// Runs the fuzz target, and returns the outcome.
pub fn look(data: &[u8]) -> Seen {
    let all = bases();
    let mut input = Input(data);
    let base = &all[input.below(all.len())];
    let choice = input.byte();
    let options = RepairOptions { dry_run: choice & 1 != 0, drop_suspect: choice & 2 != 0, unread_is_lost: true };
    let damaged = damage::damage(base, &mut input);
    let (expected, _) = expectation(base, &damaged);
    let flash = Medium::new("flash", Arc::new(damaged.flash.clone()), damaged.size_bytes, false);
    let origin = Medium::new("origin", base.origin.clone(), VOLUME_BYTES, false);
    let runtime = runtime(u64::from(choice), Schedule::Chaos);
    let (report, peak) = memory::peak_of(|| runtime.block_on(repair(&*flash, &options, &mut |_, _| {})));
    assert!(peak <= ALLOCATED_BYTES_MAX, "{peak} bytes were allocated");
    let mut seen = Seen { sealed: damaged.sealed, hopeless: report.is_err(), ..Seen::default() };
    if options.dry_run {
        assert!(flash.bytes() == damaged.flash[..damaged.size_bytes as usize], "a dry run writes");
    } else {
        let opened = runtime.block_on(Cache::open(flash, origin, runtime.clone(), tuning()));
        match &report {
            Err(error) => assert!(damaged.sealed || opened.is_err(), "{}: it opens, and: {error}", base.name),
            Ok(report) => {
                (seen.needed, seen.loses_data, seen.whole) = (report.needed, report.loses_data(), report.whole);
                assert!(damaged.sealed || report.whole, "{}: a repair that leaves problems: {report:?}", base.name);
                let error = opened.as_ref().err();
                // A repair knows no origin: a superblock that names another one, under a right
                // checksum, stays so.
                let is_foreign = damaged.sealed && matches!(error, Some(EngineError::WrongOrigin(_)));
                assert!(
                    error.is_none() || !report.whole || is_foreign,
                    "{}: a whole flash does not open: {error:?}: {report:?}",
                    base.name
                );
            }
        }
        if let (Ok(cache), Ok(report)) = (opened, report) {
            let older = [&report.lost, &report.suspect, &report.unknown];
            let older = (0..VOLUME_BYTES / SECTOR as u64)
                .map(|sector| older.iter().any(|ranges| ranges.contains(sector * SECTOR as u64)))
                .collect();
            let mut run = Run::new(base, if damaged.sealed { Expected::Anything } else { expected });
            run.older = older;
            run.read_all(&runtime, &cache, |_| report.whole);
        }
    }
    runtime.kill();
    seen
}

/// Damage that leaves odd numbers in dead frames of the log. A repair must not take them for a
/// loss.
const ODD_FRAMES: &[u8] = &[
    0x20, 0x00, 0x03, 0x01, 0x01, 0x00, 0x01, 0x02, 0x07, 0xa2, 0xc9, 0xc0, 0xd8, 0xf6, 0xbc, 0x40, 0x27, 0x00, 0xf5,
    0x0e, 0x38, 0xea, 0xa4, 0x61, 0x20, 0x14, 0xa6, 0x85, 0x55, 0x0d, 0xca, 0xf7, 0x5f, 0xf6, 0xf7, 0x1e, 0x62, 0xa9,
    0x3b, 0x2f, 0xf0, 0xca, 0xe8, 0x3e, 0x8e, 0x0d, 0x2b, 0x09, 0x16, 0xfc, 0x52, 0x8f, 0x66, 0xb8, 0xa6, 0x5c, 0x71,
    0xd9, 0x79, 0xda, 0x95, 0xd4, 0x2e, 0xb5, 0xc4, 0xc5, 0x74, 0xbd, 0x53, 0x4d, 0x4b, 0x0e, 0x8a, 0x4e,
];

/// Changes under right checksums, after which the superblock names an origin of another size.
const OTHER_ORIGIN: &[u8] = &[
    0x01, 0x02, 0xac, 0xff, 0xc9, 0x9a, 0x3b, 0x06, 0x48, 0x00, 0x07, 0x07, 0x00, 0x00, 0x03, 0x06, 0xd2, 0x34, 0xd3,
    0x2f, 0x78, 0xca, 0x2e, 0x43, 0x61, 0x62, 0x63, 0x64,
];

/// Returns first inputs: the damage to images, without the work, and three more. The first loses a
/// frame in the middle of a log, which the rest shows, and the last frame, which nothing shows.
/// Then come [`ODD_FRAMES`] and [`OTHER_ORIGIN`].
pub fn seeds() -> Vec<Vec<u8>> {
    let cut = 2 + 3 * super::OPERATIONS_MAX;
    let two_frames = [&[0xfa, 4, 0, 9, 3][..], &[0x89; 84]].concat();
    let damage = super::seeds();
    let damage = damage.iter().map(|seed| [&[seed[0], seed[0] << 1], seed.get(cut..).unwrap_or_default()].concat());
    damage.chain([two_frames, ODD_FRAMES.to_vec(), OTHER_ORIGIN.to_vec()]).collect()
}
