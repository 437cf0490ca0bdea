//! Faults without an error, delays, and a full device.

use super::{FUA, PLAIN, stamped, version_of};
use crate::{
    BlockDevice, IoBuf, IoErrorKind, IoFuture, IoOp, ZeroFlags,
    rng::Rng,
    sim::{Schedule, SimDevice, SimDeviceOptions, SimOptions, SimRuntime},
};
use std::{sync::Arc, time::Duration};

fn disk(runtime: &Arc<SimRuntime>) -> Arc<SimDevice> {
    SimDevice::new(runtime, "disk", 1 << 20, 512)
}

fn version(device: &SimDevice, offset: u64) -> u64 {
    version_of(&device.peek(offset, 512), 0)
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_a_lost_one_nowhere() {
    for flags in [PLAIN, FUA] {
        let runtime = SimRuntime::new(1);
        let device = disk(&runtime);
        let write =
            |offset, version| runtime.block_on(device.write(offset, stamped(version, 2), flags)).expect("write");
        write(0, 1);
        write(8192, 2);
        device.misdirect_next_write(8192);
        device.lose_next_write();
        runtime.block_on(device.flush()).expect("flush");
        write(0, 3);
        assert_eq!((version(&device, 0), version(&device, 8192), version(&device, 8704)), (1, 3, 3));
        write(0, 4);
        assert_eq!((version(&device, 0), version(&device, 8192)), (1, 3));
        write(0, 5);
        assert_eq!((version(&device, 0), version(&device, 512), version(&device, 1024)), (5, 5, 0));
        // Past the end: as far as it goes.
        device.misdirect_next_write(1 << 30);
        write(0, 6);
        assert_eq!((version(&device, (1 << 20) - 1024), version(&device, 0)), (6, 5));
        device.lose_next_write();
        device.clear_mischief();
        write(0, 7);
        assert_eq!(version(&device, 0), 7);
    }
}

#[test]
fn a_misread_harms_one_read_and_not_the_medium() {
    let runtime = SimRuntime::new(1);
    let device = disk(&runtime);
    runtime.block_on(device.write(0, stamped(1, 8), FUA)).expect("write");
    device.misread_next(&mut Rng::new(5));
    let read = || runtime.block_on(device.read(0, IoBuf::new(4096))).expect("read");
    let (first, second) = (read(), read());
    let flipped: u32 = first.iter().zip(&second[..]).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert!((1..=8).contains(&flipped), "{flipped} bits");
    assert!(second[..] == *stamped(1, 8) && device.peek(0, 4096) == *stamped(1, 8));
}

/// Returns whether `late` has ended when `quick` has.
fn both(runtime: &SimRuntime, late: IoFuture<()>, quick: Vec<IoFuture<()>>) -> bool {
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (told, told_late) = (over.clone(), over.clone());
    use crate::Runtime;
    runtime.spawn(Box::pin(async move {
        late.await.expect("late");
        told_late.store(true, std::sync::atomic::Ordering::SeqCst);
    }));
    runtime.block_on(async move {
        for quick in quick {
            quick.await.expect("quick");
        }
        told.load(std::sync::atomic::Ordering::SeqCst)
    })
}

#[test]
fn a_delayed_operation_is_overtaken_and_still_arrives() {
    for schedule in [Schedule::Chaos, Schedule::Timed] {
        for seed in 0..100 {
            let options = SimOptions { schedule, ..SimOptions::default() };
            let runtime = SimRuntime::with_options(seed, options);
            let device = disk(&runtime);
            device.delay_next(Some(IoOp::Write), Duration::from_secs(1));
            let quick = vec![device.flush(), device.discard(4096, 4096)];
            let late = device.write(0, stamped(1, 1), PLAIN);
            let quick = quick.into_iter().chain((1..20).map(|n| device.write(n * 512, stamped(n, 1), PLAIN))).collect();
            assert!(!both(&runtime, late, quick), "seed {seed}: not overtaken");
            assert_eq!(version(&device, 0), 0, "seed {seed}");
            // Nothing else is left, so it happens now.
            assert!(runtime.run_until_idle());
            assert_eq!(version(&device, 0), 1, "seed {seed}");
            assert!(crate::Runtime::now(&*runtime) >= Duration::from_secs(1), "seed {seed}");
            runtime.crash();
        }
    }
}

#[test]
fn a_delayed_operation_is_in_flight_at_a_crash() {
    let mut seen = [0; 2];
    for seed in 0..60 {
        let runtime = SimRuntime::new(seed);
        let device = disk(&runtime);
        device.delay_next(None, Duration::from_secs(1));
        let late = device.write(0, stamped(1, 1), PLAIN);
        runtime.block_on(device.flush()).expect("flush");
        assert_eq!(runtime.capture().choices(), 2);
        runtime.crash();
        drop(late);
        seen[version(&device, 0) as usize] += 1;
    }
    assert!(seen[0] > 10 && seen[1] > 5, "{seen:?}");
}

#[test]
fn a_full_device_takes_what_needs_no_space() {
    for discard_zeroes in [true, false] {
        for seed in 0..40 {
            let runtime = SimRuntime::new(seed);
            let options = SimDeviceOptions { discard_zeroes, ..SimDeviceOptions::default() };
            let device = SimDevice::with_options(&runtime, "disk", 1 << 20, options);
            let write = |offset, version| {
                runtime.block_on(device.write(offset, stamped(version, 16), PLAIN)).map_err(|error| error.kind)
            };
            assert_eq!(write(8192, 1), Ok(()));
            device.set_full(true);
            assert_eq!(write(8192, 2), Ok(()));
            assert_eq!(write(0, 3), Err(IoErrorKind::NoSpace));
            // Half of it has room and may have been written; the other half cannot have been.
            assert_eq!(write(12288, 4), Err(IoErrorKind::NoSpace));
            assert!([2, 4].contains(&version(&device, 12288)));
            assert_eq!((version(&device, 0), version(&device, 16384)), (0, 0));
            runtime.block_on(device.write_zeroes(0, 4096, ZeroFlags::default())).expect("zeroes need no space");
            // A discarded range is free, and then needs space again.
            runtime.block_on(device.discard(8192, 8192)).expect("discard");
            assert_eq!(write(8192, 5), Err(IoErrorKind::NoSpace));
            device.set_full(false);
            assert_eq!(write(8192, 6), Ok(()));
            assert_eq!(version(&device, 8192), 6);
        }
    }
}

#[test]
fn a_device_that_was_unplugged_lost_what_was_not_flushed() {
    let mut kept = 0;
    for seed in 0..100 {
        let runtime = SimRuntime::new(seed);
        let device = disk(&runtime);
        runtime.block_on(device.write(0, stamped(1, 1), FUA)).expect("write");
        runtime.block_on(device.write(512, stamped(2, 1), PLAIN)).expect("write");
        let in_flight = device.write(1024, stamped(3, 1), PLAIN);
        device.set_gone(true);
        device.power_cycle(&mut Rng::new(seed));
        assert_eq!(runtime.block_on(in_flight).expect_err("gone").kind, IoErrorKind::Gone);
        device.set_gone(false);
        assert_eq!(version(&device, 0), 1);
        kept += version(&device, 512) / 2;
        runtime.block_on(device.flush()).expect("back");
    }
    assert!((10..90).contains(&kept), "{kept}");
}
