//! Servers come and go.

use crate::common::{Late, MIB, Raw, TempDir, eventually, serve, serve_ram, uri_of};
use larder_device::{
    BlockDevice, Completer, DeviceInfo, IoBuf, IoErrorKind, IoFuture, SharedBuf, WriteFlags, ZeroFlags,
    driver::block_on,
    nbd::{
        NbdDevice,
        proto::{WireRequest, command},
    },
    ram::RamDevice,
};
use larder_serve::nbd::{NbdServer, ServeAddress, ServeErrorKind, ServerOptions};
use std::{
    os::unix::net::UnixListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

fn ram() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new("ram", MIB, 512))
}

fn bind(address: ServeAddress) -> Result<NbdServer, larder_serve::nbd::ServeError> {
    NbdServer::bind(address, "disk", ram(), ServerOptions::default())
}

#[test]
fn tcp_serves_and_a_port_in_use_is_named() {
    let server = bind("tcp:127.0.0.1:0".parse().expect("an address")).expect("bound");
    server.start().expect("started");
    let ServeAddress::Tcp(address) = server.local_address().clone() else { panic!() };
    let device = NbdDevice::connect(&format!("nbd://{address}/disk")).expect("connected");
    let data = IoBuf::copy_of(&[3; 4096]).freeze();
    block_on(device.write(4096, data, WriteFlags { fua: true })).expect("written");
    assert_eq!(block_on(device.read(4096, IoBuf::new(4096))).expect("read")[..], [3; 4096]);
    let error = bind(ServeAddress::Tcp(address.clone())).map(drop).expect_err("in use");
    assert_eq!(error.kind, ServeErrorKind::InUse);
    assert!(error.to_string().contains(&address), "{error}");
    assert!(server.shutdown());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = TempDir::new();
    let path = dir.file("s");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists(), "the dead server's socket file");
    let address = ServeAddress::Unix(path.clone());
    let server = bind(address.clone()).expect("replaced");
    let error = bind(address.clone()).map(drop).expect_err("in use");
    assert_eq!((error.kind, error.to_string().contains("another server listens")), (ServeErrorKind::InUse, true));
    drop(server);
    assert!(!path.exists(), "the socket file goes with its server");
    std::fs::write(&path, b"precious").expect("a file");
    let error = bind(address).map(drop).expect_err("in the way");
    assert_eq!(error.kind, ServeErrorKind::InUse);
    assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn shutdown_lets_requests_in_flight_finish() {
    let late = Late::new(Arc::new(RamDevice::new("ram", MIB, 512)), 3);
    let served = serve(late.clone(), ServerOptions::default());
    let mut raw = served.raw();
    raw.go(false);
    late.hold(true);
    for cookie in 0..32 {
        raw.request(command::WRITE, 0, cookie, cookie * 512, 512, &[cookie as u8 + 1; 512]);
    }
    eventually("all in the device", || late.waiting() == 32);
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| served.server.shutdown());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!shutdown.is_finished());
        late.hold(false);
        assert!(shutdown.join().expect("no panic"), "in order");
    });
    let mut cookies: Vec<u64> = (0..32).map(|_| raw.reply().cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..32).collect::<Vec<u64>>());
    assert!(raw.is_closed());
    assert!(!served.socket.exists());
    assert_eq!(served.server.stats().connections_now, 0);
    let image = late.ram.snapshot();
    (0..32).for_each(|i| assert_eq!(image[i * 512], i as u8 + 1));
}

/// The commands without data that may take long, for a range of 32 MiB.
fn long_ranges() -> [(u16, u32); 2] {
    [(command::WRITE_ZEROES, 32 << 20), (command::TRIM, 32 << 20)]
}

#[test]
fn long_ranges_begin_a_few_at_a_time_and_are_all_answered() {
    for (command, len) in long_ranges() {
        let late = Late::new(Arc::new(RamDevice::new("ram", 64 * MIB, 512)), 5);
        let served = serve(late.clone(), ServerOptions::default());
        let mut raw = served.raw();
        raw.go(false);
        late.hold(true);
        for cookie in 0..40 {
            raw.request(command, 0, cookie, 0, len, &[]);
        }
        eventually("two in the device", || late.waiting() == 2);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(late.waiting(), 2, "no more than 64 MiB are under way");
        late.hold(false);
        let mut cookies: Vec<u64> = (0..40).map(|_| raw.reply().cookie).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..40).collect::<Vec<u64>>());
        // Many short ones are under way at a time.
        late.hold(true);
        for cookie in 0..64 {
            raw.request(command, 0, cookie, cookie * 4096, 4096, &[]);
        }
        eventually("64 in the device", || late.waiting() == 64);
        late.hold(false);
    }
}

