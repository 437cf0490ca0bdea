//! Tests of the media's timing on the simulation's clock, and of a throttled device's promises.

use super::*;
use crate::{
    ram::RamDevice,
    rng::Rng,
    sim::{SimDevice, SimRuntime},
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SIZE: u64 = 64 << 30;

fn device(profile: Profile) -> (Arc<SimRuntime>, Arc<Throttled<RamDevice>>) {
    let runtime = SimRuntime::timed(1);
    let device = Throttled::new(RamDevice::new("ram", SIZE, 512), profile, runtime.clone());
    (runtime, Arc::new(device))
}

fn random_offset(rng: &mut Rng, len: u64) -> u64 {
    rng.below(SIZE / len) * len
}

/// Runs `ops` operations at a queue depth. Returns the mean seconds between two completions.
fn pace<F>(
    runtime: &Arc<SimRuntime>,
    depth: u64,
    ops: u64,
    op: impl Fn(u64) -> F + Clone + Send + Sync + 'static,
) -> f64
where
    F: Future<Output = ()> + Send,
{
    let begin = runtime.now();
    let next = Arc::new(AtomicU64::new(0));
    let left = Arc::new(AtomicU64::new(depth));
    let (finished, all) = IoFuture::pending();
    let finished = Arc::new(Mutex::new(Some(finished)));
    for _ in 0..depth {
        let (next, left, finished, op) = (next.clone(), left.clone(), finished.clone(), op.clone());
        runtime.spawn(Box::pin(async move {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= ops {
                    break;
                }
                op(number).await;
            }
            if left.fetch_sub(1, Relaxed) == 1 {
                finished.lock().take().expect("once").complete(Ok(()));
            }
        }));
    }
    runtime.block_on(all).expect("all are over");
    (runtime.now() - begin).as_secs_f64() / ops as f64
}

fn reads(
    profile: Profile,
    depth: u64,
    ops: u64,
    len: usize,
    place: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static,
) -> f64 {
    let (runtime, device) = device(profile);
    pace(&runtime, depth, ops, move |number| {
        let future = device.read(place(number), IoBuf::new(len));
        async move { drop(future.await.expect("read")) }
    })
}

fn writes(
    profile: Profile,
    depth: u64,
    ops: u64,
    len: usize,
    place: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static,
) -> f64 {
    let (runtime, device) = device(profile);
    let data = IoBuf::zeroed(len).freeze();
    pace(&runtime, depth, ops, move |number| {
        let future = device.write(place(number), data.clone(), WriteFlags::default());
        async move { future.await.expect("write") }
    })
}

fn random(len: u64) -> impl Fn(u64) -> u64 + Clone + Send + Sync + 'static {
    move |number| random_offset(&mut Rng::new(number), len)
}

#[track_caller]
fn between(what: &str, value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{what}: {value} is not in {low}..{high}");
}

#[test]
fn a_disk_reads_at_random_in_about_13_ms_and_faster_with_a_queue() {
    between("random read, depth 1, ms", 1e3 * reads(Profile::Hdd7200, 1, 1000, 4096, random(4096)), 12.0, 13.5);
    // 32 queued requests in the drive: about 2.5 times the rate of one.
    between("random read, depth 32, ms", 1e3 * reads(Profile::Hdd7200, 32, 2000, 4096, random(4096)), 3.0, 7.0);
}

#[test]
fn a_disk_streams_at_media_rate() {
    let megabytes = |seconds: f64| (128 << 10) as f64 / seconds / 1e6;
    for depth in [1, 8] {
        let outer = reads(Profile::Hdd7200, depth, 2000, 128 << 10, |number| number * (128 << 10));
        between("outer read stream, MB/s", megabytes(outer), 165.0, 181.0);
        let inner = reads(Profile::Hdd7200, depth, 2000, 128 << 10, |number| SIZE - (2000 - number) * (128 << 10));
        between("inner read stream, MB/s", megabytes(inner), 90.0, 101.0);
    }
    let stream = writes(Profile::Hdd7200, 1, 4000, 128 << 10, |number| number * (128 << 10));
    between("outer write stream, MB/s", megabytes(stream), 160.0, 190.0);
}

#[test]
fn a_disk_takes_writes_into_its_cache_and_drains_them_sorted() {
    between("short burst, ms", 1e3 * writes(Profile::Hdd7200, 1, 1000, 4096, random(4096)), 0.05, 0.3);
    between("sustained, ms", 1e3 * writes(Profile::Hdd7200, 1, 12_000, 4096, random(4096)), 2.0, 6.5);
}

