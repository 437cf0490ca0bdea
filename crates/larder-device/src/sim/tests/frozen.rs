//! Enumerated crashes: the possible outcomes, that each is met, and that the run goes on.

use super::{FUA, PLAIN, stamped, version_of};
use crate::{
    BlockDevice, IoBuf, ZeroFlags,
    rng::Rng,
    sim::{Frozen, SimDevice, SimDeviceOptions, SimRuntime},
};
use std::{collections::BTreeSet, sync::Arc};

fn sectors(device: &SimDevice, sectors: usize) -> Vec<u64> {
    device.peek(0, sectors * 512).chunks(512).map(|sector| version_of(sector, 0)).collect()
}

/// Returns every content that the devices may hold.
fn outcomes(frozen: &Frozen, devices: &[&SimDevice], count: usize) -> BTreeSet<Vec<u64>> {
    let mut found = BTreeSet::new();
    for choice in 0..frozen.choices() {
        frozen.thaw(choice);
        assert!(devices.iter().all(|device| device.unflushed_bytes() == 0));
        found.insert(devices.iter().flat_map(|device| sectors(device, count)).collect());
    }
    found
}

fn two(runtime: &Arc<SimRuntime>) -> (Arc<SimDevice>, Arc<SimDevice>) {
    (SimDevice::new(runtime, "flash", 1 << 20, 512), SimDevice::new(runtime, "origin", 1 << 20, 512))
}

#[test]
fn every_outcome_of_two_devices_is_a_choice() {
    let runtime = SimRuntime::new(1);
    let (flash, origin) = two(&runtime);
    runtime.block_on(flash.write(0, stamped(1, 2), FUA)).expect("write");
    runtime.block_on(flash.write(0, stamped(2, 2), PLAIN)).expect("write");
    runtime.block_on(origin.write(0, stamped(3, 1), PLAIN)).expect("write");
    let in_flight = flash.write(512, stamped(4, 1), PLAIN);
    let frozen = runtime.freeze();
    drop(in_flight);
    assert_eq!((frozen.choices(), frozen.choices_of_a_kill(), frozen.undecided()), (4 * 2 * 2, 2, 3));
    let found = outcomes(&frozen, &[&flash, &origin], 2);
    let mut expected = BTreeSet::new();
    for a in [1, 2] {
        for b in [1, 2, 4] {
            expected.extend([vec![a, b, 3, 0], vec![a, b, 0, 0]]);
        }
    }
    assert_eq!(found, expected);
    frozen.thaw(0);
    assert_eq!((sectors(&flash, 2), sectors(&origin, 1)), (vec![1, 1], vec![0]), "0 drops everything");
    frozen.thaw_all_kept();
    assert_eq!((sectors(&flash, 2), sectors(&origin, 1)), (vec![2, 4], vec![3]));
    // Drawn ones are among them, and vary.
    let drawn: BTreeSet<Vec<u64>> = (0..200)
        .map(|seed| {
            frozen.thaw_drawn(&mut Rng::new(seed));
            [sectors(&flash, 2), sectors(&origin, 2)].concat()
        })
        .collect();
    assert!(drawn.is_subset(&expected) && drawn.len() > 8, "{drawn:?}");
    // After a kill every completed change is there, and may still be lost.
    frozen.thaw_killed(1);
    assert_eq!((sectors(&flash, 2), sectors(&origin, 1)), (vec![2, 4], vec![3]));
    assert_eq!((flash.unflushed_bytes(), origin.unflushed_bytes()), (1536, 512));
    assert_eq!(version_of(&flash.peek_durable(0, 512), 0), 1);
}

#[test]
fn what_makes_no_difference_is_no_choice() {
    let runtime = SimRuntime::new(1);
    let (flash, origin) = two(&runtime);
    runtime.block_on(flash.write(0, stamped(1, 8), FUA)).expect("write");
    // The same again; zeroes over zeroes; a discard of nothing.
    runtime.block_on(flash.write(0, stamped(1, 8), PLAIN)).expect("write");
    runtime.block_on(origin.write_zeroes(0, 1 << 20, ZeroFlags::default())).expect("zeroes");
    runtime.block_on(flash.discard(8192, 65536)).expect("discard");
    assert_eq!(runtime.capture().choices(), 1);
    // Two of these eight sectors change.
    let mut half = stamped(1, 8).into_iobuf();
    half[1024..1536].copy_from_slice(&stamped(5, 1));
    half[3584..].copy_from_slice(&stamped(6, 1));
    runtime.block_on(flash.write(0, half.freeze(), PLAIN)).expect("write");
    let frozen = runtime.freeze();
    assert_eq!(frozen.choices(), 4);
    assert_eq!(outcomes(&frozen, &[&flash], 8).len(), 4);
}

