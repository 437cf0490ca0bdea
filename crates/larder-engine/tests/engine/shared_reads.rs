//! Read hits that share the lock of the state decide as those that do not. Two caches in each
//! design get the same requests, one after the other; one of them never shares the lock, and the
//! other always. Each read hits or misses alike, and in the end the same chunks are there.
//!
//! It leaves requests at the same time to `threads/` and `interleavings/`.

use crate::common::*;
use larder_device::{rng::Rng, sim::Schedule};
use larder_engine::{CreateOptions, Tuning, WriteMode, designs};
use larder_format::{DesignId, StoreKind};

const CHUNK: usize = 8 << 10;
/// Requested chunks, few of them often: more than the flash has room for.
const CHUNKS: u64 = 3000;
const REQUESTS: usize = 6000;
const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];

/// The visible state of a cache.
#[derive(PartialEq, Debug)]
struct Seen {
    /// Reads of the origin after each request.
    origin_reads: Vec<u64>,
    /// Slots of all chunks at the end.
    slots: Vec<Option<u32>>,
    status: String,
}

fn seen(seed: u64, design: DesignId, share_after_reads: u32) -> Seen {
    let mode = MODES[seed as usize % MODES.len()];
    let options = CreateOptions { design, mode, ..Setup::default().options };
    let tuning = Tuning { share_after_reads, prefetch_bytes_max: 0, ..lazy_tuning() };
    let setup = Setup { options, tuning, flash_bytes: 8 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    let world = World::new(seed, setup);
    let mut rng = Rng::new(seed);
    // Numbers of noise; 0 for zeroes.
    let mut content: Vec<u64> = (0..CHUNKS).map(|lba| (1 << 32) + lba).collect();
    for (lba, &number) in content.iter().enumerate() {
        world.fill_origin((lba * CHUNK) as u64, &noise(number, CHUNK));
    }
    let mut origin_reads = Vec::new();
    for request in 1..=REQUESTS as u64 {
        let below = 1 + rng.below(CHUNKS);
        let lba = rng.below(below);
        let offset = lba * CHUNK as u64;
        match rng.below(100) {
            // Runs of reads, without a request between them that would take the lock.
            0..20 => {
                content[lba as usize] = request;
                world.write(offset, &noise(request, CHUNK));
            }
            20..22 => {
                content[lba as usize] = 0;
                world.trim(offset, CHUNK as u64);
            }
            22..25 => world.wait_for_insertions(),
            _ => {
                let expected = match content[lba as usize] {
                    0 => vec![0; CHUNK],
                    number => noise(number, CHUNK),
                };
                let part = if rng.chance(1, 4) { 512..1024 } else { 0..CHUNK };
                let found = world.read(offset + part.start as u64, part.len());
                assert_same(&found, &expected[part], "a read");
            }
        }
        origin_reads.push(world.origin_reads());
    }
    world.wait_for_insertions();
    // This flush releases all that waits for one of the origin: its own moment would depend on
    // time.
    world.flush();
    world.wait_for_insertions();
    let status = world.status();
    let counts = status.counts;
    assert!(counts.read_hits > 500 && counts.evicted_slots > 0, "{design:?}: {counts:?}");
    assert_eq!(counts.read_hits + counts.read_misses, counts.read_chunks, "each chunk that was read counts once");
    // Clean chunks of such a design hit by their metadata slots.
    let has_region = designs::find(design).is_ok_and(|design| design.kind() == StoreKind::Buckets);
    assert_eq!(counts.flash_region_reads > 500, has_region, "{design:?}: {counts:?}");
    let slots = (0..CHUNKS).map(|lba| world.slot_of(lba).map(|slot| slot.0)).collect();
    Seen { origin_reads, slots, status: format!("{status:?}") }
}

#[test]
fn hits_that_share_the_lock_decide_as_those_that_do_not() {
    for design in design::all() {
        each_seed(6, |seed| {
            let (alone, shared) = (seen(seed, design, u32::MAX), seen(seed, design, 0));
            let differs = alone.origin_reads.iter().zip(&shared.origin_reads).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{}: the request of this number misses in one of them", design::name(design));
            assert_eq!(alone, shared, "{}", design::name(design));
        });
    }
}
