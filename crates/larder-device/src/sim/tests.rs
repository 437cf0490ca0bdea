//! Tests of the simulation as a whole: order, time, crashes, and their outcomes.

mod faults;
mod frozen;
mod image;

use super::*;
use crate::{
    BlockDevice, IoBuf, IoErrorKind, IoFuture, IoOp, Runtime, SharedBuf, WriteFlags, ZeroFlags, rng::Rng,
    runtime::compute,
};
use parking_lot::Mutex;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

const FUA: WriteFlags = WriteFlags { fua: true };
const PLAIN: WriteFlags = WriteFlags { fua: false };
const TASKS: usize = 4;
const REGION_SECTORS: usize = 32;

fn stamped(version: u64, sectors: usize) -> SharedBuf {
    IoBuf::copy_of(&version.to_le_bytes().repeat(64 * sectors)).freeze()
}

/// Returns the one version that fills a sector; panics if two are mixed.
fn version_of(sector: &[u8], seed: u64) -> u64 {
    let version = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
    assert!(sector.chunks(8).all(|word| word == version.to_le_bytes()), "seed {seed}: a sector mixes two writes");
    version
}

/// A task's knowledge of its region: per sector, all versions begun, in order, and the durable one.
#[derive(Clone)]
struct Model {
    begun: Vec<Vec<u64>>,
    completed: Vec<u64>,
    durable: Vec<u64>,
}

impl Model {
    fn check(&self, task: usize, bytes: &[u8], seed: u64) {
        for (sector, data) in bytes.chunks(512).enumerate() {
            let version = version_of(data, seed);
            let allowed = version == self.durable[sector]
                || self.begun[sector].contains(&version) && version > self.durable[sector];
            assert!(
                allowed,
                "seed {seed}: task {task} sector {sector} has {version}, durable {:?}",
                self.durable[sector]
            );
        }
    }
}

/// Writes, zeroes and flushes a region of its own for ever, and notes the promises it relies on.
async fn work(device: Arc<SimDevice>, task: usize, model: Arc<Mutex<Model>>, mut rng: Rng) {
    let mut version = 0;
    loop {
        let start = rng.index(REGION_SECTORS);
        let sectors = 1 + rng.index(REGION_SECTORS - start);
        let (offset, range) = (((task * REGION_SECTORS + start) * 512) as u64, start..start + sectors);
        let fua = rng.chance(1, 8);
        match rng.below(10) {
            0..=6 => {
                version += 1;
                range.clone().for_each(|sector| model.lock().begun[sector].push(version));
                device.write(offset, stamped(version, sectors), WriteFlags { fua }).await.expect("write");
                let mut model = model.lock();
                model.completed[range.clone()].fill(version);
                if fua {
                    model.durable[range].fill(version);
                }
            }
            7 => {
                let bytes = device.read(offset, IoBuf::new(sectors * 512)).await.expect("read");
                for (sector, data) in range.zip(bytes.chunks(512)) {
                    assert_eq!(version_of(data, 0), model.lock().completed[sector], "a read missed a completed write");
                }
            }
            _ => {
                let completed = model.lock().completed.clone();
                device.flush().await.expect("flush");
                let mut model = model.lock();
                for (durable, completed) in model.durable.iter_mut().zip(completed) {
                    *durable = (*durable).max(completed);
                }
            }
        }
    }
}

/// Runs the tasks up to a random step. Returns the trace's hash and each task's model.
fn live(runtime: &Arc<SimRuntime>, device: &Arc<SimDevice>, seed: u64) -> (u64, Vec<Model>) {
    let mut rng = Rng::new(seed ^ 0xabc);
    let models: Vec<_> = (0..TASKS)
        .map(|task| {
            let begun = vec![Vec::new(); REGION_SECTORS];
            let none = vec![0; REGION_SECTORS];
            let model = Arc::new(Mutex::new(Model { begun, completed: none.clone(), durable: none }));
            runtime.spawn(Box::pin(work(device.clone(), task, model.clone(), rng.fork())));
            model
        })
        .collect();
    runtime.stop_at_step(Some(1 + rng.below(600)));
    assert!(!runtime.run_until_idle(), "seed {seed}: the tasks never end");
    (runtime.trace_hash(), models.iter().map(|model| model.lock().clone()).collect())
}

