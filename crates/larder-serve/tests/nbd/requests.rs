//! Requests and their replies, byte by byte.

use crate::common::{COMMAND_CACHE, Late, MIB, serve, serve_ram};
use larder_device::{
    BlockDevice, IoBuf, IoErrorKind, IoOp, WriteFlags,
    driver::block_on,
    faulty::Faulty,
    nbd::proto::{chunk, command, command_flag as flag, errno},
    ram::RamDevice,
};
use larder_serve::nbd::{RequestMemory, ServerOptions};
use std::sync::Arc;

#[test]
fn every_command_does_what_it_says() {
    let (served, ram) = serve_ram(4);
    let mut raw = served.raw();
    raw.go(false);
    raw.request(command::WRITE, flag::FUA, 1, 4096, 1024, &[7; 1024]);
    assert_eq!((raw.reply().error, ram.snapshot()[4096..5120].to_vec()), (0, vec![7; 1024]));
    raw.request(command::READ, 0, 2, 4096, 512, &[]);
    assert_eq!((raw.reply().cookie, raw.take(512)), (2, vec![7; 512]));
    raw.request(command::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, 3, 4096, 512, &[]);
    assert_eq!((raw.reply().error, ram.snapshot()[4096..5120].iter().filter(|&&b| b == 7).count()), (0, 512));
    raw.request(command::TRIM, flag::FUA, 4, 4096, 1024, &[]);
    assert_eq!((raw.reply().error, ram.snapshot()[4096..5120].to_vec()), (0, vec![0; 1024]));
    raw.request(command::WRITE_ZEROES, flag::FAST_ZERO, 5, 0, 4 << 20, &[]);
    assert_eq!(raw.reply().error, 0);
    raw.request(command::FLUSH, 0, 6, 0, 0, &[]);
    assert_eq!((raw.reply().cookie, served.server.stats().errors), (6, 0));
    raw.request(command::DISC, 0, 7, 0, 0, &[]);
    assert!(raw.is_closed());
    let stats = served.server.stats();
    assert_eq!((stats.requests, stats.read_bytes, stats.written_bytes), (6, 512, 1024));
}

#[test]
fn refused_requests_leave_the_connection_in_order() {
    let (served, _) = serve_ram(1);
    let mut raw = served.raw();
    raw.go(false);
    let mut refused = |command, flags, offset, len: u32, payload: usize| {
        raw.request(command, flags, 9, offset, len, &vec![1; payload]);
        raw.reply().error
    };
    assert_eq!(refused(command::READ, 0, MIB, 512, 0), errno::EINVAL);
    assert_eq!(refused(command::WRITE, 0, MIB - 512, 1024, 1024), errno::ENOSPC);
    assert_eq!(refused(command::WRITE, 0, 0, 33 << 20, 33 << 20), errno::ENOSPC);
    assert_eq!(refused(command::WRITE, 0, 1, 512, 512), errno::EINVAL);
    assert_eq!(refused(command::READ, flag::DF, 0, 512, 0), errno::EINVAL, "DF needs structured replies");
    assert_eq!(refused(COMMAND_CACHE, 0, 0, 512, 0), errno::EINVAL);
    assert_eq!(refused(command::BLOCK_STATUS, 0, 0, 512, 0), errno::EINVAL);
    assert_eq!(refused(command::FLUSH, 0, 0, 0, 0), 0);
    assert_eq!(served.server.stats().errors, 7);
    raw.request(command::WRITE, 0, 1, 0, u32::MAX, &[]);
    assert!(raw.is_closed(), "a payload too long to skip");
}

#[test]
fn a_read_only_export_refuses_writes() {
    let served = serve(Arc::new(RamDevice::new("ram", MIB, 512).read_only()), ServerOptions::default());
    let mut raw = served.raw();
    raw.go(false);
    for (command, payload) in [(command::WRITE, 512), (command::TRIM, 0), (command::WRITE_ZEROES, 0)] {
        raw.request(command, 0, 1, 0, 512, &vec![1; payload]);
        assert_eq!(raw.reply().error, errno::EPERM);
    }
}

#[test]
fn structured_reads_leave_zeroes_out() {
    let (served, ram) = serve_ram(4);
    block_on(ram.write(MIB, IoBuf::copy_of(&[5; 65536]).freeze(), WriteFlags::default())).expect("written");
    let mut raw = served.raw();
    raw.go(true);
    raw.request(command::READ, 0, 1, 0, 2 << 20, &[]);
    let mut image = vec![9; 2 << 20];
    let mut data_bytes = 0;
    loop {
        let (flags, kind, cookie, data) = raw.chunk();
        assert_eq!(cookie, 1);
        let at = u64::from_be_bytes(data[..8].try_into().expect("8 bytes")) as usize;
        match kind {
            chunk::OFFSET_DATA => {
                image[at..at + data.len() - 8].copy_from_slice(&data[8..]);
                data_bytes += data.len() - 8;
            }
            chunk::OFFSET_HOLE => {
                let len = u32::from_be_bytes(data[8..12].try_into().expect("4 bytes")) as usize;
                image[at..at + len].fill(0);
            }
            other => panic!("a chunk of type {other}"),
        }
        if flags & chunk::FLAG_DONE != 0 {
            break;
        }
    }
    assert!(image == ram.snapshot()[..2 << 20]);
    assert!(data_bytes < 1 << 20, "{data_bytes} bytes of data for one stripe");
    raw.request(command::READ, flag::DF, 2, 0, 2 << 20, &[]);
    let (flags, kind, _, data) = raw.chunk();
    assert_eq!((flags, kind, data.len()), (chunk::FLAG_DONE, chunk::OFFSET_DATA, (2 << 20) + 8));
}

