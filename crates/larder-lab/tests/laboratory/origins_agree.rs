//! Two models of the same media: the slow device (`larder_device::throttled`), and sim's origin. On
//! the same requests, one at a time, they have the same answers.
//!
//! It leaves out queues of several requests, which the two keep by disciplines of their own.

use larder_device::{
    BlockDevice, IoBuf, Runtime, WriteFlags,
    ram::RamDevice,
    sim::{Schedule, SimOptions, SimRuntime},
    throttled::{Profile as Throttle, Throttled},
};
use larder_sim::origin::{OriginModel, OriginRequest, RequestKind, profile::OriginProfile};

const SIZE: u64 = 1 << 40;
const REQUESTS: u64 = 400;

/// Mixes a number by SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns random and sequential requests, a third of them writes.
fn requests() -> Vec<OriginRequest> {
    let mut next = 0;
    (1..=REQUESTS)
        .map(|number| {
            let len = 4096 << (mixed(number) % 5);
            let offset = if number % 4 == 0 { next } else { mixed(!number) % (SIZE / 4096 - 64) * 4096 };
            next = offset + len;
            let kind = if number % 3 == 0 { RequestKind::Write } else { RequestKind::Read };
            OriginRequest { kind, offset, len }
        })
        .collect()
}

/// Returns the time of each on a device with the timing of this profile.
///
/// Writes are through its cache.
fn on_device(profile: Throttle) -> Vec<u64> {
    let options = SimOptions { schedule: Schedule::Timed, steps_max: u64::MAX, ..SimOptions::default() };
    let runtime = SimRuntime::with_options(1, options);
    let device = Throttled::new(RamDevice::new("origin", SIZE, 4096), profile, runtime.clone());
    let took = runtime.block_on(async {
        let mut took = Vec::new();
        for OriginRequest { kind, offset, len } in requests() {
            let began = runtime.now();
            match kind {
                RequestKind::Write => {
                    let data = IoBuf::zeroed(len as usize).freeze();
                    device.write(offset, data, WriteFlags { fua: true }).await.expect("written");
                }
                _ => drop(device.read(offset, IoBuf::new(len as usize)).await.expect("read")),
            }
            took.push((runtime.now() - began).as_nanos() as u64);
        }
        took
    });
    drop(device);
    runtime.kill();
    took
}

fn on_origin(name: &str) -> Vec<u64> {
    let profile = OriginProfile::named(name).expect("it is one");
    let mut origin = OriginModel::new(&profile, SIZE).expect("it is sound");
    let mut took = Vec::new();
    for request in requests() {
        let began = origin.now();
        origin.submit(request);
        while origin.in_flight() > 0 && origin.step() {}
        took.push(origin.now() - began);
    }
    took
}

#[test]
fn both_models_of_a_medium_take_as_long() {
    for (throttle, name) in [
        (Throttle::Hdd7200, "hdd-7200"),
        (Throttle::Raid5Hdd7200, "raid5-7200"),
        (Throttle::SataSsd, "sata-ssd"),
        (Throttle::Nvme, "nvme-ssd"),
    ] {
        let reads_only = matches!(throttle, Throttle::SataSsd | Throttle::Nvme);
        let (device, origin) = (on_device(throttle), on_origin(name));
        // A flash drive's write is durable at once here, because its buffer is; there it takes a
        // flush.
        let compared = requests().into_iter().zip(device.iter().zip(&origin));
        let compared: Vec<(u64, u64)> = compared
            .filter(|(request, _)| !reads_only || request.kind == RequestKind::Read)
            .map(|(_, (device, origin))| (*device, *origin))
            .collect();
        let mean = |of: fn(&(u64, u64)) -> u64| compared.iter().map(of).sum::<u64>() as f64 / compared.len() as f64;
        let (device, origin) = (mean(|pair| pair.0), mean(|pair| pair.1));
        println!("{name}: {device:.0} ns on the device, {origin:.0} ns in the model");
        assert!((origin / device - 1.0).abs() < 0.02, "{name}: {device:.0} ns and {origin:.0} ns");
    }
}
