//! NBD protocol: constants, and pure encoding and parsing of its fixed-size messages.
//!
//! Role: the one place that knows the bytes, for client and server alike. It covers the fixed
//! newstyle handshake, and simple and structured replies. All integers are big-endian.
//!
//! Invariants: parsing takes any bytes and never panics. Nothing here does I/O or allocates for a
//! length that it has read.
//!
//! It does not check requests against a device; the server does.

#![deny(clippy::indexing_slicing)]

use crate::IoErrorKind;

/// First eight bytes of the server's greeting, "NBDMAGIC".
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": second word of the greeting, and head of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Head of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Head of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Head of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Head of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client's answer to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes before an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes before the data of a reply to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a request, before a write's payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply, before a read's payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes before the payload of a structured reply's chunk.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zero bytes after the answer to EXPORT_NAME, unless both sides agreed to leave them out.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Longest string (export name, context name, message) that the protocol allows, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// Handshake flags, the server's and (the same bits, 32 wide) the client's.
pub mod handshake_flag {
    /// Options get replies and an unknown option is no reason to close.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No padding after the answer to EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
#[allow(missing_docs)]
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
#[allow(missing_docs)]
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Kinds of information in the answer to INFO and GO.
#[allow(missing_docs)]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// The abilities of an export.
#[allow(missing_docs)]
pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
#[allow(missing_docs)]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
#[allow(missing_docs)]
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of a structured reply's chunks.
#[allow(missing_docs)]
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) | 1;
    /// Flag: no further chunk of this reply follows.
    pub const FLAG_DONE: u16 = 1;
}

/// Allocation states of the context `base:allocation`.
pub mod state {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Error numbers on the wire, fixed by the protocol on every platform.
#[allow(missing_docs)]
pub mod errno {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const EOVERFLOW: u32 = 75;
    pub const ENOTSUP: u32 = 95;
    pub const ESHUTDOWN: u32 = 108;
}

/// Returns the wire's error number for a failed device operation.
///
/// `writes` is set for a writing operation: an offset past the end is "no space" then.
pub fn errno_of(kind: IoErrorKind, writes: bool) -> u32 {
    match kind {
        IoErrorKind::Io | IoErrorKind::Gone | IoErrorKind::Corrupt | IoErrorKind::InUse | IoErrorKind::TooManyFiles => {
            errno::EIO
        }
        IoErrorKind::OutOfRange if writes => errno::ENOSPC,
        IoErrorKind::OutOfRange | IoErrorKind::Unaligned => errno::EINVAL,
        IoErrorKind::NoSpace | IoErrorKind::Quota => errno::ENOSPC,
        IoErrorKind::ReadOnly => errno::EPERM,
        IoErrorKind::Unsupported => errno::ENOTSUP,
        IoErrorKind::Cancelled => errno::ESHUTDOWN,
    }
}

/// Returns the meaning of a wire's error number for a device operation.
pub fn kind_of(error: u32) -> IoErrorKind {
    match error {
        errno::EPERM => IoErrorKind::ReadOnly,
        errno::ENOSPC => IoErrorKind::NoSpace,
        errno::ENOTSUP => IoErrorKind::Unsupported,
        errno::ESHUTDOWN => IoErrorKind::Gone,
        _ => IoErrorKind::Io,
    }
}

/// Takes big-endian fields off the front of untrusted bytes.
#[derive(Clone, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next `n` bytes; `None` if fewer are left.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// Returns the next 16-bit field.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    /// Returns the next 32-bit field.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    /// Returns the next 64-bit field.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    /// Returns a string with a 32-bit length before it, of at most [`STRING_BYTES_MAX`].
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        if len > STRING_BYTES_MAX {
            return None;
        }
        self.bytes(len)
    }
}

/// A request as it stands on the wire; a write's payload follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireRequest {
    /// [`command_flag`]s.
    pub flags: u16,
    /// One of [`command`].
    pub command: u16,
    /// The client's number of the request, repeated in the reply.
    pub cookie: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl WireRequest {
    /// Parses a request's header; `None` for a wrong magic, after which the stream is lost.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<WireRequest> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(WireRequest {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        let mut at = Filler(&mut out);
        at.put(REQUEST_MAGIC.to_be_bytes());
        at.put(self.flags.to_be_bytes());
        at.put(self.command.to_be_bytes());
        at.put(self.cookie.to_be_bytes());
        at.put(self.offset.to_be_bytes());
        at.put(self.len.to_be_bytes());
        out
    }
}