#[test]
fn block_status_tells_holes() {
    let (served, ram) = serve_ram(4);
    block_on(ram.write(MIB, IoBuf::copy_of(&[5; 65536]).freeze(), WriteFlags::default())).expect("written");
    let mut raw = served.raw();
    raw.go(true);
    for (flags, at_least) in [(0, 3), (flag::REQ_ONE, 1)] {
        raw.request(command::BLOCK_STATUS, flags, 1, 0, 4 << 20, &[]);
        let (done, kind, _, data) = raw.chunk();
        assert_eq!((done, kind, &data[..4]), (chunk::FLAG_DONE, chunk::BLOCK_STATUS, &1_u32.to_be_bytes()[..]));
        let extents: Vec<(u32, u32)> = data[4..]
            .chunks(8)
            .map(|e| (u32::from_be_bytes(e[..4].try_into().unwrap()), u32::from_be_bytes(e[4..].try_into().unwrap())))
            .collect();
        assert_eq!(extents[0], (1 << 20, 3));
        assert_eq!(extents.len(), at_least, "{extents:?}");
    }
}

#[test]
fn device_errors_reach_the_client_as_numbers_and_words() {
    let faulty = Arc::new(Faulty::new(RamDevice::new("ram", MIB, 512)));
    let served = serve(faulty.clone(), ServerOptions::default());
    let (mut simple, mut structured) = (served.raw(), served.raw());
    simple.go(false);
    structured.go(true);
    for (kind, error) in [
        (IoErrorKind::Io, errno::EIO),
        (IoErrorKind::NoSpace, errno::ENOSPC),
        (IoErrorKind::Quota, errno::ENOSPC),
        (IoErrorKind::Corrupt, errno::EIO),
        (IoErrorKind::Unsupported, errno::ENOTSUP),
    ] {
        faulty.plan().fail_next(IoOp::Read, kind);
        simple.request(command::READ, 0, 1, 0, 512, &[]);
        assert_eq!(simple.reply().error, error);
        faulty.plan().fail_next(IoOp::Read, kind);
        structured.request(command::READ, 0, 1, 0, 512, &[]);
        let (flags, of, _, data) = structured.chunk();
        assert_eq!((flags, of), (chunk::FLAG_DONE, chunk::ERROR));
        assert_eq!(data[..4], error.to_be_bytes());
        assert!(String::from_utf8_lossy(&data[6..]).contains("read of 512 bytes"), "{data:?}");
    }
}

#[test]
fn replies_go_out_as_requests_complete() {
    let late = Late::new(Arc::new(RamDevice::new("ram", MIB, 512)), 1);
    let served = serve(late.clone(), ServerOptions::default());
    let mut raw = served.raw();
    raw.go(false);
    late.hold(true);
    for cookie in 0..64 {
        raw.request(command::READ, 0, cookie, 0, 512, &[]);
    }
    crate::common::eventually("64 requests in the device", || late.waiting() == 64);
    late.hold(false);
    let order: Vec<u64> = (0..64)
        .map(|_| {
            let cookie = raw.reply().cookie;
            raw.take(512);
            cookie
        })
        .collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..64).collect::<Vec<u64>>());
    assert_ne!(order, sorted, "the device answers in another order");
}

#[test]
fn what_a_connection_holds_is_bounded() {
    let late = Late::new(Arc::new(RamDevice::new("ram", 64 * MIB, 512)), 2);
    // A half of the common half, and a quarter of its own: 1 MiB, and 128 KiB for the requests.
    let memory = Arc::new(RequestMemory::new((2 << 20) + (256 << 10), 2));
    let options = ServerOptions { memory, requests_in_flight_max: 16, ..Default::default() };
    let served = serve(late.clone(), options);
    late.hold(true);
    let mut raw = served.raw();
    raw.go(false);
    for cookie in 0..64 {
        raw.request(command::READ, 0, cookie, 0, 256 << 10, &[]);
    }
    crate::common::eventually("the limit of bytes", || late.waiting() == 4);
    let mut small = served.raw();
    small.go(false);
    for cookie in 0..64 {
        small.request(command::FLUSH, 0, cookie, 0, 0, &[]);
    }
    crate::common::eventually("the limit of requests", || late.waiting() == 4 + 16);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(late.waiting(), 20, "no request beyond the limits begins");
    late.hold(false);
    // The replies are more than the socket takes: unread bytes must not be in memory.
    for _ in 0..64 {
        assert_eq!(raw.reply().error, 0);
        raw.take(256 << 10);
        small.reply();
    }
    // A request longer than the limit by itself is served in pieces.
    raw.request(command::READ, 0, 1, 0, 8 << 20, &[]);
    assert_eq!(raw.reply().error, 0);
    raw.take(8 << 20);
}
