//! The requests of all clients together stay within `--ram-requests`, even if clients ask for much and take nothing. The server gives the
//! memory back after them, and serves others meanwhile.

use crate::support::wire::{READ, WRITE, Wire};
use crate::support::{Scratch, Server, Volume, larder, run};
use std::{
    fs,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
/// The budget that the server is given.
const BUDGET_MIB: u64 = 64;
/// The memory of the server beside it: its code, a receive buffer of 128 KiB for each connection, threads, and slack.
const BESIDE_MIB: u64 = 48;
/// Longest requests that clients may send.
const REQUEST_BYTES: u32 = 32 << 20;

/// A figure of `/proc/PID/status`, in MiB.
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
    assert!(said.contains("give 4.00 MiB or more"), "{said}");
    assert!(refused("16M", "4096").contains("give 64.0 MiB or more"));
    let said = run(&mut larder(["serve", "--help"]));
    assert!(said.contains("--ram-requests <SIZE>"));
}
