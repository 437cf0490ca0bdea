//! A bare NBD client, for requests that no decent client sends, and for control of every byte.
//!
//! It uses the newstyle handshake, structured replies if the server has them, and one request in
//! flight. A malformed reply panics: that is a failed test. It does not retry, reconnect or
//! interleave.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR_BIT: u32 = 1 << 31;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;

pub const FLAG_FUA: u16 = 1;

/// A request that the server refused.
#[derive(Debug)]
pub struct Refusal {
    /// The errno on the wire, as in `EINVAL` = 22 and `ENOSPC` = 28.
    pub errno: u32,
    /// The sentence that came with it, if replies are structured.
    pub sentence: String,
}

/// A connection in its transmission phase.
pub struct Wire {
    stream: UnixStream,
    cookie: u64,
    pub export_bytes: u64,
    pub structured: bool,
}

impl Wire {
    pub fn connect(socket: &Path) -> Self {
        Self::connect_as(socket, true)
    }

    /// Connects without structured replies.
    pub fn connect_simple(socket: &Path) -> Self {
        Self::connect_as(socket, false)
    }

    fn connect_as(socket: &Path, structured: bool) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        let mut wire = Self { stream, cookie: 0, export_bytes: 0, structured: false };
        assert_eq!(wire.u64(), NBD_MAGIC);
        assert_eq!(wire.u64(), OPTION_MAGIC);
        let flags = wire.u16();
        assert_eq!(flags & 3, 3, "fixed newstyle and no zeroes");
        wire.send(&3_u32.to_be_bytes());

        if structured {
            wire.option(OPTION_STRUCTURED_REPLY, &[]);
            wire.structured = wire.option_reply().0 == REPLY_ACK;
        }
        // The default export, no information asked for.
        wire.option(OPTION_GO, &[0; 6]);
        loop {
            let (kind, body) = wire.option_reply();
            match kind {
                REPLY_ACK => return wire,
                REPLY_INFO if body.starts_with(&[0, 0]) => {
                    wire.export_bytes = u64::from_be_bytes(body[2..10].try_into().expect("eight bytes"));
                }
                REPLY_INFO => {}
                other => panic!("option reply {other:#x}: {}", String::from_utf8_lossy(&body)),
            }
        }
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.request(READ, 0, offset, bytes as u32, &[]).unwrap_or_else(|err| panic!("read at {offset}: {err:?}"))
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let done = self.request(WRITE, 0, offset, data.len() as u32, data);
        done.unwrap_or_else(|err| panic!("write at {offset}: {err:?}"));
    }

    pub fn flush(&mut self) {
        self.request(FLUSH, 0, 0, 0, &[]).unwrap_or_else(|err| panic!("flush: {err:?}"));
    }

    /// Sends one request, and returns its whole reply. A closed connection panics.
    pub fn request(&mut self, kind: u16, flags: u16, offset: u64, bytes: u32, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.begin(kind, flags, offset, bytes, data);
        self.reply(kind, offset, bytes as usize)
    }

    /// Sends a request, and waits for no reply.
    pub fn begin(&mut self, kind: u16, flags: u16, offset: u64, bytes: u32, data: &[u8]) {
        self.cookie += 1;
        let mut head = Vec::with_capacity(28 + data.len());
        head.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        head.extend_from_slice(&flags.to_be_bytes());
        head.extend_from_slice(&kind.to_be_bytes());
        head.extend_from_slice(&self.cookie.to_be_bytes());
        head.extend_from_slice(&offset.to_be_bytes());
        head.extend_from_slice(&bytes.to_be_bytes());
        head.extend_from_slice(data);
        self.send(&head);
    }

    /// Returns the reply to a read that was begun last.
    pub fn answer(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal> {
        self.reply(READ, offset, bytes)
    }

    fn reply(&mut self, kind: u16, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal> {
        let mut data = vec![0; if kind == READ { bytes } else { 0 }];
        let mut refused = None;
        loop {
            let magic = self.u32();
            if magic == SIMPLE_REPLY_MAGIC {
                let errno = self.u32();
                assert_eq!(self.u64(), self.cookie);
                if errno != 0 {
                    return Err(Refusal { errno, sentence: String::new() });
                }
                self.stream.read_exact(&mut data).expect("the data of the read");
                return Ok(data);
            }
            assert_eq!(magic, STRUCTURED_REPLY_MAGIC, "neither a simple nor a structured reply");
            let (flags, chunk) = (self.u16(), self.u16());
            assert_eq!(self.u64(), self.cookie);
            let length = self.u32() as usize;
            let body = self.bytes(length);
            let number = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("eight bytes"));
            match chunk {
                0 => {}
                1 => {
                    let at = (number(0) - offset) as usize;
                    data[at..at + body.len() - 8].copy_from_slice(&body[8..]);
                }
                2 => {} // a hole: zeroes already
                _ if chunk & 0x8000 != 0 => {
                    let errno = u32::from_be_bytes(body[..4].try_into().expect("four bytes"));
                    let said = u16::from_be_bytes(body[4..6].try_into().expect("two bytes")) as usize;
                    let sentence = String::from_utf8(body[6..6 + said].to_vec()).expect("UTF-8");
                    refused = Some(Refusal { errno, sentence });
                }
                other => panic!("unexpected chunk {other}"),
            }
            if flags & 1 != 0 {
                return refused.map_or(Ok(data), Err);
            }
        }
    }

    fn option(&mut self, option: u32, body: &[u8]) {
        let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
        message.extend_from_slice(&option.to_be_bytes());
        message.extend_from_slice(&(body.len() as u32).to_be_bytes());
        message.extend_from_slice(body);
        self.send(&message);
    }

    fn option_reply(&mut self) -> (u32, Vec<u8>) {
        assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
        let _option = self.u32();
        let kind = self.u32();
        let length = self.u32() as usize;
        let body = self.bytes(length);
        assert!(kind & REPLY_ERROR_BIT == 0 || kind == REPLY_ERROR_BIT | 1, "option refused: {kind:#x}");
        (kind, body)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().expect("two bytes"))
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }
}
