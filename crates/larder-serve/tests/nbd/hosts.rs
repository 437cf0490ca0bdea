//! Clients that pause lose nothing, and a connection ends when its client's host is gone.
//!
//! Hosts are network namespaces with a cable between them. They want root and `ip`; without these,
//! the test reports its skip. A host that loses its address is gone: nothing answers for it.
//!
//! `LARDER_PAUSE_SECONDS=N` sets how long clients pause.

use crate::common::{Late, MIB, Raw, eventually};
use larder_device::{
    BlockDevice, IoBuf, WriteFlags,
    driver::block_on,
    nbd::{
        proto::{REQUEST_BYTES, WireRequest, command},
        socket::Keepalive,
    },
    ram::RamDevice,
    rng::Rng,
};
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use std::{
    fs::File,
    io::{ErrorKind, Write},
    net::TcpStream,
    os::fd::AsRawFd,
    process::Command,
    sync::{Arc, atomic::AtomicU32, atomic::Ordering},
    time::{Duration, Instant},
};

fn pause() -> Duration {
    let seconds = std::env::var("LARDER_PAUSE_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(3))
}

fn connect(address: &str) -> Raw<TcpStream> {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let mut raw = Raw(stream);
    raw.go(false);
    raw
}

fn serve_tcp(device: Arc<dyn BlockDevice>, at: &str, options: ServerOptions) -> NbdServer {
    let server = NbdServer::bind(ServeAddress::Tcp(at.into()), "disk", device, options).expect("bound");
    server.start().expect("started");
    server
}

fn address_of(server: &NbdServer) -> String {
    let ServeAddress::Tcp(address) = server.local_address() else { panic!("served by TCP") };
    address.clone()
}

/// Sends requests, reading no reply, until neither side takes any more. Returns how many reads and
/// writes went out whole, and the rest of the last write.
fn fill_windows(raw: &mut Raw<TcpStream>, data: &[u8]) -> (u64, Vec<u8>) {
    for cookie in 0..8 {
        raw.request(command::READ, 0, cookie, 0, 8 << 20, &[]);
    }
    raw.0.set_nonblocking(true).expect("set");
    let mut whole = 0;
    loop {
        let request =
            WireRequest { flags: 0, command: command::WRITE, cookie: 8 + whole, offset: 32 << 20, len: MIB as u32 };
        let mut left = [request.encode().to_vec(), data.to_vec()].concat();
        assert_eq!(left.len(), REQUEST_BYTES + MIB as usize);
        let since = Instant::now();
        while !left.is_empty() {
            match raw.0.write(&left) {
                Ok(sent) => drop(left.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() > Duration::from_secs(1) => {
                    raw.0.set_nonblocking(false).expect("set");
                    return (whole, left);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{error}"),
            }
        }
        whole += 1;
        assert!(whole < 4096, "the server takes writes without end");
    }
}

#[test]
fn a_client_that_pauses_with_full_windows_loses_nothing() {
    let ram = Arc::new(RamDevice::new("ram", 64 * MIB, 512));
    let mut content = IoBuf::new(8 << 20);
    Rng::new(11).fill(&mut content);
    let content = content.freeze();
    block_on(ram.write(0, content.clone(), WriteFlags::default())).expect("written");
    let server = serve_tcp(ram.clone(), "127.0.0.1:0", ServerOptions::default());
    let mut raw = connect(&address_of(&server));
    let data = vec![0xa5; MIB as usize];
    let (whole, rest) = fill_windows(&mut raw, &data);
    std::thread::sleep(pause());
    assert_eq!(server.stats().connections_now, 1, "the client is alive");
    let mut sender = raw.0.try_clone().expect("a clone");
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&rest).expect("the server takes the rest"));
        let (mut reads, mut writes) = (0, 0);
        while reads + writes < 8 + whole + 1 {
            let reply = raw.reply();
            assert_eq!(reply.error, 0);
            if reply.cookie < 8 {
                assert!(raw.take(8 << 20)[..] == content[..], "other bytes");
                reads += 1;
            } else {
                writes += 1;
            }
        }
        assert_eq!((reads, writes), (8, whole + 1));
    });
    assert!(ram.snapshot()[32 << 20..33 << 20] == data[..]);
}

