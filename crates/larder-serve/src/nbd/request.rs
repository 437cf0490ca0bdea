//! Requests: parsed from bytes and checked against the export, without I/O.
//!
//! Role: tells the connection the action of each request, or the error that answers it. It also
//! tells how many bytes of payload follow on the wire either way.
//!
//! Invariants: any bytes are taken without a panic. An [`Action`] other than a refusal is inside
//! the export, aligned, and no longer than its limits.
//!
//! It does not execute.

#![deny(clippy::indexing_slicing)]

use super::{export::Export, handshake::Negotiated, limits::PAYLOAD_SKIP_BYTES_MAX};
use larder_device::nbd::proto::{REQUEST_BYTES, WireRequest, command, command_flag as flag, errno};

/// The meaning of the bytes at the front of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not a whole request yet.
    More,
    /// A request; its header took [`REQUEST_BYTES`].
    Request(Incoming),
    /// The client closes the connection in good order.
    Goodbye,
    /// Not a request, or one whose payload is too long to be skipped: the stream is lost.
    Broken,
}

/// A request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The client's cookie.
    pub cookie: u64,
    /// The action.
    pub action: Action,
    /// Bytes of payload that follow the header on the wire, also after a refusal.
    pub payload_bytes: u32,
}

/// The action of a request. Offsets and lengths are in bytes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read {
        offset: u64,
        len: u32,
        /// The data must come in one chunk.
        whole: bool,
    },
    Write {
        offset: u64,
        len: u32,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        len: u32,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        len: u32,
        fua: bool,
        no_hole: bool,
        fast_only: bool,
    },
    BlockStatus {
        offset: u64,
        len: u32,
        one: bool,
    },
    /// A refusal with this error number; `read` is set for a read.
    Refuse {
        error: u32,
        read: bool,
    },
}

/// Parses the front of `input`.
pub fn parse(input: &[u8], export: &Export, agreed: Negotiated) -> Parsed {
    let Some((header, _)) = input.split_first_chunk::<REQUEST_BYTES>() else { return Parsed::More };
    let Some(request) = WireRequest::parse(header) else { return Parsed::Broken };
    if request.command == command::DISC {
        return Parsed::Goodbye;
    }
    let payload_bytes = if request.command == command::WRITE { request.len } else { 0 };
    let action = match check(&request, export, agreed) {
        Ok(action) => action,
        Err(error) => Action::Refuse { error, read: request.command == command::READ },
    };
    if matches!(action, Action::Refuse { .. }) && payload_bytes > PAYLOAD_SKIP_BYTES_MAX {
        return Parsed::Broken;
    }
    Parsed::Request(Incoming { cookie: request.cookie, action, payload_bytes })
}

