//! The server over a device that notes its operations: every command with every flag.
//!
//! Sizes and places lie around each boundary of the code. Replies are simple and structured, blocks
//! have 512 and 4096 bytes. The device answers at once and later, and memory is ample and scarce.
//!
//! For each request the device saw the right operations with the right flags, in the right order
//! and before the reply. The reply is right to its last byte.

mod device;
mod oracle;

use crate::common::{COMMAND_CACHE, MIB, Raw, Served, serve};
use device::{Noted, Recorder, content};
use larder_device::{
    Extent,
    nbd::proto::{chunk, command, command_flag as flag, errno},
};
use larder_serve::nbd::{RequestMemory, ServerOptions};
use oracle::{Ask, COOKIE, REQUEST_BYTES_MAX, Session, size_of};
use std::sync::Arc;

const COMMANDS: [u16; 9] = [
    command::READ,
    command::WRITE,
    command::FLUSH,
    command::TRIM,
    COMMAND_CACHE,
    command::WRITE_ZEROES,
    command::BLOCK_STATUS,
    8,
    u16::MAX,
];
/// The sizes at which the code decides.
///
/// They are blocks, copies out of the receive buffer, reads with a query for holes, pieces, and the
/// longest request.
const BOUNDARIES: [u32; 7] = [4096, 16 << 10, 32 << 10, 64 << 10, 1 << 20, 2 << 20, REQUEST_BYTES_MAX];
/// Runs of the comb: more than one block status reply has, in less than a piece if blocks are
/// small.
const COMB_RUNS: u64 = 2600;
const COMB_FROM: u64 = MIB;

/// Returns a MiB of data, a comb of one-block runs of each state, two MiB of hole, two of data.
fn extents(block_bytes: u64) -> Vec<Extent> {
    let run = |len, hole, zero| Extent { len, hole, zero };
    let comb = (0..COMB_RUNS).map(|i| match i % 4 {
        1 => run(block_bytes, true, true),
        3 => run(block_bytes, false, true),
        _ => run(block_bytes, false, false),
    });
    let around = [run(2 * MIB, true, true), run(2 * MIB, false, false)];
    std::iter::once(run(COMB_FROM, false, false)).chain(comb).chain(around).collect()
}

fn sessions() -> Vec<Session> {
    let mut sessions = Vec::new();
    for bits in 0..16 {
        let is = |bit: u32| bits & (1 << bit) != 0;
        let block_bytes = if is(1) { 4096 } else { 512 };
        sessions.push(Session {
            structured: is(0),
            read_only: false,
            block_bytes,
            is_ample: is(2),
            is_late: is(3),
            fast_zeroes: is(1),
        });
    }
    sessions
}

fn open(session: Session) -> (Served, Arc<Recorder>, Raw) {
    let mut device = Recorder::new(session.block_bytes, extents(u64::from(session.block_bytes)), session.is_late);
    if !session.fast_zeroes {
        device = device.zeroes_slowly();
    }
    if session.read_only {
        device = device.read_only();
    }
    let device = Arc::new(device);
    let bytes = if session.is_ample { 256 << 20 } else { RequestMemory::bytes_min(1) };
    let memory = Arc::new(RequestMemory::new(bytes, 1));
    let options = ServerOptions { request_bytes_max: REQUEST_BYTES_MAX, memory, ..Default::default() };
    let served = serve(device.clone(), options);
    let mut raw = served.raw();
    raw.go(session.structured);
    (served, device, raw)
}

/// Sends a request, and checks everything about it.
fn check(session: Session, device: &Recorder, raw: &mut Raw, ask: Ask) {
    let Ask { command, flags, offset, len } = ask;
    let payload: Vec<u8> = match command {
        command::WRITE => (0..u64::from(len)).map(|at| content(at + 3)).collect(),
        _ => Vec::new(),
    };
    raw.request(command, flags, COOKIE, offset, len, &payload);
    let expected = ask.error(session, size_of(device));
    match (expected, command) {
        (Some(error), _) => ask.check_done(session, raw, error),
        (None, command::READ) => ask.check_data(session, raw, device),
        (None, command::BLOCK_STATUS) => ask.check_extents(raw, device),
        (None, _) => ask.check_done(session, raw, 0),
    }
    // Every operation was over before the reply, so it is noted by now.
    let noted = device.noted();
    match expected {
        Some(_) => assert_eq!(noted, [], "a request that is refused reaches no device"),
        None => ask.check_noted(session, &payload, &noted),
    }
    if expected.is_none() && command == command::READ && ask.leaves_zeroes_out(session, device) {
        let read: usize = noted.iter().map(|noted| if let Noted::Read(_, len) = noted { *len } else { 0 }).sum();
        assert!(read < len as usize, "zeroes are left out");
    }
}

