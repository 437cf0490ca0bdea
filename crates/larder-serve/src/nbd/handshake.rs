//! The handshake as a pure machine: bytes of the client in, bytes for the client out.
//!
//! Invariants: any bytes are taken without a panic. A few words are kept between calls, and the
//! output is bounded by the input. [`OPTIONS_MAX`] options end the connection.
//!
//! It does not do I/O, timeouts, or TLS. STARTTLS is refused, and the client may go on in the
//! clear.

#![deny(clippy::indexing_slicing)]

use super::{
    export::Export,
    limits::{OPTION_BYTES_MAX, OPTION_SKIP_BYTES_MAX, OPTIONS_MAX},
};
use larder_device::nbd::proto::{
    CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES, Fields, GREETING_MAGIC, OPTION_HEADER_BYTES, OPTION_MAGIC,
    encode_option_reply, handshake_flag, info, option, option_reply as reply,
};

/// Our number for the context `base:allocation`.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;
const ALLOCATION_CONTEXT: &[u8] = b"base:allocation";

/// The result of a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Replies to reads and block status are structured.
    pub structured: bool,
    /// The context `base:allocation` was chosen, so block status is allowed.
    pub allocation: bool,
}

/// The state of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeProgress {
    /// More bytes are needed.
    More,
    /// Requests follow.
    Transmission(Negotiated),
    /// The client said goodbye.
    Goodbye,
    /// The client broke the protocol, or made a request that only a close can answer.
    Broken,
}

#[derive(Debug)]
enum HandshakeState {
    ClientFlags,
    Options,
    /// Data of an option that is too big is thrown away, then answered.
    Skip {
        option: u32,
        left: usize,
    },
}

/// The server's side of one handshake.
#[derive(Debug)]
pub struct Handshake<'a> {
    export: &'a Export,
    state: HandshakeState,
    no_zeroes: bool,
    options_seen: u32,
    agreed: Negotiated,
}

impl<'a> Handshake<'a> {
    /// Begins a handshake; the greeting goes to `out`.
    pub fn new(export: &'a Export, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
        Handshake {
            export,
            state: HandshakeState::ClientFlags,
            no_zeroes: false,
            options_seen: 0,
            agreed: Negotiated::default(),
        }
    }

