//! Plain NBD clients that only write: each a thread that blocks on its socket.
//!
//! Invariants: the clients report their own processor time, so that a bench can take it off that of
//! the process. The rest is the server's. Each client connects before the time begins.
//!
//! They do not read, flush or split requests.

use crate::measure::{Res, Sample, cpu_time, thread_cpu_time};
use larder_device::{
    SharedBuf,
    nbd::proto::{
        CLIENT_FLAGS_BYTES, GREETING_BYTES, REQUEST_BYTES, SIMPLE_REPLY_BYTES, SimpleReply, WireRequest, command,
        encode_option, handshake_flag, option,
    },
};
use std::{
    io::{self, IoSlice, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// The size of the export and its flags, in the answer to the option EXPORT_NAME.
const EXPORT_BYTES: usize = 10;

/// A write: its offset and data.
pub type WriteOf = (u64, SharedBuf);

/// Writes each client's share over a connection of its own, `depth` requests at once.
///
/// The sample has the time from the first request to the last reply, and the processor time that is
/// not the clients'.
pub fn write_all(socket: &Path, shares: &[Vec<WriteOf>], depth: usize) -> Res<Sample> {
    let ready = Barrier::new(shares.len() + 1);
    let ready = &ready;
    thread::scope(|scope| {
        let client_of = |share| {
            scope.spawn(move || {
                let client = Client::connect(socket);
                ready.wait();
                let cpu = thread_cpu_time();
                client?.write_all(share, depth)?;
                Ok::<_, io::Error>(thread_cpu_time().saturating_sub(cpu))
            })
        };
        let clients: Vec<_> = shares.iter().map(|share| client_of(share.as_slice())).collect();
        ready.wait();
        let (began, cpu) = (Instant::now(), cpu_time());
        let mut of_clients = Duration::ZERO;
        for client in clients {
            of_clients += client.join().map_err(|_| "a client panicked")??;
        }
        Ok(Sample {
            units: shares.iter().map(Vec::len).sum::<usize>() as f64,
            wall: began.elapsed(),
            cpu: cpu_time().saturating_sub(cpu).saturating_sub(of_clients),
        })
    })
}

struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.read_exact(&mut [0; GREETING_BYTES])?;
        let flags: [u8; CLIENT_FLAGS_BYTES] =
            u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes();
        let mut message = flags.to_vec();
        encode_option(&mut message, option::EXPORT_NAME, &[]);
        stream.write_all(&message)?;
        stream.read_exact(&mut [0; EXPORT_BYTES])?;
        Ok(Client(stream))
    }

    fn write_all(mut self, share: &[WriteOf], depth: usize) -> io::Result<()> {
        let mut requests = share.iter();
        for write in requests.by_ref().take(depth) {
            self.send(write)?;
        }
        for _ in share {
            let mut reply = [0; SIMPLE_REPLY_BYTES];
            self.0.read_exact(&mut reply)?;
            if SimpleReply::parse(&reply).is_none_or(|reply| reply.error != 0) {
                return Err(io::Error::other("the server failed a write"));
            }
            if let Some(write) = requests.next() {
                self.send(write)?;
            }
        }
        self.0.write_all(&WireRequest { command: command::DISC, ..WireRequest::default() }.encode())
    }

    fn send(&mut self, (offset, data): &WriteOf) -> io::Result<()> {
        let head: [u8; REQUEST_BYTES] =
            WireRequest { command: command::WRITE, offset: *offset, len: data.len() as u32, ..WireRequest::default() }
                .encode();
        let sent = self.0.write_vectored(&[IoSlice::new(&head), IoSlice::new(data)])?;
        self.0.write_all(head.get(sent..).unwrap_or_default())?;
        self.0.write_all(data.get(sent.saturating_sub(head.len())..).unwrap_or_default())
    }
}