#[test]
fn flushed_data_survives_crashes_and_the_rest_is_old_or_new() {
    let (mut torn, mut lost) = (0, 0);
    for seed in 0..1500 {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
        let (_, models) = live(&runtime, &device, seed);
        runtime.crash();
        assert_eq!(device.unflushed_bytes(), 0);
        let all = device.peek(0, TASKS * REGION_SECTORS * 512);
        for (task, (model, bytes)) in models.iter().zip(all.chunks(REGION_SECTORS * 512)).enumerate() {
            model.check(task, bytes, seed);
            let now: Vec<u64> = bytes.chunks(512).map(|sector| version_of(sector, seed)).collect();
            lost += u32::from(now.iter().zip(&model.completed).any(|(now, completed)| now < completed));
            torn += u32::from(now.iter().zip(&model.completed).any(|(now, completed)| now > completed));
        }
        // The next life reads the same, and another power loss takes nothing back.
        let runtime = SimRuntime::new(seed + 1);
        device.attach(&runtime);
        let read = runtime.block_on(device.read(0, IoBuf::new(all.len()))).expect("read");
        runtime.crash();
        assert!(read[..] == all[..] && device.peek(0, all.len()) == all, "seed {seed}");
    }
    assert!(torn > 100 && lost > 100, "crashes are too kind: {torn} in flight were kept, {lost} lost something");
}

#[test]
fn a_killed_process_loses_nothing_that_completed_until_power_fails() {
    let mut later_lost = 0;
    for seed in 0..500 {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
        let (_, models) = live(&runtime, &device, seed);
        runtime.kill();
        let all = device.peek(0, TASKS * REGION_SECTORS * 512);
        for (model, bytes) in models.iter().zip(all.chunks(REGION_SECTORS * 512)) {
            for (sector, data) in bytes.chunks(512).enumerate() {
                assert!(version_of(data, seed) >= model.completed[sector], "seed {seed}: a completed write vanished");
            }
        }
        let runtime = SimRuntime::new(!seed);
        device.attach(&runtime);
        if seed % 2 == 0 {
            runtime.block_on(device.flush()).expect("flush");
        }
        runtime.crash();
        let after = device.peek(0, all.len());
        assert!(seed % 2 == 1 || after == all, "seed {seed}: a flush after the kill did not hold");
        later_lost += u32::from(after != all);
    }
    assert!(later_lost > 50, "a kill made data durable");
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
        let (trace, _) = live(&runtime, &device, seed);
        runtime.crash();
        (trace, device.peek(0, 1 << 17))
    };
    let runs: Vec<_> = (0..50).map(run).collect();
    assert!((0..50).all(|seed| run(seed) == runs[seed as usize]));
    let mut traces: Vec<u64> = runs.iter().map(|run| run.0).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 50, "different seeds take different ways");
}

#[test]
fn writes_and_reads_in_flight_overtake_each_other_but_never_mix_a_sector() {
    let (mut firsts, mut mixed_reads) = ([0; 2], 0);
    for seed in 0..400 {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
        let (a, b) = (device.write(0, stamped(1, 8), PLAIN), device.write(0, stamped(2, 8), PLAIN));
        let read = device.read(0, IoBuf::new(4096));
        let read = runtime.block_on(read).expect("read");
        let versions: Vec<u64> = read.chunks(512).map(|sector| version_of(sector, seed)).collect();
        mixed_reads += u32::from(versions.iter().any(|&version| version != versions[0]));
        runtime.block_on(async { (a.await.expect("write"), b.await.expect("write")) });
        firsts[(version_of(&device.peek(0, 512), seed) - 1) as usize] += 1;
        runtime.run_until_idle();
    }
    assert!(firsts[0] > 50 && firsts[1] > 50 && mixed_reads > 20, "{firsts:?} {mixed_reads}");
}

#[test]
fn a_change_stops_the_run_in_flight() {
    let runtime = SimRuntime::new(1);
    let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
    runtime.stop_at_change(Some(3));
    let work = async {
        for version in 1..10 {
            device.write(0, stamped(version, 1), FUA).await.expect("write");
        }
    };
    assert_eq!(runtime.block_on_or_stop(work), None);
    assert_eq!((runtime.changes(), device.counters().writes), (3, 3));
    assert_eq!(version_of(&device.peek_durable(0, 512), 1), 2);
    runtime.crash();
    assert!([2, 3].contains(&version_of(&device.peek(0, 512), 1)));
}

#[test]
fn the_end_drops_tasks_and_refuses_new_work() {
    let runtime = SimRuntime::new(5);
    let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
    let witness = Arc::new(());
    for _ in 0..3 {
        let (witness, runtime_too) = (witness.clone(), runtime.clone());
        runtime.spawn(Box::pin(async move {
            let _held = witness;
            let _ = runtime_too.delay(Duration::from_secs(1)).await;
            std::future::pending::<()>().await;
        }));
    }
    assert!(runtime.run_until_idle());
    let in_flight = device.flush();
    assert_eq!(Arc::strong_count(&witness), 4);
    runtime.crash();
    assert_eq!((Arc::strong_count(&witness), Arc::strong_count(&runtime)), (1, 1));
    let cancelled = |future: IoFuture<()>| {
        let next = SimRuntime::new(0);
        next.block_on(future).expect_err("cancelled").kind == IoErrorKind::Cancelled
    };
    assert!(cancelled(in_flight) && cancelled(device.flush()) && cancelled(runtime.delay(Duration::ZERO)));
}

