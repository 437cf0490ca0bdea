//! The engine against a plain model, under a seeded scheduler: random reads, writes, trims, flushes, mode switches,
//! destages and checkpoints by clients that share chunks, with every completion in any order; then a clean end, a kill
//! or a power loss, and the next life over the same devices.
//!
//! `LARDER_SEED=N` replays one seed, `LARDER_CRASH_CASES=N` runs that many.

mod world;

use larder_core::types::SECTOR_BYTES;
use larder_device::{
    ZeroFlags,
    rng::Rng,
    sim::{SimOptions, SimRuntime},
};
use larder_engine::{Cache, WriteMode};
use std::{cell::RefCell, future::Future, pin::Pin, rc::Rc, sync::Arc, task::Poll};
use world::{Model, Shape, World, ZERO, identify, read, write, zero};

const CLIENTS: usize = 3;
const OPS_A_CLIENT: usize = 60;
const LIVES: usize = 4;

fn cases(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("LARDER_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("LARDER_CRASH_CASES").unwrap_or(default)).collect(),
    }
}

/// With `LARDER_WATCH=SECTOR`, prints what happens to that sector.
fn watch(what: &str, at: usize, stamps: &[u32]) {
    static WATCHED: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    let watched = WATCHED.get_or_init(|| std::env::var("LARDER_WATCH").ok().and_then(|value| value.parse().ok()));
    if let Some(sector) = watched
        && (at..at + stamps.len()).contains(sector)
    {
        eprintln!("{what} {at}+{}: sector {sector} = {}", stamps.len(), stamps[sector - at]);
    }
}

struct SeedOnPanic(u64);
impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with LARDER_SEED={}", self.0);
        }
    }
}

/// Runs futures side by side on the simulation's main task.
async fn all(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One client: works on sectors of its own, in stripes that are no multiple of a chunk, so that clients share chunks.
async fn client(cache: &Cache, model: &RefCell<Model>, mut rng: Rng, stripe: std::ops::Range<usize>, ops: usize) {
    let width = stripe.len();
    for _ in 0..ops {
        let max = [1, 4, 16, 17, 64, 256, 300][rng.index(7)].min(width);
        let count = 1 + rng.index(max);
        let mut at = stripe.start + rng.index(width - count + 1);
        if rng.chance(1, 2) {
            // Often aligned, so that whole chunks and duplicates occur.
            at = (at / 16 * 16).clamp(stripe.start, stripe.end - count);
        }
        match rng.below(100) {
            0..45 => {
                let content = rng.below(12) as u32;
                let stamps: Vec<u32> = match rng.below(10) {
                    0 => vec![ZERO; count],
                    // Few contents, so that chunks repeat.
                    1..5 => (0..count).map(|i| 1000 + content * 512 + ((at + i) % 256) as u32).collect(),
                    _ => {
                        let odd = rng.below(2) as u32;
                        (0..count).map(|_| (rng.next_u64() as u32 | 1 << 20) & !1 | odd).collect()
                    }
                };
                let fua = rng.chance(1, 12);
                model.borrow_mut().begin(at, &stamps);
                watch("write begins", at, &stamps);
                write(cache, at, &stamps, fua).await;
                watch("write ends", at, &stamps);
                let mut model = model.borrow_mut();
                model.complete(at, &stamps);
                if fua {
                    model.durable(at..at + count);
                }
            }
            45..80 => {
                let bytes = read(cache, at, count).await;
                let model = model.borrow();
                for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    let expected = model.current[at + i];
                    if identify(sector, [expected]).is_none() {
                        let found = identify(sector, model.older[at + i].iter().copied());
                        panic!("sector {} reads as {found:?}, not as {expected}", at + i);
                    }
                }
            }
            80..90 => {
                let stamps = vec![ZERO; count];
                let flags = ZeroFlags { no_hole: rng.chance(1, 3), fua: rng.chance(1, 8), fast_only: false };
                model.borrow_mut().begin(at, &stamps);
                watch("zero begins", at, &stamps);
                zero(cache, at, count, flags).await;
                watch("zero ends", at, &stamps);
                let mut model = model.borrow_mut();
                model.complete(at, &stamps);
                if flags.fua {
                    model.durable(at..at + count);
                }
            }
            _ => {
                cache.flush().await.unwrap_or_else(|error| panic!("flush: {error}"));
                model.borrow_mut().durable(stripe.clone());
            }
        }
    }
}