/// Two hosts and a cable, removed when it is dropped.
struct Hosts {
    names: [String; 2],
}

const SERVER_ADDRESS: &str = "10.217.0.1";
const CLIENT_ADDRESS: &str = "10.217.0.2";

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|out| out.status.success())
}

impl Hosts {
    fn new() -> Option<Hosts> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let [server, client] = [format!("larder-s-{id}"), format!("larder-c-{id}")];
        let hosts = Hosts { names: [server.clone(), client.clone()] };
        let made = ip(&format!("netns add {server}"))
            && ip(&format!("netns add {client}"))
            && ip(&format!("-n {server} link add cable type veth peer name cable netns {client}"))
            && ip(&format!("-n {server} addr add {SERVER_ADDRESS}/24 dev cable"))
            && ip(&format!("-n {client} addr add {CLIENT_ADDRESS}/24 dev cable"))
            && ip(&format!("-n {server} link set cable up"))
            && ip(&format!("-n {client} link set cable up"));
        if !made {
            println!("skipped: network namespaces can't be made here");
        }
        made.then_some(hosts)
    }

    /// Runs a function on one of the hosts.
    fn on<T: Send>(&self, host: usize, run: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).expect("a namespace");
        let run = move || {
            // SAFETY: a plain system call; it moves this thread alone, which ends soon.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "the thread moves");
            run()
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
    }

    fn client_is_gone(&self) {
        assert!(ip(&format!("-n {} addr del {CLIENT_ADDRESS}/24 dev cable", self.names[1])));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A host that was not made cannot be removed.
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

/// The number of times that Linux sends unacknowledged data again, here.
///
/// They are at most a second apart if the kernel has the setting.
const RETRIES: &str = "3";

fn few_retries() {
    std::fs::write("/proc/sys/net/ipv4/tcp_retries2", RETRIES).expect("set");
    // Linux 6.15 and newer; without it the end takes a minute.
    let _ = std::fs::write("/proc/sys/net/ipv4/tcp_rto_max_ms", "1000");
}

#[test]
fn a_connection_ends_when_its_clients_host_is_gone_and_not_before() {
    let Some(hosts) = Hosts::new() else { return };
    let late = Late::new(Arc::new(RamDevice::new("ram", 64 * MIB, 512)), 7);
    let keepalive = Keepalive { idle_s: 1, every_s: 1, unanswered_max: 2 };
    let options = ServerOptions { keepalive, ..Default::default() };
    let server = hosts.on(0, || {
        few_retries();
        serve_tcp(late.clone(), &format!("{SERVER_ADDRESS}:0"), options)
    });
    let address = address_of(&server);
    let _idle = hosts.on(1, || connect(&address));
    let mut deaf = hosts.on(1, || connect(&address));
    let mut waiting = hosts.on(1, || connect(&address));
    fill_windows(&mut deaf, &vec![1; MIB as usize]);
    // Longer than an idle host may be silent, and than a host may leave data unacknowledged.
    std::thread::sleep(pause() + Duration::from_secs(2));
    assert_eq!(server.stats().connections_now, 3, "all three hosts answer, whatever their programs do");
    late.hold(true);
    waiting.request(command::READ, 0, 1, 0, 4096, &[]);
    eventually("a request in the device", || late.waiting() > 0);
    hosts.client_is_gone();
    let gone = Instant::now();
    late.hold(false);
    while server.stats().connections_now > 0 {
        assert!(gone.elapsed() < Duration::from_secs(100), "{} connections stay", server.stats().connections_now);
        std::thread::sleep(Duration::from_millis(20));
    }
}
