//! The duties of a server for a request, taken from the protocol's text and not from the server's.
//!
//! Role: the error that a request gets, the device's operations before the reply, and a check of
//! the reply to its last byte.
//!
//! It does not send.

use super::device::{Noted, Recorder};
use crate::common::Raw;
use larder_device::{
    BlockDevice, Extent, WriteFlags, ZeroFlags,
    nbd::proto::{chunk, command, command_flag as flag, errno, state},
};

/// Longest read or write that the exports of this suite take.
pub const REQUEST_BYTES_MAX: u32 = (5 << 19) + 4096;
/// Descriptors in one reply to block status, and runs that one read distinguishes.
const EXTENTS_MAX: usize = 1024;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub command: u16,
    pub flags: u16,
    pub offset: u64,
    pub len: u32,
}

/// The properties of a session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    pub structured: bool,
    pub read_only: bool,
    pub block_bytes: u32,
    /// There is memory for all of each request.
    pub is_ample: bool,
    pub is_late: bool,
    pub fast_zeroes: bool,
}

impl Ask {
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Returns the error that the request must get.
    pub fn error(&self, session: Session, size_bytes: u64) -> Option<u32> {
        let known = match self.command {
            command::READ => flag::DF,
            command::WRITE | command::TRIM | command::FLUSH => 0,
            command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::REQ_ONE,
            _ => return Some(errno::EINVAL),
        };
        let is_flush = self.command == command::FLUSH;
        let changes = matches!(self.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        let block = u64::from(session.block_bytes);
        let has_payload = matches!(self.command, command::READ | command::WRITE);
        if self.flags & !known & !flag::FUA != 0 || (is_flush && (self.offset, self.len) != (0, 0)) {
            Some(errno::EINVAL)
        } else if is_flush {
            None
        } else if changes && session.read_only {
            Some(errno::EPERM)
        } else if self.len == 0 {
            Some(errno::EINVAL)
        } else if u128::from(self.offset) + u128::from(self.len) > u128::from(size_bytes) {
            let grows = matches!(self.command, command::WRITE | command::WRITE_ZEROES);
            Some(if grows { errno::ENOSPC } else { errno::EINVAL })
        } else if !self.offset.is_multiple_of(block) || !u64::from(self.len).is_multiple_of(block) {
            Some(errno::EINVAL)
        } else if has_payload && self.len > REQUEST_BYTES_MAX {
            Some(if self.has(flag::DF) { errno::EOVERFLOW } else { errno::EINVAL })
        } else if !session.structured && (self.has(flag::DF) || self.command == command::BLOCK_STATUS) {
            Some(errno::EINVAL)
        } else if self.command == command::WRITE_ZEROES && self.has(flag::FAST_ZERO) && !session.fast_zeroes {
            Some(errno::ENOTSUP)
        } else {
            None
        }
    }

    /// Checks the device's operations for a request that succeeds, their order included.
    pub fn check_noted(&self, session: Session, payload: &[u8], noted: &[Noted]) {
        let (offset, len) = (self.offset, u64::from(self.len));
        let fua = self.has(flag::FUA);
        match self.command {
            command::READ => self.check_reads(session, noted),
            command::WRITE => self.check_writes(session, payload, noted),
            command::FLUSH => assert_eq!(noted, [Noted::Flush]),
            command::TRIM if fua => assert_eq!(noted, [Noted::Discard(offset, len), Noted::Flush]),
            command::TRIM => assert_eq!(noted, [Noted::Discard(offset, len)]),
            command::WRITE_ZEROES => {
                let flags = ZeroFlags { fua, no_hole: self.has(flag::NO_HOLE), fast_only: self.has(flag::FAST_ZERO) };
                assert_eq!(noted, [Noted::Zero(offset, len, flags)]);
            }
            _ => assert_eq!(noted, []),
        }
    }

    /// Checks that the pieces follow each other, equal the payload, and have the whole's
    /// durability.
    fn check_writes(&self, session: Session, payload: &[u8], noted: &[Noted]) {
        let mut at = 0;
        for write in noted {
            let Noted::Write(offset, data, flags) = write else { panic!("{write:?} for a write") };
            assert_eq!((*offset, *flags), (self.offset + at as u64, WriteFlags { fua: self.has(flag::FUA) }));
            assert!(data[..] == payload[at..at + data.len()], "other bytes at {offset}");
            at += data.len();
        }
        assert_eq!(at, payload.len(), "bytes written");
        let pieces = if session.is_ample { payload.len().div_ceil(1 << 20) } else { payload.len() };
        assert!(noted.len() <= pieces, "{} writes", noted.len());
    }

    /// Checks the reads: each byte not left out is read once, in blocks.
    ///
    /// A simple reply that is too long has one more reading before it.
    fn check_reads(&self, session: Session, noted: &[Noted]) {
        let block = u64::from(session.block_bytes);
        let mut times = vec![0_u8; (u64::from(self.len) / block) as usize];
        for read in noted {
            let Noted::Read(offset, len) = read else { panic!("{read:?} for a read") };
            assert!(*offset >= self.offset && offset % block == 0 && (*len as u64).is_multiple_of(block), "{read:?}");
            let from = ((offset - self.offset) / block) as usize;
            times[from..from + len / block as usize].iter_mut().for_each(|times| *times += 1);
        }
        let one_stretch = !session.structured || self.has(flag::DF);
        let once = times.iter().all(|&times| times == 1);
        if one_stretch && session.is_ample {
            assert_eq!(noted.len(), 1, "one read for one stretch");
        }
        if one_stretch {
            let twice = !session.structured && !session.is_ample && times.iter().all(|&times| times == 2);
            assert!(once || twice, "{times:?}");
        } else {
            assert!(times.iter().all(|&times| times <= 1), "{times:?}");
        }
    }

    /// Checks a reply without data.
    pub fn check_done(&self, session: Session, raw: &mut Raw, error: u32) {
        if session.structured && (error != 0 || self.command == command::BLOCK_STATUS) {
            let (flags, kind, cookie, body) = raw.chunk();
            assert_eq!((flags, kind, cookie), (chunk::FLAG_DONE, chunk::ERROR, COOKIE));
            assert_eq!(body[..4], error.to_be_bytes());
            assert_eq!(body.len(), 6 + usize::from(u16::from_be_bytes([body[4], body[5]])));
        } else {
            let reply = raw.reply();
            assert_eq!((reply.error, reply.cookie), (error, COOKIE));
        }
    }

    /// Checks the reply to a read that succeeds.
    pub fn check_data(&self, session: Session, raw: &mut Raw, device: &Recorder) {
        let (from, len) = (self.offset as usize, self.len as usize);
        if !session.structured {
            let reply = raw.reply();
            assert_eq!((reply.error, reply.cookie), (0, COOKIE));
            let data = raw.take(len);
            return assert!(data[..] == device.state().image[from..from + len], "other bytes");
        }
        let mut got = vec![0; len];
        let (mut ranges, mut is_done) = (Vec::new(), false);
        while !is_done {
            let (flags, kind, cookie, body) = raw.chunk();
            assert_eq!((cookie, flags & !chunk::FLAG_DONE), (COOKIE, 0));
            is_done = flags & chunk::FLAG_DONE != 0;
            if kind == chunk::NONE {
                assert!(is_done && body.is_empty());
                continue;
            }
            let at = (u64::from_be_bytes(body[..8].try_into().expect("8 bytes")) - self.offset) as usize;
            let bytes = match kind {
                chunk::OFFSET_DATA => {
                    got[at..at + body.len() - 8].copy_from_slice(&body[8..]);
                    body.len() - 8
                }
                chunk::OFFSET_HOLE => u32::from_be_bytes(body[8..12].try_into().expect("4 bytes")) as usize,
                other => panic!("a chunk of type {other}"),
            };
            ranges.push((at, at + bytes));
        }
        assert!(ranges.len() == 1 || !self.has(flag::DF), "{} chunks where one was asked for", ranges.len());
        ranges.sort_unstable();
        let mut end = 0;
        for (from, to) in ranges {
            assert!(from == end && to > from, "what follows byte {end} is told from {from} to {to}");
            end = to;
        }
        assert_eq!(end, len, "bytes that no chunk has");
        assert!(got[..] == device.state().image[from..from + len], "other bytes");
    }

    /// Checks the reply to block status.
    pub fn check_extents(&self, raw: &mut Raw, device: &Recorder) {
        let (flags, kind, cookie, body) = raw.chunk();
        assert_eq!((flags, kind, cookie), (chunk::FLAG_DONE, chunk::BLOCK_STATUS, COOKIE));
        assert_eq!(body[..4], 1_u32.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().expect("4 bytes"));
        let told: Vec<(u32, u32)> = (4..body.len()).step_by(8).map(|at| (word(at), word(at + 4))).collect();
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for run in device.runs(self.offset, u64::from(self.len)) {
            let states = states_of(&run);
            match expected.last_mut() {
                Some((len, of)) if *of == states => *len += run.len as u32,
                _ => expected.push((run.len as u32, states)),
            }
        }
        expected.truncate(if self.has(flag::REQ_ONE) { 1 } else { EXTENTS_MAX });
        assert_eq!(told, expected);
    }

    /// Returns whether zeroes of this read must be left out: then a hole chunk is expected.
    pub fn leaves_zeroes_out(&self, session: Session, device: &Recorder) -> bool {
        session.structured
            && !session.is_late
            && session.is_ample
            && !self.has(flag::DF)
            && (64 << 10..=1 << 20).contains(&self.len)
            && device.runs(self.offset, u64::from(self.len)).iter().any(|run| run.zero)
    }
}

/// The cookie of every request.
pub const COOKIE: u64 = 0x0102_0304_0506_0708;

fn states_of(run: &Extent) -> u32 {
    (if run.hole { state::HOLE } else { 0 }) | (if run.zero { state::ZERO } else { 0 })
}

/// Returns the size of a device.
pub fn size_of(device: &Recorder) -> u64 {
    device.info().size_bytes
}
