//! Recovery and repair of damaged images, and records alone, from seeds. These are the fuzz targets
//! `mutated_image`, `repaired_image` and `record`. Their files in `fuzz/src` state their checks.

#[path = "../../../fuzz/src/image/mod.rs"]
mod image;
#[path = "../../../fuzz/src/input.rs"]
mod input;
#[path = "../../../fuzz/src/memory.rs"]
mod memory;
#[path = "../../../fuzz/src/record.rs"]
mod record;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// A kind of end, and the test of a run for it.
type Kind = (&'static str, fn(&image::Seen) -> bool);

const KINDS: [Kind; 7] = [
    ("opened, and every chunk was read", |seen| seen.opened && seen.chunks_failed == 0 && !seen.verified_clean),
    ("opened, with chunks that cannot be read", |seen| seen.opened && seen.chunks_failed > 0),
    ("refused", |seen| !seen.opened),
    ("noticed by nobody", |seen| seen.verified_clean),
    ("lost the end of the log", |seen| seen.rolled_back && seen.opened),
    ("sealed, and opened", |seen| seen.sealed && seen.opened),
    ("sealed, and refused", |seen| seen.sealed && !seen.opened),
];

/// Damage that every run survives, or none, would prove little: so the test counts the ends.
#[test]
fn damaged_images_give_right_bytes_or_errors() {
    assert!(memory::is_installed());
    let counts = KINDS.map(|_| AtomicU32::new(0));
    let count = |data: &[u8]| {
        let seen = image::look(data);
        for ((_, holds), count) in KINDS.iter().zip(&counts) {
            count.fetch_add(u32::from(holds(&seen)), Relaxed);
        }
    };
    let runs = seeded::check("mutated_image", &image::seeds(), 500, count);
    for ((what, _), count) in KINDS.iter().zip(&counts) {
        println!("{} of {runs}: {what}", count.load(Relaxed));
        assert!(runs < 500 || count.load(Relaxed) >= 5, "{} of {runs}: {what}", count.load(Relaxed));
    }
}

#[test]
fn damaged_images_are_repaired_without_a_made_up_byte() {
    let counts = [const { AtomicU32::new(0) }; 4];
    let count = |data: &[u8]| {
        let seen = image::repair::look(data);
        let ends = [seen.hopeless, seen.needed && !seen.loses_data, seen.loses_data, seen.sealed && seen.whole];
        counts.iter().zip(ends).for_each(|(count, is_one)| _ = count.fetch_add(u32::from(is_one), Relaxed));
    };
    let runs = seeded::check("repaired_image", &image::repair::seeds(), 300, count);
    println!("of {runs}: hopeless, repaired without a loss, repaired with one, sealed and whole: {counts:?}");
    assert!(runs < 500 || counts.iter().all(|count| count.load(Relaxed) >= 5), "{counts:?}");
}

#[test]
fn records_decode_or_are_refused() {
    seeded::check("record", &record::seeds(), 20_000, record::run);
}
