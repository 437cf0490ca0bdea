//! The requests of all clients together stay within `--ram-requests`.
//!
//! That holds even if clients ask for much and take nothing. The server gives the memory back after
//! them, and serves others meanwhile.

use crate::support::wire::{READ, WRITE, WRITE_ZEROES, Wire};
use crate::support::{Scratch, Server, Volume, larder, run};
use std::{
    fs,
    io::Read,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// The budget that the server is given.
const BUDGET_MIB: u64 = 64;
/// The memory of the server beside it: code, 128 KiB of receive buffer a connection, threads,
/// slack.
const BESIDE_MIB: u64 = 48;
/// The memory that a cache takes for itself while it is filled.
const ENGINE_MIB: u64 = 64;
/// The length of the longest requests that clients may send.
const REQUEST_BYTES: u32 = 32 << 20;

/// Returns a figure of `/proc/PID/status`, in MiB.
fn memory(server: &Server, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).expect("the figure");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

/// Waits until the server takes no more memory.
fn settle(server: &Server) {
    let (mut last, mut since) = (0, Instant::now());
    let began = Instant::now();
    while since.elapsed() < Duration::from_millis(500) && began.elapsed() < Duration::from_secs(20) {
        let now = memory(server, "VmHWM:");
        if now > last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn serve(scratch: &Scratch) -> (Volume, Server) {
    let file = scratch.file("image", 4 * u64::from(REQUEST_BYTES));
    let volume = Volume::bare(scratch, "bare", &file);
    let budget = format!("{BUDGET_MIB}M");
    let mut serve = larder(["serve", "--no-cache", "--ram-requests", &budget, "--origin"]);
    serve.arg(&volume.origin).args(["--nbd", &format!("unix:{}", volume.socket().display())]);
    let server = volume.serve_as(&mut serve);
    (volume, server)
}

#[test]
fn clients_that_take_nothing_hold_their_share_and_give_it_back() {
    let scratch = Scratch::new("request-memory");
    let (volume, server) = serve(&scratch);
    let start = memory(&server, "VmRSS:");
    let mut deaf: Vec<Wire> = (0..60)
        .map(|i| {
            let mut wire =
                if i % 2 == 0 { Wire::connect(volume.socket()) } else { Wire::connect_simple(volume.socket()) };
            for k in 0..4 {
                wire.begin(READ, 0, u64::from(REQUEST_BYTES) * k, REQUEST_BYTES, &[]);
            }
            wire
        })
        .collect();
    // Some clients begin long writes and send no more.
    deaf.extend((0..20).map(|_| {
        let mut wire = Wire::connect(volume.socket());
        wire.begin(WRITE, 0, 0, REQUEST_BYTES, &[1; 1024]);
        wire
    }));
    settle(&server);
    let most = memory(&server, "VmHWM:");
    assert!(most <= start + BUDGET_MIB + BESIDE_MIB, "{most} MiB, {start} of them at the start");

    // A client that takes its answers is served.
    let mut lively = Wire::connect(volume.socket());
    let began = Instant::now();
    for k in 0..16 {
        lively.write(k * 4 * MIB, &vec![k as u8 + 1; MIB as usize]);
        assert!(lively.read(k * 4 * MIB, MIB as usize) == vec![k as u8 + 1; MIB as usize]);
    }
    assert!(lively.read(0, REQUEST_BYTES as usize)[..MIB as usize] == [1; 1 << 20]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?} for 64 MiB", began.elapsed());
    drop((deaf, lively));

    let gone = Instant::now();
    while memory(&server, "VmRSS:") > start + 16 {
        assert!(
            gone.elapsed() < Duration::from_secs(30),
            "{} MiB stay, {start} at the start",
            memory(&server, "VmRSS:")
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    server.stop();
}

/// Connections of the tests with many clients: nearly as many as there may be.
const MANY: u64 = 250;

/// Returns the most memory, in MiB, that 250 connections with 256 reads each take beyond idle ones.
///
/// The clients take no reply.
fn most_beyond_idle(budget_mib: u64, read_bytes: u32, chunk: Option<&str>) -> u64 {
    let scratch = Scratch::new("many-short");
    let file = scratch.file("image", 64 * MIB);
    let budget = format!("{budget_mib}M");
    let (volume, server) = match chunk {
        Some(chunk) => {
            let volume = Volume::over(&scratch, "cache", &file, 256 * MIB, &["--chunk", chunk]);
            let server = volume.serve_at(&format!("unix:{}", volume.socket().display()), &["--ram-requests", &budget]);
            (volume, server)
        }
        None => {
            let volume = Volume::bare(&scratch, "bare", &file);
            let mut serve = larder(["serve", "--no-cache", "--ram-requests", &budget, "--origin"]);
            serve.arg(&volume.origin).args(["--nbd", &format!("unix:{}", volume.socket().display())]);
            let server = volume.serve_as(&mut serve);
            (volume, server)
        }
    };
    let mut deaf: Vec<Wire> = (0..MANY).map(|_| Wire::connect(volume.socket())).collect();
    let idle = memory(&server, "VmRSS:");
    let reads = 64 * MIB / u64::from(read_bytes);
    for (client, wire) in deaf.iter_mut().enumerate() {
        for k in 0..256 {
            let at = (client as u64 * 256 + k) % reads;
            wire.begin(READ, 0, at * u64::from(read_bytes), read_bytes, &[]);
        }
    }
    settle(&server);
    let most = memory(&server, "VmHWM:");
    drop(deaf);
    server.stop();
    most - idle
}

#[test]
fn many_short_requests_stay_within_the_budget() {
    // Receive buffers: 128 KiB for each connection.
    let besides = MANY / 8 + 1;
    for budget_mib in [64, 256] {
        for read_bytes in [4 << 10, 64 << 10] {
            let most = most_beyond_idle(budget_mib, read_bytes, None);
            assert!(most <= budget_mib + besides, "{most} MiB for reads of {read_bytes}, {budget_mib} MiB allowed");
        }
    }
}

#[test]
fn many_short_requests_stay_within_the_budget_with_a_cache() {
    // Receive buffers, and the cache's own memory: segments in flight, its indexes, its pool.
    let besides = MANY / 8 + 1 + ENGINE_MIB;
    for (budget_mib, read_bytes, chunk) in [(64, 4 << 10, "8K"), (256, 4 << 10, "8K"), (256, 64 << 10, "64K")] {
        let most = most_beyond_idle(budget_mib, read_bytes, Some(chunk));
        assert!(most <= budget_mib + besides, "{most} MiB for reads of {read_bytes}, {budget_mib} MiB allowed");
    }
}

#[test]
fn clients_that_leave_long_requests_lose_their_places() {
    let scratch = Scratch::new("left-behind");
    let file = scratch.file("image", 4 * u64::from(REQUEST_BYTES));
    let volume = Volume::over(&scratch, "cache", &file, 256 * MIB, &[]);
    let server = volume.serve();
    for _ in 0..MANY {
        let mut wire = Wire::connect(volume.socket());
        for _ in 0..300 {
            wire.begin(WRITE_ZEROES, 0, 0, REQUEST_BYTES, &[]);
        }
    }
    // These are more clients than have a place beside those.
    let began = Instant::now();
    while server_has_places(&volume, 100).is_none() {
        assert!(began.elapsed() < Duration::from_secs(10), "the places of clients that are gone stay taken");
        std::thread::sleep(Duration::from_millis(100));
    }
    let ending = Instant::now();
    server.stop();
    assert!(ending.elapsed() < Duration::from_secs(10), "the end took {:?}", ending.elapsed());
}

/// Greets so many clients at once, if there are places for all.
fn server_has_places(volume: &Volume, clients: usize) -> Option<()> {
    let mut greeted = Vec::new();
    for _ in 0..clients {
        let mut stream = UnixStream::connect(volume.socket()).ok()?;
        stream.read_exact(&mut [0; 18]).ok()?;
        greeted.push(stream);
    }
    Some(())
}

#[test]
fn a_reply_that_is_taken_late_is_whole() {
    let scratch = Scratch::new("late-reply");
    let (volume, server) = serve(&scratch);
    let mut writer = Wire::connect(volume.socket());
    for k in 0..32 {
        writer.write(k * MIB, &vec![k as u8 + 1; MIB as usize]);
    }
    for connect in [Wire::connect, Wire::connect_simple] {
        let mut wire: Wire = connect(volume.socket());
        wire.begin(READ, 0, 0, REQUEST_BYTES, &[]);
        std::thread::sleep(Duration::from_millis(300));
        let data = wire.answer(0, REQUEST_BYTES as usize).expect("read");
        assert!((0..32).all(|k| data[k << 20..(k + 1) << 20].iter().all(|&byte| byte == k as u8 + 1)));
    }
    server.stop();
}

#[test]
fn a_budget_that_is_too_small_for_its_connections_is_refused() {
    let scratch = Scratch::new("small-budget");
    let file = scratch.file("image", MIB);
    let refused = |budget: &str, connections: &str| {
        let mut serve = larder(["serve", "--no-cache", "--ram-requests", budget, "--connections", connections]);
        serve.arg("--origin").arg(&file).args(["--nbd", &format!("unix:{}", scratch.path("s").display())]);
        let out = crate::support::ends(&mut serve);
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        String::from_utf8(out.stderr).expect("UTF-8")
    };
    let said = refused("1M", "256");
    assert!(said.contains("--ram-requests 1.00 MiB is too little for 256 connections"), "{said}");
    assert!(said.contains("give 8.00 MiB or more"), "{said}");
    assert!(refused("16M", "4096").contains("give 128 MiB or more"));
    let said = run(&mut larder(["serve", "--help"]));
    assert!(said.contains("--ram-requests <SIZE>"));
}
