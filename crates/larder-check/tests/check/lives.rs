//! After any end of a life, `verify` finds the flash sound: over each design, in each mode.
//!
//! They leave the state that an opening finds to `larder-engine/tests/engine/recovery.rs`.

use crate::common::*;
use larder_check::verify::verify;
use larder_device::{IoBuf, WriteFlags, rng::Rng};
use larder_engine::designs::ENGINE_DESIGNS;
use larder_format::WriteMode;
use std::pin::Pin;

const CHUNK: usize = 8 << 10;
/// Chunks of the volume that the tests use.
const CHUNKS: u64 = 1200;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

/// Checks each state that a life leaves. It is sound also if checkpoints were written beside
/// requests, or while recovered slots still wait to be put in order.
#[test]
fn what_a_life_leaves_is_found_sound() {
    for (design, mode) in
        ENGINE_DESIGNS.iter().flat_map(|design| WriteMode::ALL.iter().map(move |mode| (design, *mode)))
    {
        each_seed(2, |seed| {
            let mut setup = Setup { flash_bytes: 6 * MIB, ..Setup::default() };
            setup.tuning.prefetch_bytes_max = 0;
            setup.tuning.commit_interval_ms = 50;
            setup.options.design = design.id;
            setup.options.mode = mode;
            let mut world = World::new(seed, setup);
            world.fill_with_repeats(CHUNKS, CHUNK);
            let mut rng = Rng::new(seed ^ 177);
            for life in 0..4 {
                for _ in 0..30 {
                    let mut works: Vec<Work<'_>> = (0..16).map(|_| some_work(&world, &mut rng)).collect();
                    if rng.chance(1, 4) {
                        let cache = world.cache().clone();
                        works.push(Box::pin(async move { cache.checkpoint().await.expect("a checkpoint") }));
                    }
                    world.run(all(works));
                }
                let name = format!("{}, {mode:?}, life {life}", design.name);
                match rng.below(3) {
                    0 => world.crash(),
                    1 => world.kill(),
                    _ => world.close(),
                }
                assert_sound(&world, &name);
                world.open();
                if rng.chance(1, 2) {
                    world.close();
                    assert_sound(&world, &format!("{name}, ended at once"));
                    world.open();
                }
            }
        });
    }
}

type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Returns a read, or a write of known content or of new content.
fn some_work<'a>(world: &'a World, rng: &mut Rng) -> Work<'a> {
    let (cache, lba) = (world.cache(), rng.below(CHUNKS));
    let content = if rng.chance(1, 2) { rng.below(100) } else { 1000 + rng.below(1 << 30) };
    if rng.chance(1, 3) {
        return Box::pin(async move {
            cache.read(at(lba), IoBuf::new(CHUNK)).await.expect("a read");
        });
    }
    let data = IoBuf::copy_of(&noise(content, CHUNK)).freeze();
    Box::pin(async move { cache.write(at(lba), data, WriteFlags::default()).await.expect("a write") })
}

fn assert_sound(world: &World, when: &str) {
    let flash = world.flash.clone();
    let report = world.runtime.block_on(async move { verify(&*flash, &mut |_, _| {}).await }).expect("a cache");
    assert!(report.clean, "{when}: {:?}", report.problems.iter().take(5).collect::<Vec<_>>());
}