#[test]
fn ranges_that_have_not_begun_go_with_their_client() {
    for (command, len) in long_ranges() {
        requests_go_with_their_client(command, len, ServerOptions::default());
        // The server has received two of them when the client goes.
        requests_go_with_their_client(command, len, ServerOptions { requests_in_flight_max: 2, ..Default::default() });
    }
}

fn requests_go_with_their_client(command: u16, len: u32, options: ServerOptions) {
    let ram = Arc::new(RamDevice::new("ram", 128 * MIB, 512));
    block_on(ram.write(64 * MIB, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default())).expect("written");
    let late = Late::new(ram, 6);
    let served = serve(late.clone(), options);
    let mut raw = served.raw();
    raw.go(false);
    late.hold(true);
    // The first two are under way when the client goes. All are one message: a server that stopped
    // reading leaves a socket full after some 270 small ones.
    let request = |cookie: u64| {
        let offset = if cookie < 2 { 0 } else { 64 * MIB };
        WireRequest { flags: 0, command, cookie, offset, len }.encode()
    };
    raw.send(&(0..300).flat_map(request).collect::<Vec<u8>>());
    eventually("two in the device", || late.waiting() >= 2);
    // A program that another test starts holds the socket, too, until it runs.
    raw.0.shutdown(std::net::Shutdown::Both).expect("shut down");
    drop(raw);
    late.hold(false);
    eventually("the connection's end", || served.server.stats().connections_now == 0);
    let at = 64 << 20;
    assert_eq!(late.ram.snapshot()[at..at + 4096], [7; 4096], "requests that had not begun are dropped");
    assert!(served.server.shutdown());
}

