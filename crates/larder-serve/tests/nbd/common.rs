//! Shared helpers of the tests: a served device, a client that speaks raw bytes, and a late device.

use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoFuture, IoResult, SharedBuf, WriteFlags, ZeroFlags,
    driver::block_on,
    nbd::{
        NbdDevice,
        proto::{
            OPTION_REPLY_HEADER_BYTES, REQUEST_BYTES, SIMPLE_REPLY_BYTES, SimpleReply, WireRequest, encode_option,
            option, option_reply, parse_option_reply,
        },
    },
    ram::RamDevice,
    rng::Rng,
};
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use parking_lot::{Condvar, Mutex};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

pub const MIB: u64 = 1 << 20;
/// The command CACHE of the protocol, which the server lacks.
pub const COMMAND_CACHE: u16 = 5;

/// A directory that goes with its owner.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("larder-nbd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        TempDir(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a Unix socket.
pub struct Served {
    pub server: NbdServer,
    pub socket: PathBuf,
    pub dir: TempDir,
}

pub fn serve(device: Arc<dyn BlockDevice>, options: ServerOptions) -> Served {
    let dir = TempDir::new();
    let socket = dir.file("s");
    let server = NbdServer::bind(ServeAddress::Unix(socket.clone()), "disk", device, options).expect("bound");
    server.start().expect("started");
    Served { server, socket, dir }
}

pub fn serve_ram(mib: u64) -> (Served, Arc<RamDevice>) {
    let ram = Arc::new(RamDevice::new("ram", mib * MIB, 512));
    (serve(ram.clone(), ServerOptions::default()), ram)
}

impl Served {
    pub fn uri(&self) -> String {
        uri_of(&self.socket)
    }
    pub fn connect(&self) -> Arc<NbdDevice> {
        NbdDevice::connect(&self.uri()).expect("connected")
    }
    pub fn raw(&self) -> Raw {
        Raw::connect(&self.socket)
    }
}

pub fn uri_of(socket: &Path) -> String {
    format!("nbd+unix:///disk?socket={}", socket.display())
}

/// Waits until `done` returns true; fails after ten seconds.
pub fn eventually(what: &str, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client that speaks raw bytes. Reads time out, so that a test fails instead of hanging.
pub struct Raw<S = UnixStream>(pub S);

impl Raw {
    pub fn connect(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Raw(stream)
    }
}

impl<S: Read + Write> Raw<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("sent");
    }

    pub fn take(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).expect("received");
        bytes
    }

    /// Returns whether the server has closed the connection (the rest of the bytes is dropped).
    pub fn is_closed(&mut self) -> bool {
        let mut sink = [0; 4096];
        loop {
            match self.0.read(&mut sink) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    pub fn greet(&mut self, flags: u32) {
        assert_eq!(&self.take(18)[..16], b"NBDMAGICIHAVEOPT");
        self.send(&flags.to_be_bytes());
    }

    /// Returns the replies to an option, the last one included.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut message = Vec::new();
        encode_option(&mut message, option, data);
        self.send(&message);
        let mut replies = Vec::new();
        loop {
            let header: [u8; OPTION_REPLY_HEADER_BYTES] = self.take(20).try_into().expect("20 bytes");
            let (of, kind, len) = parse_option_reply(&header).expect("a reply");
            assert_eq!(of, option);
            replies.push((kind, self.take(len as usize)));
            if kind == option_reply::ACK || kind & option_reply::ERROR_BIT != 0 {
                return replies;
            }
        }
    }

    /// Shakes hands.
    pub fn go(&mut self, structured: bool) {
        self.greet(3);
        if structured {
            assert_eq!(self.option(option::STRUCTURED_REPLY, &[])[0].0, option_reply::ACK);
            let set = contexts("disk", &["base:allocation"]);
            assert_eq!(self.option(option::SET_META_CONTEXT, &set).len(), 2);
        }
        let replies = self.option(option::GO, &go_data("disk", &[]));
        assert_eq!(replies.last().expect("a reply").0, option_reply::ACK);
    }

    pub fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u32, payload: &[u8]) {
        let mut bytes = WireRequest { flags, command, cookie, offset, len }.encode().to_vec();
        assert_eq!(bytes.len(), REQUEST_BYTES);
        bytes.extend_from_slice(payload);
        self.send(&bytes);
    }

    pub fn reply(&mut self) -> SimpleReply {
        let bytes: [u8; SIMPLE_REPLY_BYTES] = self.take(16).try_into().expect("16 bytes");
        SimpleReply::parse(&bytes).expect("a simple reply")
    }

    /// Returns a chunk: flags, type, cookie, payload.
    pub fn chunk(&mut self) -> (u16, u16, u64, Vec<u8>) {
        let head = self.take(20);
        assert_eq!(head[..4], 0x668e_33ef_u32.to_be_bytes());
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let cookie = u64::from_be_bytes(head[8..16].try_into().expect("8 bytes"));
        let len = u32::from_be_bytes(head[16..20].try_into().expect("4 bytes"));
        (short(4), short(6), cookie, self.take(len as usize))
    }
}

pub fn go_data(name: &str, wants: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(wants.len() as u16).to_be_bytes());
    wants.iter().for_each(|want| data.extend_from_slice(&want.to_be_bytes()));
    data
}

pub fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

/// A device over memory that answers late, from another thread, in a seeded order.
///
/// While it is held it answers nothing.
pub struct Late {
    pub ram: Arc<RamDevice>,
    shared: Arc<LateShared>,
}

struct LateShared {
    state: Mutex<LateState>,
    changed: Condvar,
}

struct LateState {
    jobs: Vec<Box<dyn FnOnce() + Send>>,
    held: bool,
    over: bool,
    rng: Rng,
}

impl Late {
    pub fn new(ram: Arc<RamDevice>, seed: u64) -> Arc<Late> {
        let state = LateState { jobs: Vec::new(), held: false, over: false, rng: Rng::new(seed) };
        let shared = Arc::new(LateShared { state: Mutex::new(state), changed: Condvar::new() });
        let worker = shared.clone();
        std::thread::spawn(move || {
            let mut state = worker.state.lock();
            while !state.over {
                if state.held || state.jobs.is_empty() {
                    worker.changed.wait(&mut state);
                    continue;
                }
                let count = state.jobs.len();
                let index = state.rng.index(count);
                let job = state.jobs.swap_remove(index);
                drop(state);
                job();
                state = worker.state.lock();
            }
        });
        Arc::new(Late { ram, shared })
    }

    pub fn hold(&self, held: bool) {
        self.shared.state.lock().held = held;
        self.shared.changed.notify_all();
    }

    pub fn waiting(&self) -> usize {
        self.shared.state.lock().jobs.len()
    }

    fn later<T: Send + 'static>(&self, job: impl FnOnce(&RamDevice) -> IoFuture<T> + Send + 'static) -> IoFuture<T> {
        let (completer, future) = IoFuture::pending();
        let ram = self.ram.clone();
        let job = Box::new(move || {
            let result: IoResult<T> = block_on(job(&ram));
            completer.complete(result);
        });
        self.shared.state.lock().jobs.push(job);
        self.shared.changed.notify_all();
        future
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl BlockDevice for Late {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.later(move |ram| ram.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.later(move |ram| ram.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.later(|ram| ram.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.later(move |ram| ram.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.later(move |ram| ram.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.later(move |ram| ram.extents(offset, len))
    }
}
