//! The client against the server: a seeded model of many requests in flight over two connections.

use crate::common::{Late, MIB, serve, serve_ram};
use larder_device::{
    BlockDevice, IoBuf, IoErrorKind, IoFuture, IoOp, WriteFlags, ZeroFlags,
    driver::block_on,
    faulty::Faulty,
    nbd::NbdDevice,
    ram::RamDevice,
    rng::Rng,
    uri::{OpenMode, open_device},
};
use larder_serve::nbd::{RequestMemory, ServerOptions};
use std::sync::Arc;

const SECTOR: usize = 512;

/// Runs rounds of concurrent requests on disjoint ranges, and compares with the model after each.
fn model_run(devices: &[Arc<NbdDevice>], size: usize, seed: u64, rounds: usize) {
    let mut rng = Rng::new(seed);
    let mut model = vec![0_u8; size];
    let slot_bytes = 64 << 10;
    for round in 0..rounds {
        let mut slots: Vec<usize> = (0..size / slot_bytes).collect();
        rng.shuffle(&mut slots);
        let mut done: Vec<IoFuture<()>> = Vec::new();
        let mut reads = Vec::new();
        for slot in slots.into_iter().take(24) {
            let device = &devices[rng.index(devices.len())];
            let at = slot * slot_bytes + rng.index(64) * SECTOR;
            let len = (1 + rng.index(64)) * SECTOR;
            let offset = at as u64;
            match rng.below(6) {
                0 | 1 => {
                    let mut data = IoBuf::new(len);
                    rng.fill(&mut data);
                    model[at..at + len].copy_from_slice(&data);
                    done.push(device.write(offset, data.freeze(), WriteFlags { fua: rng.chance(1, 4) }));
                }
                2 => {
                    model[at..at + len].fill(0);
                    let flags = ZeroFlags { fua: rng.chance(1, 2), no_hole: rng.chance(1, 2), fast_only: false };
                    done.push(device.write_zeroes(offset, len as u64, flags));
                }
                3 => {
                    model[at..at + len].fill(0);
                    done.push(device.discard(offset, len as u64));
                }
                4 => done.push(device.flush()),
                _ => reads.push((at, device.read(offset, IoBuf::new(len)))),
            }
        }
        for future in done {
            block_on(future).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        }
        for (at, read) in reads {
            let data = block_on(read).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            assert!(data[..] == model[at..at + data.len()], "seed {seed}, round {round}: wrong bytes at {at}");
        }
    }
    let all = block_on(devices[0].read(0, IoBuf::new(size))).expect("read");
    assert!(all[..] == model[..], "seed {seed}: the end differs");
}

#[test]
fn two_connections_agree_with_a_model() {
    for seed in 0..6 {
        let (served, _) = serve_ram(4);
        model_run(&[served.connect(), served.connect()], 4 << 20, seed, 40);
        assert_eq!(served.server.stats().errors, 0);
    }
}

#[test]
fn a_late_device_agrees_with_a_model_too() {
    for seed in 0..6 {
        let late = Late::new(Arc::new(RamDevice::new("ram", 4 * MIB, 512)), seed);
        let options = ServerOptions { memory: Arc::new(RequestMemory::new(256 << 10, 2)), ..Default::default() };
        let served = serve(late, options);
        model_run(&[served.connect(), served.connect()], 4 << 20, seed, 40);
    }
}

#[test]
fn long_requests_are_split() {
    let options = ServerOptions { request_bytes_max: 64 << 10, ..Default::default() };
    let ram = Arc::new(RamDevice::new("ram", 16 * MIB, 512));
    let served = serve(ram.clone(), options);
    let device = served.connect();
    let mut data = IoBuf::new(3 << 20);
    Rng::new(1).fill(&mut data);
    let data = data.freeze();
    block_on(device.write(512, data.clone(), WriteFlags { fua: true })).expect("written");
    assert!(ram.snapshot()[512..512 + data.len()] == data[..]);
    let back = block_on(device.read(512, IoBuf::new(3 << 20))).expect("read");
    assert!(back[..] == data[..]);
    assert_eq!(served.server.stats().requests, 96);
}

#[test]
fn errors_are_mapped_and_ranges_checked() {
    let faulty = Arc::new(Faulty::new(RamDevice::new("ram", MIB, 512)));
    let served = serve(faulty.clone(), ServerOptions::default());
    let device = served.connect();
    faulty.plan().fail_next(IoOp::Flush, IoErrorKind::Io);
    assert_eq!(block_on(device.flush()).expect_err("the server takes flushes").kind, IoErrorKind::Io);
    assert_eq!((device.info().size_bytes, device.info().sector_bytes), (MIB, 512));
    for (fault, seen) in [
        (IoErrorKind::Io, IoErrorKind::Io),
        (IoErrorKind::NoSpace, IoErrorKind::NoSpace),
        (IoErrorKind::Unsupported, IoErrorKind::Unsupported),
        (IoErrorKind::Corrupt, IoErrorKind::Io),
    ] {
        faulty.plan().fail_next(IoOp::Write, fault);
        let error = block_on(device.write(0, IoBuf::zeroed(512).freeze(), WriteFlags::default())).expect_err("failed");
        assert_eq!((error.kind, error.op, error.len), (seen, IoOp::Write, 512));
    }
    let kind = |result: Result<IoBuf, larder_device::IoError>| result.expect_err("refused").kind;
    assert_eq!(kind(block_on(device.read(MIB, IoBuf::new(512)))), IoErrorKind::OutOfRange);
    assert_eq!(kind(block_on(device.read(1, IoBuf::new(512)))), IoErrorKind::Unaligned);
}

#[test]
fn what_is_in_flight_fails_when_the_server_goes() {
    let late = Late::new(Arc::new(RamDevice::new("ram", MIB, 512)), 1);
    let options = ServerOptions { shutdown_timeout: std::time::Duration::from_millis(50), ..Default::default() };
    let served = serve(late.clone(), options);
    let device = served.connect();
    late.hold(true);
    let reads: Vec<_> = (0..20).map(|_| device.read(0, IoBuf::new(512))).collect();
    crate::common::eventually("in the device", || late.waiting() == 20);
    served.server.shutdown();
    for read in reads {
        assert_eq!(block_on(read).expect_err("gone").kind, IoErrorKind::Gone);
    }
    late.hold(false);
}

#[test]
fn devices_open_by_uri() {
    let (served, _) = serve_ram(1);
    let opened = open_device(&served.uri(), OpenMode::default()).expect("opened");
    assert_eq!(opened.device.info().size_bytes, MIB);
    assert_eq!(opened.canonical_uri, served.uri());
    let again = open_device(&opened.canonical_uri, OpenMode { read_only: true, ..Default::default() }).expect("again");
    assert_eq!(again.identity, opened.identity);
    let refused = block_on(again.device.write(0, IoBuf::zeroed(512).freeze(), WriteFlags::default()));
    assert_eq!(refused.expect_err("read-only").kind, IoErrorKind::ReadOnly);
    let wrong = NbdDevice::connect(&served.uri().replace("/disk", "/other")).map(drop).expect_err("no such export");
    assert!(wrong.to_string().contains("no export of this name"), "{wrong}");
}
