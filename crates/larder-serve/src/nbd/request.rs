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
use crate::dispatch::{Refusal, Request};
use larder_device::{
    ZeroFlags,
    nbd::proto::{REQUEST_BYTES, WireRequest, command, command_flag as flag, errno},
};

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

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request for the device, checked.
    Do(Request),
    /// A refusal with this error number.
    Refuse(u32),
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
        Err(error) => Action::Refuse(error),
    };
    if matches!(action, Action::Refuse(_)) && payload_bytes > PAYLOAD_SKIP_BYTES_MAX {
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
    // FUA is allowed on every command and has a meaning for writes only.
    if flags & !(allowed | flag::FUA) != 0 {
        return Err(errno::EINVAL);
    }
    // Offset and length are reserved: their meaning in a client's flush is unknown here.
    if command == command::FLUSH && (offset != 0 || len != 0) {
        return Err(errno::EINVAL);
    }
    let has = |flag| flags & flag != 0;
    let fua = has(flag::FUA);
    let request = match command {
        command::FLUSH => Request::Flush,
        // A simple reply has one stretch of data.
        command::READ => Request::Read { offset, len, whole: has(flag::DF) || !agreed.structured },
        command::WRITE => Request::Write { offset, len, fua },
        command::TRIM => Request::Trim { offset, len, fua },
        command::WRITE_ZEROES => {
            let flags = ZeroFlags { fua, no_hole: has(flag::NO_HOLE), fast_only: has(flag::FAST_ZERO) };
            Request::WriteZeroes { offset, len, flags }
        }
        _ => Request::Extents { offset, len, one: has(flag::REQ_ONE) },
    };
    export.limits.check(request).map_err(|refusal| errno_of(refusal, request, has(flag::DF)))?;
    match request {
        Request::Read { .. } if has(flag::DF) && !agreed.structured => Err(errno::EINVAL),
        Request::Extents { .. } if !agreed.allocation => Err(errno::EINVAL),
        request => Ok(Action::Do(request)),
    }
}

/// Returns the protocol's error number for a refused request; `whole`: its data stays in one piece.
fn errno_of(refusal: Refusal, request: Request, whole: bool) -> u32 {
    match refusal {
        Refusal::ReadOnly => errno::EPERM,
        Refusal::PastEnd if matches!(request, Request::Write { .. } | Request::WriteZeroes { .. }) => errno::ENOSPC,
        Refusal::TooLong if whole => errno::EOVERFLOW,
        Refusal::Empty | Refusal::PastEnd | Refusal::Unaligned | Refusal::TooLong => errno::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Limits;

    fn export() -> Export {
        Export {
            name: String::new(),
            description: String::new(),
            flags: 0,
            block_bytes_preferred: 4096,
            limits: Limits { size_bytes: 1 << 20, block_bytes: 512, request_bytes_max: 64 << 10, read_only: false },
        }
    }

    fn act(command: u16, flags: u16, offset: u64, len: u32) -> Parsed {
        let request = WireRequest { flags, command, cookie: 9, offset, len };
        parse(&request.encode(), &export(), Negotiated { structured: true, allocation: false })
    }

    fn refused(command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        match act(command, flags, offset, len) {
            Parsed::Request(Incoming { action: Action::Refuse(error), .. }) => error,
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
        let cache = 5;
        assert_eq!(refused(cache, 0, 0, 512), errno::EINVAL);
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