#[test]
fn long_changes_are_torn_in_six_ways_and_zeroes_like_data() {
    let runtime = SimRuntime::new(1);
    let (flash, _origin) = two(&runtime);
    runtime.block_on(flash.write(0, stamped(1, 16), FUA)).expect("write");
    runtime.block_on(flash.discard(0, 8192)).expect("discard");
    let frozen = runtime.freeze();
    let found = outcomes(&frozen, &[&flash], 16);
    let zeroed: [fn(usize) -> bool; 6] = [|_| false, |_| true, |at| at == 0, |at| at == 15, |at| at < 8, |at| at != 8];
    let expected = zeroed.map(|zeroed| (0..16).map(|at| u64::from(!zeroed(at))).collect::<Vec<u64>>());
    assert_eq!(found, expected.into_iter().collect());
}

#[test]
fn an_atom_is_old_or_new_as_a_whole() {
    let options = SimDeviceOptions { tear_bytes: 4096, ..SimDeviceOptions::default() };
    let whole_atoms = |all: &[u64]| {
        // The change covers sectors 4 to 20: two parts of atoms, and a whole one.
        let parts = [&all[..4], &all[4..8], &all[8..16], &all[16..20], &all[20..]];
        parts.iter().all(|part| part.iter().all(|&sector| sector == part[0]))
    };
    let mut torn = 0;
    for seed in 0..300 {
        let runtime = SimRuntime::new(seed);
        let device = SimDevice::with_options(&runtime, "disk", 1 << 20, options.clone());
        runtime.block_on(device.write(0, stamped(1, 24), FUA)).expect("write");
        let in_flight = device.write(2048, stamped(2, 16), PLAIN);
        if seed % 2 == 0 {
            runtime.block_on(in_flight).expect("write");
        }
        let read = device.read(0, IoBuf::new(24 * 512));
        if seed == 0 {
            assert_eq!(runtime.capture().choices(), 8);
        }
        let read = runtime.block_on(read).expect("read");
        let read: Vec<u64> = read.chunks(512).map(|sector| version_of(sector, seed)).collect();
        assert!(whole_atoms(&read), "seed {seed}: {read:?}");
        runtime.crash();
        let left = sectors(&device, 24);
        assert!(whole_atoms(&left), "seed {seed}: {left:?}");
        torn += u32::from(left[4] != left[8] || left[8] != left[16]);
    }
    assert!(torn > 30, "{torn}");
}

#[test]
fn a_run_that_is_captured_is_the_run_that_is_stopped() {
    let work = async |device: Arc<SimDevice>| {
        for version in 1..20 {
            let at = version % 5 * 512;
            let (a, b) = (device.write(at, stamped(version, 3), PLAIN), device.write(at, stamped(version, 2), PLAIN));
            a.await.expect("write");
            b.await.expect("write");
            if version % 4 == 0 {
                device.flush().await.expect("flush");
            }
        }
    };
    let runtime = SimRuntime::new(7);
    let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
    let mut captured = Vec::new();
    runtime.stop_at_change(Some(1));
    runtime.block_on_pausing(work(device.clone()), |runtime| {
        captured.push((runtime.changes(), runtime.trace_hash(), runtime.capture()));
        runtime.stop_at_change(Some(runtime.changes() + 1));
    });
    let (changes, end) = (runtime.changes(), runtime.trace_hash());
    assert_eq!(device.counters().writes + device.counters().flushes, changes);
    runtime.crash();
    assert!(captured.len() > 20);
    for (change, trace, frozen) in captured {
        let again = SimRuntime::new(7);
        let other = SimDevice::new(&again, "disk", 1 << 20, 512);
        again.stop_at_change(Some(change));
        assert_eq!(again.block_on_or_stop(work(other.clone())), None);
        assert_eq!(again.trace_hash(), trace);
        let stopped = again.freeze();
        assert_eq!(stopped.choices(), frozen.choices());
        for choice in 0..stopped.choices().min(64) {
            stopped.thaw(choice);
            frozen.thaw(choice);
            assert_eq!(sectors(&device, 16), sectors(&other, 16));
        }
    }
    let undisturbed = SimRuntime::new(7);
    let device = SimDevice::new(&undisturbed, "disk", 1 << 20, 512);
    undisturbed.block_on(work(device));
    assert_eq!(undisturbed.trace_hash(), end, "captures change nothing");
}

#[test]
fn crashes_of_a_captured_run_are_drawn_as_if_it_had_crashed() {
    let mut met = [BTreeSet::new(), BTreeSet::new()];
    let runtime = SimRuntime::new(3);
    let device = SimDevice::new(&runtime, "disk", 1 << 20, 512);
    runtime.block_on(device.write(0, stamped(1, 1), PLAIN)).expect("write");
    let in_flight = device.write(512, stamped(2, 1), PLAIN);
    let frozen = runtime.freeze();
    drop(in_flight);
    for seed in 0..600 {
        frozen.thaw_drawn(&mut Rng::new(seed));
        met[0].insert(sectors(&device, 8));
        frozen.thaw_killed_drawn(&mut Rng::new(seed));
        let runtime = SimRuntime::new(seed);
        device.attach(&runtime);
        runtime.crash();
        met[1].insert(sectors(&device, 8));
    }
    assert_eq!(met[0], met[1]);
    assert_eq!(met[0].len() as u64, frozen.choices());
}
