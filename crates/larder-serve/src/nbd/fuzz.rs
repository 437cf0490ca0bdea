//! Entry points for fuzzing: any bytes as a client's side of a session, without sockets.
//!
//! Role: the same code runs under cargo-fuzz and, with seeded bytes, in the tests.
//!
//! It does not touch a device.

use super::{
    export::Export,
    handshake::{Handshake, HandshakeProgress, Negotiated},
    limits::{OPTION_BYTES_MAX, PAYLOAD_SKIP_BYTES_MAX},
    request::{self, Action, Parsed},
};
use crate::dispatch::{Limits, Request};
use larder_device::nbd::proto::{REQUEST_BYTES, transmission_flag};

/// The longest answer as a multiple of its request, plus some bytes.
const AMPLIFICATION_MAX: usize = 64;

fn export() -> Export {
    Export {
        name: "disk".into(),
        description: "for fuzzing".into(),
        flags: transmission_flag::HAS_FLAGS,
        block_bytes_preferred: 4096,
        limits: Limits { size_bytes: 1 << 30, block_bytes: 512, request_bytes_max: 1 << 20, read_only: false },
    }
}

/// Takes `data` as a client's bytes, in pieces of a size that the first byte chooses. Panics if an
/// invariant breaks.
pub fn nbd_server_bytes(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    let export = export();
    let piece = usize::from(first).max(1);
    let mut out = Vec::new();
    let mut machine = Handshake::new(&export, &mut out);
    let greeting_bytes = out.len();
    let mut held: Vec<u8> = Vec::new();
    let mut pieces = data.chunks(piece);
    let agreed = loop {
        let (consumed, progress) = machine.feed(&held, &mut out);
        assert!(consumed <= held.len());
        held.drain(..consumed);
        assert!(out.len() <= greeting_bytes + AMPLIFICATION_MAX * data.len(), "{} bytes out", out.len());
        match progress {
            HandshakeProgress::More => {}
            HandshakeProgress::Transmission(agreed) => break agreed,
            HandshakeProgress::Goodbye | HandshakeProgress::Broken => return,
        }
        assert!(held.len() <= OPTION_BYTES_MAX as usize + 16 + piece, "{} bytes held", held.len());
        let Some(more) = pieces.next() else { return };
        held.extend_from_slice(more);
    };
    pieces.for_each(|more| held.extend_from_slice(more));
    requests(&held, &export, agreed);
}

/// Takes `data` as requests.
pub fn nbd_requests(data: &[u8]) {
    requests(data, &export(), Negotiated { structured: true, allocation: true });
}

fn requests(mut data: &[u8], export: &Export, agreed: Negotiated) {
    while let Parsed::Request(incoming) = request::parse(data, export, agreed) {
        let limits = export.limits;
        match incoming.action {
            Action::Refuse(_) | Action::Do(Request::Flush) => {}
            Action::Do(request) => {
                let (offset, len) = request.range();
                assert!(len > 0 && offset.is_multiple_of(512) && len.is_multiple_of(512));
                assert!(offset + u64::from(len) <= limits.size_bytes);
                let has_data = matches!(request, Request::Read { .. } | Request::Write { .. });
                assert!(!has_data || len <= limits.request_bytes_max);
            }
        }
        assert!(incoming.payload_bytes <= PAYLOAD_SKIP_BYTES_MAX.max(limits.request_bytes_max));
        let skip = REQUEST_BYTES.saturating_add(incoming.payload_bytes as usize);
        data = data.get(skip..).unwrap_or(&[]);
    }
}