/// Checks a request, and names it if the check fails.
fn try_it(session: Session, device: &Recorder, raw: &mut Raw, ask: Ask) {
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(session, device, raw, ask)));
    if let Err(panic) = checked {
        eprintln!("in {session:?}: {ask:?}");
        std::panic::resume_unwind(panic);
    }
}

fn lens(block_bytes: u32) -> Vec<u32> {
    let around = |at: u32| [at - block_bytes, at, at + block_bytes];
    let mut lens: Vec<u32> =
        BOUNDARIES.into_iter().flat_map(around).chain([0, 1, block_bytes, block_bytes - 1]).collect();
    lens.sort_unstable();
    lens.dedup();
    lens
}

/// Returns places for a request of `len` bytes.
///
/// They are first, at the comb and into the hole, last, past the end, and none.
fn offsets(session: Session, device: &Recorder, len: u32) -> Vec<u64> {
    let (block, size) = (u64::from(session.block_bytes), size_of(device));
    let last = size.saturating_sub(u64::from(len));
    let hole = COMB_FROM + COMB_RUNS * block;
    match len {
        0..0x2_0000 => vec![0, block, COMB_FROM, hole - block, last, last + block, 1, u64::MAX - block + 1],
        _ => vec![block, COMB_FROM + block, last, last + block],
    }
}

#[test]
fn each_command_with_each_flag_does_what_it_says_and_nothing_else() {
    for session in sessions() {
        for read_only in [false, true] {
            let session = Session { read_only, ..session };
            let (served, device, mut raw) = open(session);
            let size = size_of(&device);
            for command in COMMANDS {
                for flags in (0..64).chain([1 << 6, 1 << 15 | flag::FUA]) {
                    let (block, longer) = (session.block_bytes, (32 << 10) + session.block_bytes);
                    for (offset, len) in [(0, block), (size - u64::from(longer), longer), (size, block), (0, 0)] {
                        try_it(session, &device, &mut raw, Ask { command, flags, offset, len });
                    }
                }
            }
            drop((raw, served));
            assert_eq!(device.noted(), []);
        }
    }
}

#[test]
fn each_size_at_each_place_is_served_to_the_last_byte() {
    for session in sessions() {
        let (_served, device, mut raw) = open(session);
        for len in lens(session.block_bytes) {
            for offset in offsets(session, &device, len) {
                let of =
                    |command: u16, flags: &[u16]| flags.iter().map(move |&flags| (command, flags)).collect::<Vec<_>>();
                let mut asks = of(command::READ, &[0, flag::DF]);
                asks.extend(of(command::WRITE, &[0, flag::FUA]));
                asks.extend(of(command::TRIM, &[0, flag::FUA]));
                asks.extend(of(command::WRITE_ZEROES, &[0, flag::FUA, flag::NO_HOLE, flag::FUA | flag::FAST_ZERO]));
                asks.extend(of(command::BLOCK_STATUS, &[0, flag::REQ_ONE]));
                for (command, flags) in asks {
                    try_it(session, &device, &mut raw, Ask { command, flags, offset, len });
                }
            }
        }
    }
}

#[test]
fn reads_and_status_of_any_number_of_runs_are_whole() {
    for session in sessions().into_iter().filter(|session| session.structured) {
        let (_served, device, mut raw) = open(session);
        let block = u64::from(session.block_bytes);
        for runs in [1, 2, 3, 511, 1022, 1023, 1024, 1025, 1026, 2047, 2048, 2049, COMB_RUNS] {
            for first in [0, 1, COMB_RUNS - runs] {
                let (offset, len) = (COMB_FROM + first * block, (runs * block) as u32);
                for (command, flags) in [(command::READ, 0), (command::BLOCK_STATUS, 0), (command::READ, flag::DF)] {
                    try_it(session, &device, &mut raw, Ask { command, flags, offset, len });
                }
            }
        }
    }
}

/// Takes a structured reply that fails.
///
/// Its contents cover the bytes that were read, and its last chunk is the error.
fn take_failed(raw: &mut Raw, ask: Ask) {
    let mut contents = 0;
    loop {
        let (flags, kind, cookie, body) = raw.chunk();
        assert_eq!(cookie, COOKIE);
        match kind {
            chunk::ERROR => {
                assert_eq!((flags, &body[..4]), (chunk::FLAG_DONE, &errno::EIO.to_be_bytes()[..]));
                return assert!(contents <= 1 || !ask.has(flag::DF));
            }
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE => contents += 1,
            other => panic!("a chunk of type {other}"),
        }
        assert_eq!(flags, 0, "the error is the last");
    }
}