/// A writer that fills a fixed buffer from its front and drops the excess. Constants size the
/// buffers.
struct Filler<'a>(&'a mut [u8]);

impl Filler<'_> {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some((head, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut::<N>() {
            *head = field;
            self.0 = rest;
        }
    }
}

/// A simple reply: for a read that succeeded, its data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0, or one of [`errno`].
    pub error: u32,
    /// The request's.
    pub cookie: u64,
}

impl SimpleReply {
    /// Parses a reply's header; `None` for a wrong magic.
    pub fn parse(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Option<SimpleReply> {
        let mut fields = Fields(bytes);
        if fields.u32()? != SIMPLE_REPLY_MAGIC {
            return None;
        }
        Some(SimpleReply { error: fields.u32()?, cookie: fields.u64()? })
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; SIMPLE_REPLY_BYTES] {
        let mut out = [0; SIMPLE_REPLY_BYTES];
        let mut at = Filler(&mut out);
        at.put(SIMPLE_REPLY_MAGIC.to_be_bytes());
        at.put(self.error.to_be_bytes());
        at.put(self.cookie.to_be_bytes());
        out
    }
}

/// The header of a structured reply's chunk; `len` bytes of payload follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// This is the reply's last chunk.
    pub done: bool,
    /// One of [`chunk`].
    pub kind: u16,
    /// The request's.
    pub cookie: u64,
    /// Bytes of payload.
    pub len: u32,
}

impl ChunkHeader {
    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        let mut at = Filler(&mut out);
        at.put(STRUCTURED_REPLY_MAGIC.to_be_bytes());
        at.put(if self.done { chunk::FLAG_DONE } else { 0 }.to_be_bytes());
        at.put(self.kind.to_be_bytes());
        at.put(self.cookie.to_be_bytes());
        at.put(self.len.to_be_bytes());
        out
    }
}

/// Appends an option's header and data (client).
pub fn encode_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(data);
}

/// Appends a reply to an option (server).
pub fn encode_option_reply(out: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&reply.to_be_bytes());
    out.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(data);
}

/// Parses the header of a reply to an option: option, type, bytes of data; `None` for a wrong
/// magic.
pub fn parse_option_reply(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Option<(u32, u32, u32)> {
    let mut fields = Fields(bytes);
    if fields.u64()? != OPTION_REPLY_MAGIC {
        return None;
    }
    Some((fields.u32()?, fields.u32()?, fields.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_written() {
        let request =
            WireRequest { flags: 3, command: command::TRIM, cookie: 0x0102_0304_0506_0708, offset: 512, len: 99 };
        assert_eq!(WireRequest::parse(&request.encode()), Some(request));
        let reply = SimpleReply { error: errno::ENOSPC, cookie: 77 };
        assert_eq!(SimpleReply::parse(&reply.encode()), Some(reply));
    }

    #[test]
    fn a_request_has_the_documented_bytes() {
        let request = WireRequest { flags: 1, command: 1, cookie: 2, offset: 3, len: 4 };
        let golden = [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4];
        assert_eq!(request.encode(), golden);
    }

    #[test]
    fn a_wrong_magic_is_refused() {
        let mut bytes = WireRequest::default().encode();
        bytes[0] ^= 1;
        assert_eq!(WireRequest::parse(&bytes), None);
        assert_eq!(SimpleReply::parse(&[0; SIMPLE_REPLY_BYTES]), None);
    }

    #[test]
    fn strings_longer_than_the_rest_or_the_limit_are_refused() {
        assert_eq!(Fields(&[0, 0, 0, 2, b'a']).string(), None);
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, b'a']).string(), None);
        assert_eq!(Fields(&[0, 0, 0, 1, b'a', b'b']).string(), Some(&b"a"[..]));
    }
}
