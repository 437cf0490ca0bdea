//! AustereCache in write-through: addresses wait for a flush of the origin. Then a metadata slot
//! names them on flash. That does not hold back insertions or hits for good.

use crate::common::*;
use larder_device::sim::Schedule;
use larder_engine::designs;
use larder_format::WriteMode;

const CHUNK: usize = 8 << 10;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// Clients do not flush, and the timer does not come by.
fn world(flash_bytes: u64) -> World {
    let mut setup = Setup { flash_bytes, origin_bytes: 4096 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    setup.options.design = designs::named("austere").expect("it is known").id;
    setup.options.mode = WriteMode::Through;
    setup.tuning.commit_interval_ms = 3_600_000;
    World::new(1, setup)
}

#[test]
fn insertions_that_wait_for_the_origin_have_it_flushed() {
    let world = world(2048 * MIB);
    for n in 0..12_000u64 {
        world.write(at(n * 3), &text(n, CHUNK));
        world.wait_for_insertions();
    }
    let counts = world.status().counts;
    println!("{} inserted, {} dropped", counts.inserted_chunks, counts.insertions_dropped);
    assert!(counts.insertions_dropped < 100, "they are dropped until the timer comes by");
}

#[test]
fn an_address_that_gets_the_same_content_again_stays_listed() {
    let world = world(256 * MIB);
    let content = text(1, CHUNK);
    for lba in [10, 10, 20] {
        world.write(at(lba), &content);
        world.wait_for_insertions();
    }
    world.flush();
    world.runtime.run_for(std::time::Duration::from_millis(500));
    let before = world.status().counts.read_hits;
    for lba in [10, 20] {
        assert_eq!(world.read(at(lba), CHUNK), content);
    }
    assert_eq!(world.status().counts.read_hits - before, 2);
}