/// What nobody asks for, and happens all the same.
async fn operator(cache: &Cache, mut rng: Rng, ops: usize) {
    for _ in 0..ops {
        match rng.below(4) {
            0 => assert!(cache.destage_all().await, "destage"),
            1 => cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}")),
            2 => {
                let mode = [WriteMode::Back, WriteMode::Through, WriteMode::Around][rng.index(3)];
                watch(&format!("mode {mode:?} after"), 0, &vec![0; 1 << 16]);
                cache.set_mode(mode).await.unwrap_or_else(|error| panic!("set mode: {error}"));
            }
            _ => cache.settle().await,
        }
    }
}

async fn check_all(cache: &Cache, model: &RefCell<Model>, after_crash: bool) {
    let sectors = model.borrow().current.len();
    let step = 1000;
    for at in (0..sectors).step_by(step) {
        let count = step.min(sectors - at);
        let bytes = read(cache, at, count).await;
        let mut model = model.borrow_mut();
        for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let at = at + i;
            let current = model.current[at];
            let older: &[u32] = if after_crash { &model.older[at] } else { &[] };
            match identify(sector, older.iter().copied().chain([current])) {
                Some(stamp) => model.current[at] = stamp,
                None => {
                    let was = identify(sector, model.current.iter().copied());
                    panic!("sector {at} reads as {was:?}, allowed are {current} and {older:?}");
                }
            }
        }
    }
    if after_crash {
        // What was read stays: opening flushed both devices.
        model.borrow_mut().durable(0..sectors);
    }
}

fn run(seed: u64) {
    let _print = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let shape = Shape::draw(&mut rng);
    let options = || SimOptions { steps_max: 3_000_000, ..SimOptions::default() };
    let first = SimRuntime::with_options(rng.next_u64(), options());
    let world = World::new(&first, shape);
    first.kill();
    let model = Rc::new(RefCell::new(Model::new(world.sectors)));
    let mut crashed = false;
    for life in 0..LIVES {
        let runtime = SimRuntime::with_options(rng.next_u64(), options());
        world.flash.attach(&runtime);
        world.origin.attach(&runtime);
        let end = rng.below(4);
        if end >= 2 && life + 1 < LIVES {
            runtime.stop_at_step(Some(200 + rng.below(30_000)));
        }
        let (client_rngs, operator_rng): (Vec<Rng>, Rng) = ((0..CLIENTS).map(|_| rng.fork()).collect(), rng.fork());
        let (world, model) = (&world, &model);
        watch(&format!("life {life} end {end} {:?}", world.shape), 0, &vec![0; 1 << 16]);
        let ended = runtime.block_on_or_stop(async {
            let cache = Arc::new(world.open(&runtime).await);
            check_all(&cache, model, crashed).await;
            let width = world.sectors / CLIENTS;
            let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
            for (i, rng) in client_rngs.into_iter().enumerate() {
                tasks.push(Box::pin(client(&cache, model, rng, i * width..(i + 1) * width, OPS_A_CLIENT)));
            }
            tasks.push(Box::pin(operator(&cache, operator_rng, 3)));
            all(tasks).await;
            check_all(&cache, model, false).await;
            if end == 0 || life + 1 == LIVES {
                cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
                model.borrow_mut().durable(0..world.sectors);
            }
        });
        crashed = ended.is_none() || end != 0;
        if end == 1 { runtime.kill() } else { runtime.crash() }
    }
}

#[test]
fn model_random_lives() {
    for seed in cases(40) {
        run(seed);
    }
}
