//! Entry points for fuzzing: arbitrary bytes as a server's side of a session, and text as an
//! address.
//!
//! Role: the same code runs under cargo-fuzz and, with seeded bytes, in the tests. A scripted
//! server sits at the other end of a socket pair. It answers, wrongly or rightly, after it has seen
//! the requests, so that one input is one run.
//!
//! It does not reach any server.

use super::{
    client::{NbdDevice, OPEN_TIMEOUT},
    connect::{NbdUri, Stream, shake_hands},
    proto::{
        CLIENT_FLAGS_BYTES, Fields, GREETING_MAGIC, OPTION_MAGIC, REQUEST_BYTES, SIMPLE_REPLY_MAGIC, WireRequest,
        chunk, command, encode_option_reply, info, option, option_reply, transmission_flag,
    },
};
use crate::{BlockDevice, IoBuf, IoFuture, IoResult, WriteFlags, ZeroFlags, driver::block_on};
use std::{
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::Arc,
    time::Instant,
};

/// Bytes that the server sends before its first receive; they fit the socket's buffer.
const HANDSHAKE_BYTES_MAX: usize = 32 << 10;
/// Requests of the client; their pieces stay below its limit of requests in flight.
const REQUESTS_MAX: usize = 12;
/// More requests on the wire than one run makes.
const COOKIES_AHEAD: u64 = 1000;
/// A server that can do everything.
const FLAGS_ALL: u16 = !transmission_flag::READ_ONLY;
/// Longest read or write, in sectors.
const SECTORS_MAX: u64 = 8;

/// Parses text as the address of a server; an accepted one has one canonical form.
pub fn nbd_uri(text: &str) {
    let Ok(uri) = NbdUri::parse(text) else { return };
    let canonical = uri.canonical();
    let again = NbdUri::parse(&canonical);
    assert_eq!(again.as_ref().ok(), Some(&uri), "{text:?}: its canonical form {canonical:?} is another address");
}

/// Plays `data` as a server: handshake, then replies.
///
/// Panics if an invariant breaks; hangs if a request stays without an answer.
pub fn nbd_client_bytes(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    // No server listens there, so a lost connection stays lost.
    let uri = NbdUri::parse("nbd+unix:///disk?socket=/nowhere/larder-fuzz").expect("an address");
    let Ok((ours, theirs)) = UnixStream::pair() else { return };
    let mut server = Server { stream: theirs, received: Vec::new(), pending: Vec::new(), is_broken: false };
    let mut script = Script(data);
    let is_sound = choice & 1 == 1;
    let hello =
        if is_sound { handshake(&mut script) } else { data.get(..HANDSHAKE_BYTES_MAX).unwrap_or(data).to_vec() };
    server.send(&hello);
    if !is_sound {
        // A short stream must end the handshake, and not wait for more.
        let _ = server.stream.shutdown(Shutdown::Write);
    }
    let Ok(opened) = shake_hands(Stream::Unix(ours), &uri, Instant::now() + OPEN_TIMEOUT, OPEN_TIMEOUT) else { return };
    assert!(opened.block_bytes_min.is_power_of_two());
    let flags = opened.flags;
    let Ok(device) = NbdDevice::over(uri, opened, choice & 2 != 0, OPEN_TIMEOUT) else { return };
    check_info(&device);
    if is_sound {
        server.skip_handshake();
        session(&device, flags == FLAGS_ALL, &mut server, &mut script);
    }
}

fn check_info(device: &NbdDevice) {
    let info = device.info();
    assert!(info.sector_bytes.is_power_of_two() && (512..=4096).contains(&info.sector_bytes), "{info:?}");
    assert!(info.size_bytes.is_multiple_of(u64::from(info.sector_bytes)), "{info:?}");
    assert!(info.physical_sector_bytes >= info.sector_bytes && info.optimal_io_bytes > 0, "{info:?}");
}

/// Numbers from the front of the input; zeroes follow its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// Returns a handshake with correct framing; the script gives its content.
fn handshake(script: &mut Script<'_>) -> Vec<u8> {
    let mut out = GREETING_MAGIC.to_be_bytes().to_vec();
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(3_u16.to_be_bytes());
    for _ in 0..script.byte() % 4 {
        let kind = script.u16();
        let mut data = kind.to_be_bytes().to_vec();
        data.extend((0..script.byte() % 40).map(|_| script.byte()));
        encode_option_reply(&mut out, option::GO, option_reply::INFO, &data);
    }
    let choice = script.byte();
    if choice & 1 != 0 {
        let power = |byte: u8| 1_u32 << (byte % 32);
        let sizes = [power(script.byte()), power(script.byte()), power(script.byte())];
        let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
        sizes.iter().for_each(|size| data.extend(size.to_be_bytes()));
        encode_option_reply(&mut out, option::GO, option_reply::INFO, &data);
    }
    let size = if choice & 2 != 0 { script.u64() } else { 1 << 20 };
    let flags = if choice & 4 != 0 { script.u16() } else { FLAGS_ALL };
    let mut data = info::EXPORT.to_be_bytes().to_vec();
    data.extend(size.to_be_bytes());
    data.extend(flags.to_be_bytes());
    encode_option_reply(&mut out, option::GO, option_reply::INFO, &data);
    encode_option_reply(&mut out, option::GO, option_reply::ACK, &[]);
    out
}

