//! Two addresses with one LBA-hash in AustereCache, and a crash before the second one's commit. The
//! value read after it stays, for any later write to the first. The search for addresses that share
//! a hash uses all bits of it; `make crash-siblings` has the simulation with few.

use crate::common::*;
use larder_core::{
    Lba,
    austere::{Austere, AustereConfig},
};
use larder_engine::designs;
use std::{collections::HashMap, time::Duration};

const CHUNK: usize = 8 << 10;
const CHUNKS: u64 = 40_000;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

fn setup() -> Setup {
    let mut setup = Setup { origin_bytes: CHUNKS * CHUNK as u64, ..Setup::default() };
    setup.options.design = designs::named("austere").expect("it is known").id;
    setup.tuning.commit_interval_ms = 60_000;
    setup
}

fn siblings(world: &World) -> (u64, u64) {
    let layout = world.layout();
    let config = AustereConfig::of_layout(&designs::layout_of(&layout, CHUNKS), layout.slot_count.into());
    let core = Austere::new(config).expect("a layout");
    let mut seen = HashMap::new();
    (0..CHUNKS).find_map(|lba| seen.insert(core.key_of_lba(Lba(lba)).0, lba).map(|other| (other, lba))).expect("two")
}

fn what_is_read_after(end: impl Fn(&mut World), destage: bool, how: &str) {
    let flips = std::cell::RefCell::new(Vec::new());
    each_seed(20, |seed| {
        let mut world = World::new(seed, setup());
        let (x, z) = siblings(&world);
        let (old, a, b) = (noise(1, CHUNK), noise(2, CHUNK), noise(3, CHUNK));
        world.fill_origin(at(z), &old);
        world.write(at(x), &a);
        world.flush();
        if destage {
            assert!(world.destage_all());
            world.flush();
        }
        // Not flushed: after a crash it is there or not, and the value of the first read stays.
        world.write(at(z), &a);
        // Another content, elsewhere: changed metadata slots are written together with it.
        world.write(at(CHUNKS - 1), &noise(4, CHUNK));
        world.runtime.run_for(Duration::from_millis(50));
        end(&mut world);
        world.open();
        let first = world.read(at(z), CHUNK);
        assert!(first == old || first == a, "seed {seed}: neither old nor new");
        // Another address gets other content.
        world.write(at(x), &b);
        let second = world.read(at(z), CHUNK);
        if first != second {
            flips.borrow_mut().push(seed);
        }
        let on_origin = world.origin.sim.peek(at(z), CHUNK);
        println!(
            "{how}, seed {seed}: chunks {x} and {z}; first read {}, then {}; the origin has {}; dirty {}",
            if first == a { "new" } else { "old" },
            if second == a { "new" } else { "old" },
            if on_origin == a { "new" } else { "old" },
            world.status().dirty_bytes,
        );
    });
    let flips = flips.into_inner();
    assert!(flips.is_empty(), "{how}: what was read after the end did not stay, with seeds {flips:?}");
}

#[test]
fn what_is_read_after_a_kill_stays() {
    what_is_read_after(World::kill, true, "killed");
}

#[test]
fn what_is_read_after_a_power_loss_stays() {
    what_is_read_after(World::crash, true, "power lost");
}

#[test]
fn what_is_read_after_a_kill_stays_with_a_dirty_sibling() {
    what_is_read_after(World::kill, false, "killed, dirty");
}
