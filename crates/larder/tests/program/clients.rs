//! Real NBD clients against a served volume: nbdinfo, nbdcopy, qemu-img, qemu-io, fio and fsx.
//!
//! In most tests the flash is smaller than the touched part of the volume, so that eviction runs
//! beneath. Their data is read back after a restart as well. File systems have a file of their own.

use std::fs;

use larder_engine::designs::ENGINE_DESIGNS;
use larder_format::StoreKind;

use crate::support::image::{disk, noise};
use crate::support::wire::{self, Wire};
use crate::support::{FuseFile, Loop, MIB, Scratch, Volume};
use crate::support::{have_mounts, have_tools, larder, run, sh, stands_in, system};

/// Small units and a small flash: everything turns over quickly.
const SMALL: &[&str] = &["--weu", "512K"];

#[test]
fn nbdinfo_learns_what_the_export_can_do() {
    if !have_tools("nbdinfo", &["nbdinfo"]) {
        return;
    }
    let scratch = Scratch::new("nbdinfo");
    let volume = Volume::create(&scratch, 64 * MIB, 256 * MIB, &[]);
    let server = volume.serve();
    let said = sh("nbdinfo", ["--json", &server.uri]);
    let info: serde_json::Value = serde_json::from_str(&said).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], 256 * MIB, "{said}");
    assert_eq!(export["is_read_only"], false, "{said}");
    let needs = ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_df"];
    for key in needs {
        assert_eq!(export[key], true, "{key}: {said}");
    }
    if !stands_in() {
        assert_eq!(export["can_fast_zero"], true, "{said}");
        let sizes = ["block_size_minimum", "block_size_preferred", "block_size_maximum"];
        let [minimum, preferred, maximum] =
            sizes.map(|key| export[key].as_u64().unwrap_or_else(|| panic!("{key}: {said}")));
        assert!(minimum <= 512 && minimum <= preferred && preferred <= maximum, "{said}");
    }
    // A map of the whole export; a cold sparse origin may be all data or all hole, but every byte
    // is in it.
    let map: serde_json::Value =
        serde_json::from_str(&sh("nbdinfo", ["--map", "--json", &server.uri])).expect("a map in JSON");
    let mapped: u64 = map.as_array().expect("extents").iter().filter_map(|extent| extent["length"].as_u64()).sum();
    assert_eq!(mapped, 256 * MIB, "{map}");
    server.stop();
}

#[test]
fn tcp_serves_as_a_unix_socket_does() {
    if !have_tools("nbdinfo over TCP", &["nbdinfo", "nbdcopy"]) || stands_in() {
        return;
    }
    let scratch = Scratch::new("tcp");
    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, SMALL);
    let port = crate::support::free_port();
    let server = volume.serve_at(&format!("tcp:127.0.0.1:{port}"), &[]);
    let uri = format!("nbd://127.0.0.1:{port}");
    assert_eq!(server.uri.trim_end_matches('/'), uri);
    assert_eq!(sh("nbdinfo", ["--size", &uri]).trim(), (16 * MIB).to_string());
    let image = scratch.path("image");
    fs::write(&image, disk(3, 16 << 20)).expect("an image");
    run(system("nbdcopy").arg(&image).arg(&uri));
    let out = scratch.path("out");
    run(system("nbdcopy").arg(&uri).arg(&out));
    assert!(same(&image, &out), "bytes differ");
    server.stop();
}

#[test]
fn nbdcopy_brings_an_image_in_and_out() {
    if !have_tools("nbdcopy", &["nbdcopy"]) {
        return;
    }
    for mode in ["write-back", "write-through", "write-around"] {
        let scratch = Scratch::new("nbdcopy");
        let options = ["--mode", mode, "--weu", "512K"];
        let volume = Volume::create(&scratch, 32 * MIB, 96 * MIB, &options);
        let server = volume.serve();
        let (image, out) = (scratch.path("image"), scratch.path("out"));
        fs::write(&image, disk(7, 96 << 20)).expect("an image");
        run(system("nbdcopy").arg("--flush").arg(&image).arg(&server.uri));
        run(system("nbdcopy").arg(&server.uri).arg(&out));
        assert!(same(&image, &out), "{mode}: bytes differ");
        server.stop();
        let server = volume.serve();
        run(system("nbdcopy").arg(&server.uri).arg(&out));
        assert!(same(&image, &out), "{mode}: bytes differ after a restart");
        if !stands_in() {
            volume.flush();
        }
        server.stop();
        assert!(same(&image, &volume.origin), "{mode}: the origin alone differs after a full destage");
        if !stands_in() {
            volume.verify();
        }
    }
}