/// A request that the server has received.
struct ReceivedRequest {
    request: WireRequest,
    /// The bytes of a correct answer without an error, if one was sent.
    answer: Option<Vec<u8>>,
    is_over: bool,
    /// The request was open when arbitrary bytes came, which may contain an answer.
    is_unknown: bool,
}

/// The scripted server.
struct Server {
    stream: UnixStream,
    received: Vec<u8>,
    pending: Vec<ReceivedRequest>,
    /// The server sent bytes that answer no open request; no later byte counts.
    is_broken: bool,
}

impl Server {
    /// Sends as many bytes as the socket takes. The client may have hung up.
    fn send(&mut self, bytes: &[u8]) {
        if self.stream.set_nonblocking(true).is_err() || self.stream.write_all(bytes).is_err() {
            self.is_broken = true;
        }
    }

    /// Sends the last bytes.
    fn hang_up(&mut self, bytes: &[u8]) {
        self.send(bytes);
        let _ = self.stream.shutdown(Shutdown::Write);
        self.is_broken = true;
    }

    fn receive(&mut self) {
        let mut piece = [0; 4096];
        let _ = self.stream.set_nonblocking(true);
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(bytes) => self.received.extend(piece.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    /// Skips the client's side of the handshake in the received bytes.
    fn skip_handshake(&mut self) {
        self.receive();
        let mut fields = Fields(self.received.get(CLIENT_FLAGS_BYTES..).unwrap_or_default());
        let head = (fields.u64(), fields.u32(), fields.u32());
        let (Some(OPTION_MAGIC), Some(option::GO), Some(len)) = head else { panic!("the client sent no option GO") };
        fields.bytes(len as usize).expect("the option's data");
        self.received = fields.0.to_vec();
    }

    /// Notes the requests since the last call as pending. Returns their start.
    fn take_requests(&mut self) -> usize {
        let before = self.pending.len();
        self.receive();
        while let Some(head) = self.received.first_chunk::<REQUEST_BYTES>() {
            let request = WireRequest::parse(head).expect("the client sends requests");
            let payload = if request.command == command::WRITE { request.len as usize } else { 0 };
            if self.received.len() < REQUEST_BYTES + payload {
                break;
            }
            self.received.drain(..REQUEST_BYTES + payload);
            if request.command != command::DISC {
                self.pending.push(ReceivedRequest { request, answer: None, is_over: false, is_unknown: false });
            }
        }
        before
    }

    /// Returns whether a reply with this cookie could be in time for a request.
    fn may_expect(&self, cookie: u64, open: &[usize]) -> bool {
        let newest = self.pending.last().map_or(0, |pending| pending.request.cookie);
        let is_open = open.iter().any(|&at| self.pending[at].request.cookie == cookie);
        // The client may choose a cookie soon.
        is_open || (newest..newest + COOKIES_AHEAD).contains(&cookie.wrapping_sub(1))
    }

    /// Sends one reply, or a script's version of one.
    fn reply(&mut self, script: &mut Script<'_>) {
        let choice = script.byte();
        let error = if choice & 8 != 0 { u32::from(script.u16()) } else { 0 };
        let open: Vec<usize> = (0..self.pending.len()).filter(|&at| !self.pending[at].is_over).collect();
        let mut out = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        out.extend(error.to_be_bytes());
        match choice % 8 {
            // Mostly a reply to one of the requests, so that sessions make progress.
            0..=4 if !open.is_empty() => {
                let at = open[usize::from(script.byte()) % open.len()];
                let fill = script.byte();
                let is_broken = self.is_broken;
                let pending = &mut self.pending[at];
                out.extend(pending.request.cookie.to_be_bytes());
                pending.is_over = true;
                if error == 0 {
                    let len = if pending.request.command == command::READ { pending.request.len as usize } else { 0 };
                    let data: Vec<u8> = (0..len).map(|at| fill ^ (at % 251) as u8).collect();
                    out.extend(&data);
                    pending.answer = (!is_broken).then_some(data);
                }
                if choice & 0x80 != 0 {
                    // The server hangs up in the middle.
                    out.truncate(usize::from(script.byte()) * out.len() / 256);
                    pending.answer = None;
                    return self.hang_up(&out);
                }
            }
            // A repeated request, or one never made.
            0..=5 => {
                let cookie = if choice & 0x40 != 0 { script.u64() } else { u64::from(script.byte()) };
                out.extend(cookie.to_be_bytes());
                if self.may_expect(cookie, &open) {
                    return;
                }
                self.is_broken = true;
            }
            // A structured reply without agreement, or anything else.
            6 => {
                let kind =
                    [chunk::NONE, chunk::OFFSET_DATA, chunk::OFFSET_HOLE, chunk::ERROR][usize::from(script.byte() % 4)];
                let cookie = self.pending.last().map_or(1, |pending| pending.request.cookie);
                let len = script.u64() as u32;
                out = super::proto::ChunkHeader { done: choice & 16 != 0, kind, cookie, len }.encode().to_vec();
                self.is_broken = true;
            }
            _ => {
                out = (0..script.byte()).map(|_| script.byte()).collect();
                open.iter().for_each(|&at| self.pending[at].is_unknown = true);
                return self.hang_up(&out);
            }
        }
        let sent_all = !self.is_broken;
        self.send(&out);
        if sent_all && self.is_broken {
            // The socket refused the bytes, so they answer nothing.
            self.pending.iter_mut().for_each(|pending| pending.answer = None);
        }
    }
}

/// A request of the client: its future, and its requests on the wire.
struct IssuedRequest {
    result: WaitedFor,
    first: usize,
    end: usize,
}

enum WaitedFor {
    Read(IoFuture<IoBuf>),
    Done(IoFuture<()>),
}

fn session(device: &Arc<NbdDevice>, is_able: bool, server: &mut Server, script: &mut Script<'_>) {
    let mut asked = Vec::new();
    for _ in 0..REQUESTS_MAX {
        if script.0.is_empty() {
            break;
        }
        let result = ask(device, script);
        let first = server.take_requests();
        asked.push(IssuedRequest { result, first, end: server.pending.len() });
        for _ in 0..script.byte() % 4 {
            server.reply(script);
        }
    }
    // A request without an answer by now stays without one.
    let _ = server.stream.shutdown(Shutdown::Both);
    for IssuedRequest { result, first, end } in asked {
        let pending = &server.pending[first..end];
        let is_unknown = pending.iter().any(|pending| pending.is_unknown);
        let answers: Option<Vec<&Vec<u8>>> = pending.iter().map(|pending| pending.answer.as_ref()).collect();
        match result {
            WaitedFor::Read(future) => match (wait(future), answers) {
                (Ok(bytes), Some(answers)) => {
                    let sent: Vec<u8> = answers.into_iter().flatten().copied().collect();
                    assert!(sent == bytes[..], "a read gives other bytes than came");
                }
                (Ok(_), None) => assert!(is_unknown, "a read succeeds that was not answered"),
                // A device without all abilities sends some requests late, when the server is gone;
                // earlier ones may be lost.
                (Err(error), Some(answers)) => {
                    assert!(answers.is_empty() || !is_able, "a read that was answered fails: {error}");
                }
                (Err(_), None) => {}
            },
            WaitedFor::Done(future) => {
                let is_done = wait(future).is_ok();
                assert!(!is_done || is_unknown || answers.is_some(), "a request succeeds that was not answered");
            }
        }
    }
}

fn wait<T>(future: IoFuture<T>) -> IoResult<T> {
    block_on(future)
}

fn ask(device: &Arc<NbdDevice>, script: &mut Script<'_>) -> WaitedFor {
    let info = device.info();
    let sector = u64::from(info.sector_bytes);
    let choice = script.byte();
    let len = sector * (1 + u64::from(script.byte()) % SECTORS_MAX);
    let offset = match choice & 8 {
        0 => u64::from(script.byte()) * sector,
        _ => script.u64() / sector * sector,
    };
    let fua = choice & 16 != 0;
    match choice % 8 {
        0..=2 => WaitedFor::Read(device.read(offset, IoBuf::new(len as usize))),
        3 => WaitedFor::Done(device.write(offset, IoBuf::zeroed(len as usize).freeze(), WriteFlags { fua })),
        4 => WaitedFor::Done(device.flush()),
        5 => WaitedFor::Done(device.discard(offset, len << (choice >> 5))),
        _ => {
            let flags = ZeroFlags { fua, no_hole: choice & 32 != 0, fast_only: choice & 64 != 0 };
            WaitedFor::Done(device.write_zeroes(offset, len, flags))
        }
    }
}