    /// Takes complete steps from the front of `input`. Returns the number of bytes taken, and the
    /// new state.
    ///
    /// Answers are appended to `out`. It asks for [`HandshakeProgress::More`] only if it needs a
    /// longer `input`, and never for one of more than 17 KiB.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, HandshakeProgress) {
        let mut rest = Fields(input);
        let progress = loop {
            let before = rest.clone();
            match self.step(&mut rest, out) {
                Some(HandshakeProgress::More) => {}
                Some(progress) => break progress,
                None => {
                    rest = before;
                    break HandshakeProgress::More;
                }
            }
        };
        (input.len() - rest.0.len(), progress)
    }

    /// Takes one step; `None` if the input is too short for it.
    fn step(&mut self, input: &mut Fields<'_>, out: &mut Vec<u8>) -> Option<HandshakeProgress> {
        match self.state {
            HandshakeState::ClientFlags => {
                let flags = Fields(input.bytes(CLIENT_FLAGS_BYTES)?).u32()?;
                let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
                if flags & !known != 0 || flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
                    return Some(HandshakeProgress::Broken);
                }
                self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
                self.state = HandshakeState::Options;
                Some(HandshakeProgress::More)
            }
            HandshakeState::Skip { option, left } => {
                let take = left.min(input.0.len());
                if take == 0 {
                    return None;
                }
                input.bytes(take)?;
                self.state = if take < left {
                    HandshakeState::Skip { option, left: left - take }
                } else {
                    error(out, option, reply::ERR_TOO_BIG, "The option's data is too long.");
                    HandshakeState::Options
                };
                Some(HandshakeProgress::More)
            }
            HandshakeState::Options => {
                let mut header = Fields(input.bytes(OPTION_HEADER_BYTES)?);
                let (magic, option, len) = (header.u64()?, header.u32()?, header.u32()?);
                if magic != OPTION_MAGIC || len > OPTION_SKIP_BYTES_MAX {
                    return Some(HandshakeProgress::Broken);
                }
                let skip = len > OPTION_BYTES_MAX;
                let data = if skip { &[][..] } else { input.bytes(len as usize)? };
                self.options_seen += 1;
                if self.options_seen > OPTIONS_MAX {
                    return Some(HandshakeProgress::Broken);
                }
                if skip {
                    self.state = HandshakeState::Skip { option, left: len as usize };
                    return Some(HandshakeProgress::More);
                }
                Some(self.option(option, data, out))
            }
        }
    }

    fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> HandshakeProgress {
        match option {
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                encode_option_reply(out, option, reply::ACK, &[]);
                return HandshakeProgress::Goodbye;
            }
            option::LIST => self.list(data, out),
            option::INFO | option::GO => return self.info(option, data, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured = true;
                encode_option_reply(out, option, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY => error(out, option, reply::ERR_INVALID, "This option has no data."),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, data, out),
            option::STARTTLS => error(out, option, reply::ERR_POLICY, "This server does not offer TLS."),
            _ => error(out, option, reply::ERR_UNSUP, "This option is not known."),
        }
        HandshakeProgress::More
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    /// Answers EXPORT_NAME, which has no error reply: an unknown name closes.
    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> HandshakeProgress {
        if !self.is_ours(name) {
            return HandshakeProgress::Broken;
        }
        out.extend_from_slice(&self.export.limits.size_bytes.to_be_bytes());
        out.extend_from_slice(&self.export.flags.to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        HandshakeProgress::Transmission(self.agreed)
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            return error(out, option::LIST, reply::ERR_INVALID, "This option has no data.");
        }
        let name = self.export.name.as_bytes();
        let mut entry = u32::try_from(name.len()).unwrap_or(0).to_be_bytes().to_vec();
        entry.extend_from_slice(name);
        entry.extend_from_slice(self.export.description.as_bytes());
        encode_option_reply(out, option::LIST, reply::SERVER, &entry);
        encode_option_reply(out, option::LIST, reply::ACK, &[]);
    }

    fn info(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> HandshakeProgress {
        let Some((name, wants)) = parse_info(data) else {
            error(out, option, reply::ERR_INVALID, "The option's data is malformed.");
            return HandshakeProgress::More;
        };
        if !self.is_ours(name) {
            error(out, option, reply::ERR_UNKNOWN, "There is no export of this name.");
            return HandshakeProgress::More;
        }
        let export = self.export;
        let mut item = |kind: u16, body: &[&[u8]]| {
            let mut data = kind.to_be_bytes().to_vec();
            body.iter().for_each(|part| data.extend_from_slice(part));
            encode_option_reply(out, option, reply::INFO, &data);
        };
        item(info::EXPORT, &[&export.limits.size_bytes.to_be_bytes(), &export.flags.to_be_bytes()]);
        item(
            info::BLOCK_SIZE,
            &[
                &export.limits.block_bytes.to_be_bytes(),
                &export.block_bytes_preferred.to_be_bytes(),
                &export.limits.request_bytes_max.to_be_bytes(),
            ],
        );
        if wants.name {
            item(info::NAME, &[export.name.as_bytes()]);
        }
        if wants.description {
            item(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        encode_option_reply(out, option, reply::ACK, &[]);
        if option == option::GO { HandshakeProgress::Transmission(self.agreed) } else { HandshakeProgress::More }
    }

    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let set = option == option::SET_META_CONTEXT;
        if set {
            self.agreed.allocation = false;
        }
        if !self.agreed.structured {
            return error(out, option, reply::ERR_INVALID, "Structured replies must be agreed on first.");
        }
        let Some((name, chosen)) = parse_contexts(data, set) else {
            return error(out, option, reply::ERR_INVALID, "The option's data is malformed.");
        };
        if !self.is_ours(name) {
            return error(out, option, reply::ERR_UNKNOWN, "There is no export of this name.");
        }
        if chosen {
            let mut entry = if set { ALLOCATION_CONTEXT_ID } else { 0 }.to_be_bytes().to_vec();
            entry.extend_from_slice(ALLOCATION_CONTEXT);
            encode_option_reply(out, option, reply::META_CONTEXT, &entry);
            self.agreed.allocation |= set;
        }
        encode_option_reply(out, option, reply::ACK, &[]);
    }
}

fn error(out: &mut Vec<u8>, option: u32, kind: u32, message: &str) {
    encode_option_reply(out, option, kind, message.as_bytes());
}

#[derive(Default)]
struct Wants {
    name: bool,
    description: bool,
}

/// Parses data of INFO and GO: the export's name and the optional information that is wanted.
fn parse_info(data: &[u8]) -> Option<(&[u8], Wants)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    let mut wants = Wants::default();
    for _ in 0..count {
        match fields.u16()? {
            info::NAME => wants.name = true,
            info::DESCRIPTION => wants.description = true,
            _ => {}
        }
    }
    fields.0.is_empty().then_some((name, wants))
}

/// Parses data of LIST_ and SET_META_CONTEXT.
///
/// Returns the export's name and whether a query matches `base:allocation`. To list, no query at
/// all and the bare name space match, too.
fn parse_contexts(data: &[u8], set: bool) -> Option<(&[u8], bool)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let mut chosen = count == 0 && !set;
    for _ in 0..count {
        let query = fields.string()?;
        chosen |= query == ALLOCATION_CONTEXT || (!set && query == b"base:");
    }
    fields.0.is_empty().then_some((name, chosen))
}