#[test]
fn an_error_anywhere_is_the_requests_and_the_connection_goes_on() {
    for session in sessions() {
        let (_served, device, mut raw) = open(session);
        let len = REQUEST_BYTES_MAX;
        let last = size_of(&device) - u64::from(len);
        // All of them data: the server leaves zeroes unread.
        let places = [(0, 0), (0, MIB - 512), (0, MIB), (0, u64::from(len) / 2), (last, size_of(&device) - 512)];
        for (offset, bad) in places {
            device.state().bad = bad..bad + 512;
            for (command, flags) in [(command::READ, 0), (command::READ, flag::DF), (command::WRITE, flag::FUA)] {
                let ask = Ask { command, flags, offset, len };
                let payload = vec![7; if command == command::WRITE { len as usize } else { 0 }];
                if ask.error(session, size_of(&device)).is_some() {
                    continue;
                }
                raw.request(command, flags, COOKIE, offset, len, &payload);
                match (command, session.structured) {
                    (command::READ, true) => take_failed(&mut raw, ask),
                    _ => ask.check_done(session, &mut raw, errno::EIO),
                }
            }
            device.state().bad = 0..0;
            device.noted();
            try_it(session, &device, &mut raw, Ask { command: command::READ, flags: 0, offset, len });
        }
    }
}

#[test]
fn an_error_after_the_head_of_a_simple_reply_ends_the_connection() {
    for session in sessions().into_iter().filter(|session| !session.structured && !session.is_ample) {
        let (served, device, mut raw) = open(session);
        let mut other = served.raw();
        // The first of the two readings finds nothing.
        (device.state().bad, device.state().good) = (0..1 << 20, 64 + 6);
        raw.request(command::READ, 0, COOKIE, 0, 2 << 20, &[]);
        assert_eq!(raw.reply().error, 0);
        assert!(raw.is_closed());
        assert_eq!(served.server.stats().errors, 1);
        other.go(false);
        other.request(command::FLUSH, 0, COOKIE, 0, 0, &[]);
        assert_eq!(other.reply().error, 0, "it costs its own connection only");
    }
}

#[test]
fn requests_beside_a_long_reply_are_answered_whole() {
    for session in sessions().into_iter().filter(|session| !session.is_ample) {
        let (_served, device, mut raw) = open(session);
        let asks = [(0, 2 << 20), (4096, 4096), (8192, 1 << 20), (0, 4096), (MIB, 65536)];
        for (cookie, &(offset, len)) in asks.iter().enumerate() {
            raw.request(command::READ, 0, cookie as u64, offset, len, &[]);
        }
        raw.request(command::FLUSH, 0, asks.len() as u64, 0, 0, &[]);
        let image = device.state().image.clone();
        let mut left: Vec<usize> = asks.iter().map(|&(_, len)| len as usize).collect();
        let mut replies = 0;
        while replies <= asks.len() {
            if !session.structured {
                let reply = raw.reply();
                assert_eq!(reply.error, 0);
                if let Some(&(offset, len)) = asks.get(reply.cookie as usize) {
                    assert!(raw.take(len as usize)[..] == image[offset as usize..(offset + u64::from(len)) as usize]);
                }
                replies += 1;
                continue;
            }
            replies += take_chunk(&mut raw, &image, &mut left);
        }
    }
}

/// Takes a chunk, or the reply to the flush. Returns 1 if a reply is over.
fn take_chunk(raw: &mut Raw, image: &[u8], left: &mut [usize]) -> usize {
    let magic = raw.take(4);
    if magic != 0x668e_33ef_u32.to_be_bytes() {
        raw.take(12);
        return 1;
    }
    let rest = raw.take(16);
    let cookie = u64::from_be_bytes(rest[4..12].try_into().expect("8 bytes")) as usize;
    let body = raw.take(u32::from_be_bytes(rest[12..16].try_into().expect("4 bytes")) as usize);
    if !body.is_empty() {
        let at = u64::from_be_bytes(body[..8].try_into().expect("8 bytes")) as usize;
        let data = match rest[3] {
            1 => body[8..].to_vec(),
            _ => vec![0; u32::from_be_bytes(body[8..12].try_into().expect("4 bytes")) as usize],
        };
        assert!(data[..] == image[at..at + data.len()]);
        left[cookie] -= data.len();
    }
    let is_done = rest[1] == 1;
    assert!(!is_done || left[cookie] == 0, "the reply is over, and {} bytes are missing", left[cookie]);
    usize::from(is_done)
}
