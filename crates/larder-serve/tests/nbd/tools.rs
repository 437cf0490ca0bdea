//! Real clients against the server, and a real server for the client. A missing tool is skipped, in
//! words.

use crate::common::{MIB, Served, TempDir, eventually, serve_ram, uri_of};
use larder_device::{
    BlockDevice, IoBuf, IoResult, WriteFlags, ZeroFlags, driver::block_on, nbd::NbdDevice, ram::RamDevice, rng::Rng,
};
use larder_serve::nbd::{NbdServer, ServeAddress, ServerOptions};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

fn installed(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|directory| directory.join(tool).is_file()));
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

/// Runs a tool. Returns its standard output on success.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).stdin(Stdio::null()).output().expect("the tool runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Makes a file of noise with holes.
fn image(path: &Path, bytes: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; bytes];
    let mut rng = Rng::new(seed);
    for piece in data.chunks_mut(256 << 10) {
        if rng.chance(1, 2) {
            rng.fill(piece);
        }
    }
    std::fs::write(path, &data).expect("a file");
    data
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn nbdinfo_understands_the_export() {
    if !installed("nbdinfo") {
        return;
    }
    let (served, ram) = serve_ram(8);
    block_on(ram.write(0, IoBuf::copy_of(&[1; 4096]).freeze(), WriteFlags::default())).expect("written");
    let json = run("nbdinfo", &["--json", &served.uri()]);
    for want in [
        "\"export-name\": \"disk\"",
        "\"description\": \"Larder\"",
        "\"export-size\": 8388608",
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 512",
    ] {
        assert!(json.contains(want), "{want} is not in {json}");
    }
    assert!(run("nbdinfo", &["--list", &served.uri()]).contains("export=\"disk\""));
    let map = run("nbdinfo", &["--map", &served.uri()]);
    assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
}

#[test]
fn nbdcopy_copies_in_and_out() {
    if !installed("nbdcopy") {
        return;
    }
    let (served, ram) = serve_ram(32);
    let (from, to) = (served.dir.file("from"), served.dir.file("to"));
    let data = image(&from, 32 << 20, 1);
    run("nbdcopy", &["--flush", text(&from), &served.uri()]);
    assert!(ram.snapshot() == data);
    run("nbdcopy", &[&served.uri(), text(&to)]);
    assert!(std::fs::read(&to).expect("a copy") == data);
    let (other, other_ram) = serve_ram(32);
    run("nbdcopy", &["--connections=4", &served.uri(), &other.uri()]);
    assert!(other_ram.snapshot() == data);
}

#[test]
fn qemu_img_converts_in_and_out() {
    if !installed("qemu-img") {
        return;
    }
    let (served, ram) = serve_ram(16);
    let (from, to) = (served.dir.file("from"), served.dir.file("to"));
    let data = image(&from, 16 << 20, 2);
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&from), &served.uri()]);
    assert!(ram.snapshot() == data);
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &served.uri(), text(&to)]);
    assert!(std::fs::read(&to).expect("a copy") == data);
    assert!(run("qemu-img", &["map", "--output=json", "-f", "raw", &served.uri()]).contains("\"zero\": true"));
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !installed("qemu-io") {
        return;
    }
    let (served, _) = serve_ram(16);
    let uri = served.uri();
    let script = [
        "write -P 1 0 1M",
        "write -f -P 2 1M 64k",
        "read -P 1 0 1M",
        "read -P 2 1M 64k",
        "write -z 4k 8k",
        "write -z -u 64k 64k",
        "read -P 0 4k 8k",
        "read -P 0 64k 64k",
        "discard 512k 64k",
        "flush",
        "aio_write -P 3 2M 1M",
        "aio_write -P 4 3M 1M",
        "aio_flush",
        "read -P 3 2M 1M",
        "read -P 4 3M 1M",
    ];
    let mut arguments = vec!["-f", "raw", uri.as_str()];
    script.iter().for_each(|line| arguments.extend(["-c", line]));
    let out = run("qemu-io", &arguments);
    assert!(!out.contains("failed"), "{out}");
    assert_eq!(served.server.stats().errors, 0);
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio") {
        return;
    }
    let (served, _) = serve_ram(64);
    let uri = format!("--uri={}", served.uri());
    let out = run(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bsrange=4k-64k",
            "--size=16m",
            "--offset_increment=16m",
            "--numjobs=4",
            "--iodepth=16",
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
            "--randseed=7",
            "--verify_state_save=0",
        ],
    );
    assert!(!out.contains("verify: bad") && out.contains("err= 0"), "{out}");
    assert_eq!(served.server.stats().errors, 0);
}