#[test]
fn qemu_img_converts_in_both_directions() {
    if !have_tools("qemu-img", &["qemu-img"]) {
        return;
    }
    let scratch = Scratch::new("qemu-img");
    let volume = Volume::create(&scratch, 32 * MIB, 64 * MIB, SMALL);
    let server = volume.serve();
    let (image, qcow) = (scratch.path("image"), scratch.path("image.qcow2"));
    fs::write(&image, disk(11, 64 << 20)).expect("an image");
    run(system("qemu-img")
        .args(["convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw"])
        .arg(&image)
        .arg(&server.uri));
    run(system("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&image).arg(&server.uri));
    run(system("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).arg(&server.uri).arg(&qcow));
    run(system("qemu-img").args(["compare", "-f", "raw", "-F", "qcow2"]).arg(&image).arg(&qcow));
    // A second image over the first, from a format whose holes become zeroes.
    let second = scratch.path("second");
    fs::write(&second, disk(12, 64 << 20)).expect("an image");
    run(system("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).arg(&second).arg(&qcow));
    run(system("qemu-img").args(["convert", "-n", "-f", "qcow2", "-O", "raw"]).arg(&qcow).arg(&server.uri));
    run(system("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&second).arg(&server.uri));
    server.stop();
    let server = volume.serve();
    run(system("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&second).arg(&server.uri));
    server.stop();
}

/// Runs qemu-io with one `-c` for each command.
///
/// It exits with 0 even if a pattern differs, so its words count.
fn qemu_io(uri: &str, commands: &[&str]) {
    let mut command = system("qemu-io");
    command.args(["-f", "raw", "-d", "unmap", "-t", "none"]);
    for one in commands {
        command.args(["-c", one]);
    }
    let out = command.arg(uri).output().expect("qemu-io");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let wrong = ["verification failed", "failed:", "error"].iter().any(|word| said.contains(word));
    assert!(out.status.success() && !wrong, "{commands:?}: {}\n{said}", out.status);
}

#[test]
fn qemu_io_scripts_read_what_they_wrote() {
    if !have_tools("qemu-io", &["qemu-io"]) {
        return;
    }
    for mode in ["write-back", "write-through", "write-around"] {
        let scratch = Scratch::new("qemu-io");
        let volume = Volume::create(&scratch, 32 * MIB, 64 * MIB, &["--mode", mode, "--weu", "512K"]);
        let server = volume.serve();
        qemu_io(
            &server.uri,
            &[
                "aio_write -P 0x11 0 64k",
                "aio_write -P 0x22 64k 64k",
                "aio_write -P 0x33 1M 1M",
                // Two sectors across a chunk's edge, and three inside one chunk.
                "aio_write -P 0x44 3145216 1024",
                "aio_write -P 0x55 4194816 1536",
                "aio_flush",
                "read -P 0x11 0 64k",
                "read -P 0x22 64k 64k",
                "read -P 0x33 1M 1M",
                "read -P 0 3144704 512",
                "read -P 0x44 3145216 1024",
                "read -P 0 3146240 512",
                "read -P 0 4194304 512",
                "read -P 0x55 4194816 1536",
                "read -P 0 4196352 512",
                // Forced unit access, and over old content.
                "write -f -P 0x66 32k 64k",
                "read -P 0x11 0 32k",
                "read -P 0x66 32k 64k",
                "read -P 0x22 96k 32k",
            ],
        );
        qemu_io(
            &server.uri,
            &[
                "write -P 0x77 8M 1M",
                "write -z 8M 64k",
                "write -z -u 8454144 64k",
                // Not aligned to a chunk.
                "write -z 8782848 1536",
                "discard 8912896 64k",
                "discard 9045504 2560",
                "flush",
                "read -P 0 8M 128k",
                "read -P 0x77 8781824 1024",
                "read -P 0 8782848 1536",
                "read -P 0x77 8784384 512",
                "read -P 0 8912896 64k",
                "read -P 0x77 9044992 512",
                "read -P 0 9045504 2560",
                "read -P 0x77 9048064 512",
            ],
        );
        server.stop();
        let server = volume.serve();
        qemu_io(
            &server.uri,
            &[
                "read -P 0x66 32k 64k",
                "read -P 0x33 1M 1M",
                "read -P 0x44 3145216 1024",
                "read -P 0 3146240 512",
                "read -P 0 8M 128k",
                "read -P 0x77 8781824 1024",
                "read -P 0 8782848 1536",
                "read -P 0 9045504 2560",
                "read -P 0x77 9048064 512",
                "write -P 0x88 0 128k",
                "flush",
            ],
        );
        // A crash of the process: flushed data is there.
        server.kill();
        let server = volume.serve();
        qemu_io(&server.uri, &["read -P 0x88 0 128k", "read -P 0x33 1M 1M", "read -P 0 8M 128k"]);
        server.stop();
    }
}

#[test]
fn fio_verifies_checksums_in_four_jobs() {
    if !have_tools("fio", &["fio"]) {
        return;
    }
    // Whole blocks, then sizes and offsets in sectors that respect no chunk.
    let cases =
        [("write-back", "4k-64k"), ("write-back", "512-24k"), ("write-through", "512-64k"), ("write-around", "4k-64k")];
    let cases = cases.map(|(mode, sizes)| vec!["--mode", mode, "--weu", "512K", sizes]);
    // On a flash that is full soon, also if it has no WEUs to leave half empty.
    let designs = ENGINE_DESIGNS.iter().map(|design| match design.kind() {
        StoreKind::Weus => vec!["--design", design.name, "--weu", "512K", "512-24k"],
        StoreKind::Slots | StoreKind::Buckets => vec!["--design", design.name, "512-24k"],
    });
    for mut options in cases.into_iter().chain(designs) {
        let sizes = options.pop().expect("the sizes are last");
        let scratch = Scratch::new("fio");
        let volume = Volume::create(&scratch, 32 * MIB, 64 * MIB, &options);
        let server = volume.serve();
        let mut fio = system("fio");
        fio.args(["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--iodepth=16", "--randseed=17"])
            .arg(format!("--uri={}", server.uri))
            .arg(format!("--bsrange={sizes}"))
            .args(["--numjobs=4", "--size=16m", "--offset_increment=16m", "--group_reporting"])
            .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_backlog=256", "--fsync=64"])
            // Half of each block is the same: it compresses.
            .args(["--buffer_compress_percentage=50", "--refill_buffers"]);
        // It drops a state file for each job in its working directory.
        fio.arg("--verify_state_save=0").current_dir(scratch.path("."));
        let said = run(&mut fio);
        assert!(said.contains("err= 0"), "{options:?} {sizes}: {said}");
        server.stop();
    }
}

const FSX_OPS: &str = "3000";

/// The options of one run of fsx. It never changes the size of its file.
struct Fsx {
    seed: &'static str,
    bytes: u64,
    align: u64,
    /// Weights of mapped reads and writes, and of punched holes.
    maps: u64,
    holes: u64,
}

impl Fsx {
    fn exercise(&self, scratch: &Scratch, target: &std::path::Path) {
        let Self { seed, bytes, align, maps, holes } = self;
        let config = scratch.path("fsx.toml");
        let text = format!(
            "flen = {bytes}\nblockmode = true\nnosizechecks = true\n[opsize]\nmax = 65536\nmin = {align}\n\
             align = {align}\n[weights]\nclose_open = 0\nread = 10\nwrite = 10\nmapread = {maps}\n\
             mapwrite = {maps}\ntruncate = 0\nfsync = 1\nfdatasync = 1\nposix_fallocate = 0\npunch_hole = {holes}\n"
        );
        fs::write(&config, text).expect("a configuration");
        let mut command = system("fsx");
        command.args(["-N", FSX_OPS, "-S", seed, "-f"]).arg(&config).arg("-P").arg(scratch.path(".")).arg(target);
        let said = run(&mut command);
        assert!(said.contains("All operations completed"), "{said}");
    }
}

#[test]
fn fsx_exercises_the_export() {
    if !have_tools("fsx", &["fsx", "nbdfuse", "losetup"]) || !have_mounts("fsx") {
        return;
    }
    let scratch = Scratch::new("fsx");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, SMALL);
    let server = volume.serve();
    {
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        // Not nbdfuse's file itself: FUSE cuts a write at the page ends of the writer's buffer,
        // perhaps inside a sector. Libnbd then refuses requests that an export of sectors does not
        // take. The loop device's pages merge any byte; holes are punched in whole sectors only.
        let device = Loop::over(&fuse.file());
        let bytes = Fsx { seed: "6", bytes: 4 * MIB, align: 1, maps: 5, holes: 0 };
        bytes.exercise(&scratch, &device.device);
        let holes = Fsx { seed: "7", bytes: 4 * MIB, align: 512, maps: 5, holes: 3 };
        holes.exercise(&scratch, &device.device);
    }
    server.stop();
}

#[test]
fn requests_past_the_end_or_too_long_cost_one_sentence() {
    let scratch = Scratch::new("past-the-end");
    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, SMALL);
    let mut server = volume.serve();
    if stands_in() {
        return;
    }
    let end = 16 * MIB;
    let mut wire = Wire::connect(&server.socket);
    assert_eq!(wire.export_bytes, end);
    wire.write(end - 4096, &noise(1, 4096));
    wire.flush();
    let data = noise(2, 8192);
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const EOVERFLOW: u32 = 75;
    let cases: [(u16, u64, u32, &[u8]); 7] = [
        (wire::READ, end - 512, 1024, &[]),
        (wire::READ, u64::MAX - 511, 1024, &[]),
        (wire::WRITE, end - 4096, 8192, &data),
        (wire::TRIM, end - 512, 4096, &[]),
        (wire::WRITE_ZEROES, end, 512, &[]),
        // Longer than any block size that a server promises.
        (wire::READ, 0, 1 << 30, &[]),
        (99, 0, 512, &[]),
    ];
    for (kind, offset, bytes, data) in cases {
        // A fresh connection: a server may also close the misbehaving one, after its answer.
        let mut wire = Wire::connect(&server.socket);
        let refusal = wire.request(kind, 0, offset, bytes, data).expect_err("refused");
        assert!([EINVAL, ENOSPC, EOVERFLOW].contains(&refusal.errno), "request {kind} at {offset}: {refusal:?}");
        if wire.structured {
            assert!(!refusal.sentence.trim().is_empty(), "request {kind} at {offset}: {refusal:?}");
            assert!(!refusal.sentence.trim().contains('\n'), "{refusal:?}");
        }
        assert!(server.alive());
    }
    // Nothing changed, and the first connection never noticed.
    assert_eq!(wire.read(end - 4096, 4096), noise(1, 4096));
    server.stop();
}

#[test]
fn many_connections_see_each_other() {
    let scratch = Scratch::new("multi-conn");
    let volume = Volume::create(&scratch, 64 * MIB, 64 * MIB, SMALL);
    let server = volume.serve();
    let mut wires: Vec<Wire> = (0..8).map(|_| Wire::connect(&server.socket)).collect();
    let count = wires.len();
    for round in 0..32_u64 {
        let writer = round as usize % count;
        let data = noise(round, 12_288);
        wires[writer].write(round * 8192 + 512, &data);
        // A completed write is seen on every other connection, and a flush on any covers it.
        assert_eq!(wires[(writer + 3) % count].read(round * 8192 + 512, 12_288), data, "round {round}");
        wires[(writer + 5) % count].flush();
    }
    server.kill();
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    for round in 0..32_u64 {
        assert_eq!(wire.read(round * 8192 + 512, 8192), noise(round, 12_288)[..8192], "round {round} after a crash");
    }
    // SIGTERM does not wait for a client that stays (nbdkit does).
    if stands_in() {
        drop(wire);
    }
    server.stop();
}

#[test]
fn commands_answer_help_and_version() {
    if stands_in() {
        return;
    }
    assert!(run(&mut larder(["--version"])).starts_with("larder "));
    for command in ["create", "serve", "status", "flush", "verify", "dump"] {
        let help = run(&mut larder([command, "--help"]));
        assert!(help.contains("--flash"), "{command} --help: {help}");
    }
}

fn same(one: &std::path::Path, other: &std::path::Path) -> bool {
    fs::read(one).expect("a file") == fs::read(other).expect("a file")
}