#[test]
fn a_flush_waits_for_the_drain_and_keeps_its_promise() {
    let runtime = SimRuntime::timed(4);
    let medium = SimDevice::new(&runtime, "disk", 1 << 30, 512);
    let device = Throttled::new(medium.clone(), Profile::Hdd7200, runtime.clone());
    let mut rng = Rng::new(2);
    let offsets: Vec<u64> = (0..100).map(|_| rng.below((1 << 30) / 4096) * 4096).collect();
    runtime.block_on(async {
        for &offset in &offsets {
            device.write(offset, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default()).await.expect("write");
        }
        let begin = runtime.now();
        device.flush().await.expect("flush");
        let millis = (runtime.now() - begin).as_secs_f64() * 1e3;
        between("flush of 100 random writes, ms", millis, 300.0, 900.0);
        let begin = runtime.now();
        device.flush().await.expect("flush");
        assert!(runtime.now() - begin < Duration::from_millis(1), "nothing was left to drain");
        let begin = runtime.now();
        let data = IoBuf::copy_of(&[8; 4096]).freeze();
        device.write(512 << 20, data, WriteFlags { fua: true }).await.expect("write");
        assert!(runtime.now() - begin > Duration::from_millis(1), "a FUA write goes to the medium");
    });
    runtime.crash();
    assert!(offsets.iter().all(|&offset| offset == 512 << 20 || medium.peek(offset, 4096) == [7; 4096]));
    assert_eq!(medium.peek(512 << 20, 4096), [8; 4096]);
}

#[test]
fn a_raid_spreads_reads_and_pays_for_small_writes() {
    let read = 1e3 * reads(Profile::Raid5Hdd7200, 1, 500, 4096, random(4096));
    between("random read, ms", read, 12.0, 13.5);
    let deep = 1e3 * reads(Profile::Raid5Hdd7200, 32, 2000, 4096, random(4096));
    between("random read, depth 32, ms", deep, 1.0, 3.0);
    let write = 1e3 * writes(Profile::Raid5Hdd7200, 1, 500, 4096, random(4096));
    between("random write, ms", write, read * 1.1, 30.0);
    let deep_write = 1e3 * writes(Profile::Raid5Hdd7200, 32, 4000, 4096, random(4096));
    between("random write, depth 32, ms", deep_write, deep * 1.5, 15.0);
    let megabytes = |seconds: f64| (1 << 20) as f64 / seconds / 1e6;
    let stream = megabytes(reads(Profile::Raid5Hdd7200, 4, 1000, 1 << 20, |number| number << 20));
    between("read stream, MB/s", stream, 400.0, 905.0);
    let stream = megabytes(writes(Profile::Raid5Hdd7200, 4, 1000, 1 << 20, |number| number << 20));
    between("write stream, MB/s", stream, 400.0, 905.0);
}

#[test]
fn flash_drives_keep_to_their_data_sheets() {
    for (profile, read, deep, write, stream) in
        [(Profile::SataSsd, 0.100, 98_000.0, 0.024, 550.0), (Profile::Nvme, 0.068, 450_000.0, 0.020, 3400.0)]
    {
        let name = profile.name();
        between(name, 1e3 * reads(profile, 1, 1000, 4096, random(4096)), read * 0.95, read * 1.1);
        between(name, 1.0 / reads(profile, 128, 20_000, 4096, random(4096)), deep * 0.9, deep * 1.12);
        between(name, 1e3 * writes(profile, 1, 1000, 4096, random(4096)), write * 0.9, write * 1.1);
        let rate = (1 << 20) as f64 / reads(profile, 8, 1000, 1 << 20, |number| number << 20) / 1e6;
        between(name, rate, stream * 0.95, stream * 1.01);
    }
}

#[test]
fn any_order_of_the_scheduler_ends_every_request() {
    for seed in 0..60 {
        let runtime = SimRuntime::new(seed);
        let medium = SimDevice::new(&runtime, "disk", 1 << 30, 512);
        let profile = Profile::ALL[seed as usize % 4];
        let device = Throttled::new(medium, profile, runtime.clone());
        let mut rng = Rng::new(seed);
        let mut ops: Vec<IoFuture<()>> = Vec::new();
        for _ in 0..200 {
            let len = 512 * (1 + rng.below(2048));
            let offset = rng.below(((1 << 30) - len) / 512) * 512;
            ops.push(match rng.below(8) {
                0..3 => device.read(offset, IoBuf::new(len as usize)).map(|result| result.map(drop)),
                3..5 => {
                    device.write(offset, IoBuf::zeroed(len as usize).freeze(), WriteFlags { fua: rng.chance(1, 4) })
                }
                5 => device.flush(),
                6 => device.discard(offset, len),
                _ => device.write_zeroes(offset, len, ZeroFlags::default()),
            });
        }
        runtime.block_on(async {
            for op in ops {
                op.await.expect("over");
            }
        });
        assert!(device.clock.state.lock().waiters.is_empty(), "seed {seed}");
    }
}

#[test]
fn names_are_checked() {
    assert_eq!(Profile::named("raid5-7200").expect("known"), Profile::Raid5Hdd7200);
    let error = Profile::named("tape").expect_err("unknown").to_string();
    assert!(Profile::ALL.iter().all(|profile| error.contains(profile.name())), "{error}");
}