#[test]
fn time_passes_only_when_nothing_else_can() {
    let runtime = SimRuntime::timed(9);
    let order = Arc::new(Mutex::new(Vec::new()));
    for millis in [30, 10, 20] {
        let (order, clock) = (order.clone(), runtime.clone());
        runtime.spawn(Box::pin(async move {
            clock.delay(Duration::from_millis(millis)).await.expect("delay");
            order.lock().push((millis, clock.now()));
        }));
    }
    runtime.run_for(Duration::from_millis(25));
    let expected = [(10, Duration::from_millis(10)), (20, Duration::from_millis(20))];
    assert_eq!(*order.lock(), expected);
    assert_eq!(runtime.now(), Duration::from_millis(25));
    runtime.crash();
}

#[test]
fn jobs_run_and_answer() {
    for seed in 0..50 {
        let runtime = SimRuntime::new(seed);
        let sum = runtime.block_on(async {
            let jobs: Vec<_> = (0..10u64).map(|n| compute(&*runtime, move || n * n)).collect();
            let mut sum = 0;
            for job in jobs {
                sum += job.await.expect("the runtime lives");
            }
            sum
        });
        assert_eq!(sum, 285);
    }
}

#[test]
fn faults_are_told_and_a_failed_write_may_have_happened() {
    let mut seen = [false; 2];
    for seed in 0..50 {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::new(&runtime, "disk", 1 << 20, 4096);
        device.fail_range(IoOp::Write, 0..4096, IoErrorKind::Io, 1);
        let kind = |result: Result<(), crate::IoError>| result.map_err(|error| error.kind);
        assert_eq!(kind(runtime.block_on(device.write(0, stamped(1, 8), FUA))), Err(IoErrorKind::Io));
        seen[usize::from(device.peek(0, 512)[0] == 1)] = true;
        device.write(4096, stamped(2, 8), PLAIN);
        device.fail_next(IoOp::Flush, IoErrorKind::Io);
        assert_eq!(kind(runtime.block_on(device.flush())), Err(IoErrorKind::Io));
        assert_eq!(device.peek_durable(4096, 1), [0]);
        let in_flight = device.write_zeroes(0, 4096, ZeroFlags::default());
        device.set_gone(true);
        assert_eq!(kind(runtime.block_on(in_flight)), Err(IoErrorKind::Gone));
        assert_eq!(kind(runtime.block_on(device.discard(0, 4096))), Err(IoErrorKind::Gone));
        device.set_gone(false);
        assert_eq!(kind(runtime.block_on(device.discard(0, 4096))), Ok(()));
        assert_eq!(kind(runtime.block_on(device.discard(0, 512))), Err(IoErrorKind::Unaligned));
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn bits_flip_and_stray_bytes_land() {
    let runtime = SimRuntime::new(2);
    let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
    runtime.block_on(device.write(8192, stamped(3, 8), PLAIN)).expect("write");
    device.corrupt(8192, 4096, &mut Rng::new(1));
    assert_ne!(device.peek(8192, 4096), *stamped(3, 8));
    device.poke(8192, &stamped(4, 8));
    runtime.crash();
    assert_eq!(device.peek(8192, 4096), *stamped(4, 8));
}

#[test]
fn a_discard_may_leave_garbage() {
    let runtime = SimRuntime::new(2);
    let options = SimDeviceOptions { discard_zeroes: false, ..SimDeviceOptions::default() };
    let device = SimDevice::with_options(&runtime, "disk", 1 << 20, options);
    runtime.block_on(device.write(0, stamped(3, 8), PLAIN)).expect("write");
    runtime.block_on(device.discard(0, 4096)).expect("discard");
    let read = runtime.block_on(device.read(0, IoBuf::new(4096))).expect("read");
    assert!(read[..] != *stamped(3, 8) && read.iter().any(|&byte| byte != 0));
    assert_eq!(device.peek(4096, 512), [0; 512]);
    let extents = runtime.block_on(device.extents(0, 1 << 20)).expect("extents");
    assert_eq!((extents[0].len, extents[1].hole), (4096, true));
}

fn panic_of(run: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(AssertUnwindSafe(run)).expect_err("panics");
    panic.downcast_ref::<String>().expect("with a message").clone()
}

#[test]
fn a_deadlock_and_a_livelock_tell_their_seed() {
    let message = panic_of(|| SimRuntime::new(77).block_on(std::future::pending::<()>()));
    assert!(message.contains("seed 77") && message.contains("deadlock"), "{message}");
    let options = SimOptions { steps_max: 1000, ..SimOptions::default() };
    let runtime = SimRuntime::with_options(78, options);
    let message = panic_of(|| {
        runtime.block_on(async {
            loop {
                let _ = runtime.delay(Duration::from_secs(1)).await;
            }
        })
    });
    assert!(message.contains("seed 78") && message.contains("no end"), "{message}");
}