fn check(request: &WireRequest, export: &Export, agreed: Negotiated) -> Result<Action, u32> {
    let WireRequest { flags, command, offset, len, .. } = *request;
    let allowed = match command {
        command::READ => flag::DF,
        command::WRITE | command::TRIM | command::FLUSH => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::REQ_ONE,
        _ => return Err(errno::EINVAL),
    };
    let writes = matches!(command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    // FUA is allowed on every command and has a meaning for writes only.
    if flags & !(allowed | flag::FUA) != 0 {
        return Err(errno::EINVAL);
    }
    if command == command::FLUSH {
        // Offset and length are reserved: their meaning in a client's flush is unknown here.
        return if offset == 0 && len == 0 { Ok(Action::Flush) } else { Err(errno::EINVAL) };
    }
    if writes && export.read_only() {
        return Err(errno::EPERM);
    }
    if len == 0 {
        return Err(errno::EINVAL);
    }
    match offset.checked_add(u64::from(len)) {
        Some(end) if end <= export.size_bytes => {}
        _ if matches!(command, command::WRITE | command::WRITE_ZEROES) => return Err(errno::ENOSPC),
        _ => return Err(errno::EINVAL),
    }
    let min = u64::from(export.block_bytes_min);
    if offset % min != 0 || u64::from(len) % min != 0 {
        return Err(errno::EINVAL);
    }
    let fua = flags & flag::FUA != 0;
    match command {
        command::READ | command::WRITE if len > export.request_bytes_max => {
            Err(if flags & flag::DF != 0 { errno::EOVERFLOW } else { errno::EINVAL })
        }
        command::READ if flags & flag::DF != 0 && !agreed.structured => Err(errno::EINVAL),
        command::READ => Ok(Action::Read { offset, len, whole: flags & flag::DF != 0 }),
        command::WRITE => Ok(Action::Write { offset, len, fua }),
        command::TRIM => Ok(Action::Trim { offset, len, fua }),
        command::WRITE_ZEROES => Ok(Action::WriteZeroes {
            offset,
            len,
            fua,
            no_hole: flags & flag::NO_HOLE != 0,
            fast_only: flags & flag::FAST_ZERO != 0,
        }),
        _ if agreed.allocation => Ok(Action::BlockStatus { offset, len, one: flags & flag::REQ_ONE != 0 }),
        _ => Err(errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export {
            name: String::new(),
            description: String::new(),
            size_bytes: 1 << 20,
            flags: 0,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            request_bytes_max: 64 << 10,
        }
    }

    fn act(command: u16, flags: u16, offset: u64, len: u32) -> Parsed {
        let request = WireRequest { flags, command, cookie: 9, offset, len };
        parse(&request.encode(), &export(), Negotiated { structured: true, allocation: false })
    }

    fn refused(command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        match act(command, flags, offset, len) {
            Parsed::Request(Incoming { action: Action::Refuse { error, .. }, .. }) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranges_are_refused_as_the_protocol_says() {
        assert_eq!(refused(command::READ, 0, 1 << 20, 512), errno::EINVAL);
        assert_eq!(refused(command::WRITE, 0, 1 << 20, 512), errno::ENOSPC);
        assert_eq!(refused(command::WRITE_ZEROES, 0, u64::MAX - 511, 512), errno::ENOSPC);
        assert_eq!(refused(command::TRIM, 0, (1 << 20) - 512, 1024), errno::EINVAL);
        assert_eq!(refused(command::READ, 0, 1, 512), errno::EINVAL);
        assert_eq!(refused(command::READ, 0, 0, 511), errno::EINVAL);
        assert_eq!(refused(command::READ, 0, 0, 0), errno::EINVAL);
        assert_eq!(refused(command::READ, 0, 0, (64 << 10) + 512), errno::EINVAL);
        assert_eq!(refused(command::READ, flag::DF, 0, (64 << 10) + 512), errno::EOVERFLOW);
    }

    #[test]
    fn a_refused_write_tells_how_much_payload_to_skip() {
        let Parsed::Request(incoming) = act(command::WRITE, 0, 1 << 20, 4096) else { panic!() };
        assert_eq!(incoming.payload_bytes, 4096);
        assert_eq!(act(command::WRITE, 0, 0, u32::MAX), Parsed::Broken);
    }

    #[test]
    fn unknown_commands_flags_and_contexts_are_refused() {
        assert_eq!(refused(99, 0, 0, 512), errno::EINVAL);
        assert_eq!(refused(command::CACHE, 0, 0, 512), errno::EINVAL);
        assert_eq!(refused(command::READ, flag::FAST_ZERO, 0, 512), errno::EINVAL);
        assert_eq!(refused(command::BLOCK_STATUS, 0, 0, 512), errno::EINVAL);
        assert_eq!(refused(command::FLUSH, 0, 512, 0), errno::EINVAL);
    }

    #[test]
    fn a_request_is_not_guessed_from_its_first_bytes() {
        let bytes = WireRequest { len: 512, ..WireRequest::default() }.encode();
        for n in 0..bytes.len() {
            assert_eq!(parse(&bytes[..n], &export(), Negotiated::default()), Parsed::More);
        }
        assert!(matches!(parse(&bytes, &export(), Negotiated::default()), Parsed::Request(_)));
    }
}