#[test]
fn clients_come_by_tcp_too() {
    if !installed("nbdinfo") {
        return;
    }
    let device = Arc::new(RamDevice::new("ram", MIB, 512));
    let server = NbdServer::bind(ServeAddress::Tcp("127.0.0.1:0".into()), "disk", device, ServerOptions::default())
        .expect("bound");
    server.start().expect("started");
    let ServeAddress::Tcp(address) = server.local_address() else { panic!() };
    assert_eq!(run("nbdinfo", &["--size", &format!("nbd://{address}/disk")]).trim(), "1048576");
}

/// A third-party server that ends with the test.
struct Nbdkit(Child);

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nbdkit(dir: &TempDir, arguments: &[&str]) -> Nbdkit {
    let socket = dir.file("k");
    let mut command = Command::new("nbdkit");
    command.args(["-f", "--exit-with-parent", "-e", "disk", "-U", text(&socket)]).args(arguments);
    let child = Nbdkit(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("nbdkit runs"));
    eventually("nbdkit listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    child
}

#[test]
fn nbdkit_serves_our_client() {
    if !installed("nbdkit") {
        return;
    }
    // With every ability, and without: then data writes the zeroes, a flush replaces FUA, and flush
    // may be missing.
    let cases: [&[&str]; 4] = [
        &["memory", "8M"],
        &["--filter=nozero", "memory", "8M", "zeromode=none"],
        &[
            "--filter=fua",
            "--filter=blocksize-policy",
            "memory",
            "8M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64k",
            "blocksize-error-policy=error",
        ],
        &["--filter=delay", "memory", "8M", "rdelay=1ms"],
    ];
    for (i, arguments) in cases.into_iter().enumerate() {
        let dir = TempDir::new();
        let _server = nbdkit(&dir, arguments);
        let device = NbdDevice::connect(&uri_of(&dir.file("k"))).expect("connected");
        assert_eq!(device.info().size_bytes, 8 * MIB, "{arguments:?}");
        assert_eq!(device.info().sector_bytes, if i == 2 { 4096 } else { 512 });
        let mut data = IoBuf::new(1 << 20);
        Rng::new(i as u64).fill(&mut data);
        let data = data.freeze();
        block_on(device.write(4096, data.clone(), WriteFlags { fua: true })).expect("written");
        let reads: Vec<_> = (0..64).map(|i| (i, device.read(4096 + i * 16384, IoBuf::new(16384)))).collect();
        for (i, read) in reads {
            let at = i as usize * 16384;
            assert!(block_on(read).expect("read")[..] == data[at..at + 16384], "{arguments:?}");
        }
        block_on(device.write_zeroes(0, 3 << 20, ZeroFlags { fua: true, ..Default::default() })).expect("zeroed");
        assert!(block_on(device.read(0, IoBuf::new(3 << 20))).expect("read").iter().all(|&b| b == 0));
        block_on(device.discard(0, MIB)).expect("discarded");
        block_on(device.flush()).expect("flushed");
    }
}

/// A request of nbdkit's log: its name, its first byte, its length, and whether it has FUA.
fn logged(log: &Path) -> Vec<(String, u64, u64, bool)> {
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal number");
    let text = std::fs::read_to_string(log).expect("nbdkit's log");
    let requests = text.lines().filter_map(|line| line.split_once("connection=").map(|(_, rest)| rest));
    requests
        .filter_map(|request| {
            let mut words = request.split(' ').skip(1);
            let name = words.next()?;
            let values: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
            let value = |key: &str| values.get(key).copied();
            // An answer has the name, too, after three dots.
            let is_request = ["Write", "Zero", "Flush"].contains(&name) && value("return").is_none();
            is_request.then(|| {
                (
                    name.to_owned(),
                    value("offset").map_or(0, hex),
                    value("count").map_or(0, hex),
                    value("fua") == Some("1"),
                )
            })
        })
        .collect()
}

/// Each form of a durable request: with the flag, with a flush behind it, by data.
#[test]
fn durable_requests_are_durable_at_each_kind_of_server() {
    if !installed("nbdkit") {
        return;
    }
    const LONG: u64 = 40 * MIB;
    for (has_fua, has_zeroes) in [(true, true), (true, false), (false, true), (false, false)] {
        let dir = TempDir::new();
        let log = dir.file("log");
        let logfile = format!("logfile={}", text(&log));
        let mut arguments = vec!["--filter=log", "--filter=fua"];
        if !has_zeroes {
            arguments.push("--filter=nozero");
        }
        arguments.extend(["memory", "64M", &logfile]);
        // Without a mode the filter hides FUA.
        if has_fua {
            arguments.push("fuamode=native");
        }
        if !has_zeroes {
            arguments.push("zeromode=none");
        }
        let _server = nbdkit(&dir, &arguments);
        let device = NbdDevice::connect(&uri_of(&dir.file("k"))).expect("connected");
        let data = |len: u64| IoBuf::zeroed(len as usize).freeze();
        let zero = ZeroFlags { fua: true, ..ZeroFlags::default() };
        type Call<'a> = (&'a str, u64, Box<dyn Fn(bool) -> IoResult<()> + 'a>);
        let plain = |fua| if fua { zero } else { ZeroFlags::default() };
        let calls: [Call<'_>; 4] = [
            ("Write", 4096, Box::new(|fua| block_on(device.write(512, data(4096), WriteFlags { fua })))),
            ("Write", LONG, Box::new(|fua| block_on(device.write(512, data(LONG), WriteFlags { fua })))),
            ("Zero", 4096, Box::new(|fua| block_on(device.write_zeroes(512, 4096, plain(fua))))),
            ("Zero", LONG, Box::new(|fua| block_on(device.write_zeroes(512, LONG, plain(fua))))),
        ];
        for (name, len, call) in &calls {
            for fua in [true, false] {
                let before = logged(&log).len();
                call(fua).unwrap_or_else(|error| panic!("{name} of {len} bytes: {error}"));
                let mut seen = logged(&log).split_off(before);
                let what = format!("{name} of {len} bytes, FUA {fua} at {arguments:?}: {seen:?}");
                // Without FUA at the server a flush follows, after the last piece.
                if fua && !has_fua {
                    assert_eq!(seen.pop().map(|last| last.0).as_deref(), Some("Flush"), "{what}");
                }
                assert!(!seen.is_empty() && seen.iter().all(|piece| piece.3 == (fua && has_fua)), "{what}");
                let sent = if has_zeroes { name } else { "Write" };
                assert!(seen.iter().all(|piece| piece.0 == sent), "{what}");
                seen.sort_by_key(|piece| piece.1);
                let end = seen.iter().fold(512, |at, piece| if piece.1 == at { at + piece.2 } else { 0 });
                assert_eq!(end, 512 + len, "{what}");
            }
        }
    }
}

#[test]
fn a_server_served_again_is_the_same() {
    if !installed("nbdcopy") {
        return;
    }
    let (origin, ram) = serve_ram(16);
    let data = image(&origin.dir.file("from"), 16 << 20, 5);
    let front: Served = crate::common::serve(origin.connect(), ServerOptions::default());
    run("nbdcopy", &[text(&origin.dir.file("from")), &front.uri()]);
    assert!(ram.snapshot() == data);
}