#[test]
fn shutdown_under_load_loses_no_acknowledged_write() {
    for seed in 0..4 {
        let late = Late::new(Arc::new(RamDevice::new("ram", MIB, 512)), seed);
        let served = serve(late.clone(), ServerOptions::default());
        let acknowledged = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u64)
                .map(|writer| {
                    let device = served.connect();
                    scope.spawn(move || {
                        let mut done = Vec::new();
                        for i in 0.. {
                            let sector = writer * 600 + i % 600;
                            let value = (i / 600 + 1) as u8;
                            let data = IoBuf::copy_of(&[value; 512]).freeze();
                            if block_on(device.write(sector * 512, data, WriteFlags::default())).is_err() {
                                return done;
                            }
                            done.push((sector, value));
                        }
                        done
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(40));
            assert!(served.server.shutdown(), "seed {seed}");
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(!acknowledged.is_empty());
        let image = late.ram.snapshot();
        for (sector, value) in acknowledged {
            // A later write of the same sector may have been done and not acknowledged.
            assert!(image[sector as usize * 512] >= value, "seed {seed}, sector {sector}");
        }
    }
}

#[test]
fn shutdown_is_bounded_where_the_device_hangs_or_the_client_does_not_read() {
    let late = Late::new(Arc::new(RamDevice::new("ram", 64 * MIB, 512)), 4);
    let options = ServerOptions { shutdown_timeout: Duration::from_millis(100), ..Default::default() };
    let served = serve(late.clone(), options);
    let mut deaf = served.raw();
    deaf.go(false);
    for cookie in 0..32 {
        deaf.request(command::READ, 0, cookie, 0, 1 << 20, &[]);
    }
    std::thread::sleep(Duration::from_millis(50));
    let since = Instant::now();
    assert!(!served.server.shutdown(), "cut off");
    assert!(since.elapsed() < Duration::from_secs(5));
    assert_eq!(served.server.stats().connections_now, 0);
}

/// Answers no read.
struct Never(RamDevice, Mutex<Vec<Completer<IoBuf>>>);

impl BlockDevice for Never {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn read(&self, _: u64, _: IoBuf) -> IoFuture<IoBuf> {
        let (completer, future) = IoFuture::pending();
        self.1.lock().expect("no panic").push(completer);
        future
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.0.write(offset, data, flags)
    }
    fn flush(&self) -> IoFuture<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.0.discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.0.write_zeroes(offset, len, flags)
    }
}

#[test]
fn a_server_that_was_shut_down_waits_for_nothing_again() {
    let never = Arc::new(Never(RamDevice::new("ram", MIB, 512), Mutex::default()));
    let options = ServerOptions { shutdown_timeout: Duration::from_secs(2), ..Default::default() };
    let served = serve(never.clone(), options);
    let mut client = served.raw();
    client.go(false);
    client.request(command::READ, 0, 1, 0, 4096, &[]);
    while never.1.lock().expect("no panic").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!served.server.shutdown(), "cut off");
    let since = Instant::now();
    assert!(!served.server.shutdown(), "it was");
    drop(served);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

#[test]
fn a_slow_handshake_ends_and_connections_are_limited() {
    let options =
        ServerOptions { handshake_timeout: Duration::from_millis(150), connections_max: 3, ..Default::default() };
    let served = serve(ram(), options);
    let mut busy = served.raw();
    busy.go(false);
    let (mut mute, mut slow) = (served.raw(), served.raw());
    slow.greet(3);
    eventually("three connections", || served.server.stats().connections_now == 3);
    assert!(served.raw().is_closed(), "a fourth is refused");
    assert_eq!(served.server.stats().connections_refused, 1);
    assert!(mute.is_closed() && slow.is_closed());
    eventually("one connection", || served.server.stats().connections_now == 1);
    assert_eq!(served.server.stats().protocol_errors, 2);
    busy.request(command::FLUSH, 0, 8, 0, 0, &[]);
    assert_eq!(busy.reply().cookie, 8, "the handshake's limit is over for who is through");
    served.connect();
}

#[test]
fn many_connections_at_once() {
    let (served, ram) = serve_ram(1);
    let mut raws: Vec<Raw> = (0..100).map(|_| served.raw()).collect();
    raws.iter_mut().for_each(|raw| raw.go(false));
    for (i, raw) in raws.iter_mut().enumerate() {
        raw.request(command::WRITE, 0, i as u64, i as u64 * 512, 512, &[i as u8 + 1; 512]);
    }
    for (i, raw) in raws.iter_mut().enumerate() {
        assert_eq!((raw.reply().error, ram.snapshot()[i * 512]), (0, i as u8 + 1));
    }
    assert_eq!(served.server.stats().connections_now, 100);
    drop(raws);
    eventually("all gone", || served.server.stats().connections_now == 0);
}

#[test]
fn a_device_reconnects_when_its_server_comes_back() {
    let dir = TempDir::new();
    let address = ServeAddress::Unix(dir.file("s"));
    let start = |device: Arc<dyn BlockDevice>| {
        let server = NbdServer::bind(address.clone(), "disk", device, ServerOptions::default()).expect("bound");
        server.start().expect("started");
        server
    };
    let server = start(ram());
    let device = NbdDevice::connect(&uri_of(&dir.file("s"))).expect("connected");
    let write = |value| block_on(device.write(0, IoBuf::copy_of(&[value; 512]).freeze(), WriteFlags::default()));
    write(1).expect("written");
    block_on(device.flush()).expect("flushed");
    write(2).expect("written, not flushed");
    drop(server);
    eventually("gone", || write(3).is_err());
    let server = start(ram());
    eventually("back", || write(4).is_ok());
    let error = block_on(device.flush()).expect_err("the write of 2 may be lost");
    assert!(error.to_string().contains("not flushed"), "{error}");
    block_on(device.flush()).expect("once is enough");
    assert_eq!(block_on(device.read(0, IoBuf::new(512))).expect("read")[..], [4; 512]);
    drop(server);
    eventually("gone", || write(5).is_err());
    // An export of another size, or in blocks that requests of this device may break, is another.
    for (bytes, sector_bytes) in [(2 * MIB, 512), (MIB, 4096)] {
        let _other = start(Arc::new(RamDevice::new("ram", bytes, sector_bytes)));
        for _ in 0..8 {
            let error = write(6).expect_err("an export of another size is another device");
            assert_eq!(error.kind, IoErrorKind::Gone, "{error}");
            std::thread::sleep(Duration::from_millis(60));
        }
    }
}
