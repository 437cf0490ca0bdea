//! An opening checks for its memory before it takes it. A refused command names the command that
//! has the flash.

use crate::support::{MIB, Scratch, Volume, begin, ends, larder};
use larder_device::{BlockDevice, driver::block_on, file};
use larder_engine::{CreateOptions, create::plan, designs, superblock};
use std::{
    fs::File,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Address space for a command that must not need more: the program itself, and a few hundred MiB.
const ADDRESS_SPACE_KIB: u64 = 1 << 20;

/// Makes a sparse file with only the superblocks of a cache with so many slots.
fn sparse_flash(scratch: &Scratch, design: &str, slots: u64) -> PathBuf {
    let design = designs::named(design).expect("a design");
    let mut options = CreateOptions {
        origin_uri: format!("file://{}", scratch.file("origin", MIB).display()),
        flash_uuid: [7; 16],
        ..CreateOptions::default()
    };
    design.fit(&mut options);
    let slot_bytes = if u64::from(options.slot_bytes) > 65536 { 512 << 10 } else { options.slot_bytes };
    options.slot_bytes = slot_bytes;
    // Metadata takes a tenth, and metadata slots some more.
    let flash_bytes = (slots * u64::from(slot_bytes) * 5 / 4).next_multiple_of(1 << 30);
    let planned = plan(flash_bytes, 4096, MIB, &options).expect("a layout");
    assert!(u64::from(planned.layout.slot_count) >= slots / 2, "{} slots", planned.layout.slot_count);
    let path = scratch.path("flash");
    File::create(&path).and_then(|file| file.set_len(flash_bytes)).expect("a sparse file");
    let device = file::FileDevice::open(&path, file::OpenOptions::default()).expect("a device");
    block_on(superblock::write(&device, &planned, None)).expect("written");
    block_on(device.flush()).expect("flushed");
    path
}

/// Returns the command, with little memory.
fn frugal(command: &str, flash: &Path, options: &[&str]) -> Command {
    let mut frugal = Command::new("sh");
    frugal.args([
        "-c",
        &format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$@\""),
        "sh",
        env!("CARGO_BIN_EXE_larder"),
        command,
    ]);
    frugal.arg("--flash").arg(flash).args(options);
    frugal
}

/// A valid superblock may claim any number of slots.
///
/// Each command checks for the memory before it takes it.
#[test]
fn a_flash_of_too_many_slots_is_refused_and_its_status_told() {
    for (design, slots) in [("nitro", 1 << 24), ("lru", 1 << 27), ("austere", 1 << 28)] {
        let scratch = Scratch::new("slots");
        let flash = sparse_flash(&scratch, design, slots);
        let nbd = format!("unix:{}", scratch.path("s").display());
        for (command, options) in [
            ("serve", &["--nbd", &nbd][..]),
            ("flush", &[]),
            ("detach", &[]),
            ("set", &["--mode", "write-through"]),
            ("verify", &[]),
            ("verify", &["--repair"]),
            ("dump", &["mappings"]),
        ] {
            let mut run = frugal(command, &flash, options);
            if command == "dump" {
                run = frugal("dump", &flash, &[]);
                run.arg("mappings");
            }
            let out = ends(&mut run);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{design} {command}: {said}");
            assert!(
                said.contains("of memory") && said.contains("slots") && said.lines().count() == 1,
                "{command}: {said}"
            );
        }
        let began = Instant::now();
        let out = ends(&mut frugal("status", &flash, &["--json"]));
        assert!(out.status.success(), "{design}: {}", String::from_utf8_lossy(&out.stderr));
        let status: serde_json::Value = serde_json::from_slice(&out.stdout).expect("an object");
        assert!(status["slots"].as_u64().expect("told") >= slots / 2, "{status}");
        assert_eq!((&status["design"], status.get("dirty_bytes")), (&design.into(), None), "{status}");
        assert_eq!(status["conditions"][0]["name"], "content_not_counted", "{status}");
        let page = ends(&mut frugal("status", &flash, &[]));
        let page = String::from_utf8_lossy(&page.stdout);
        assert!(page.contains("content_not_counted") && !page.contains("dirty"), "{page}");
        assert!(began.elapsed() < Duration::from_secs(60), "it reads two blocks");
    }
}

/// A command that is refused names the command that has the flash.
#[test]
fn a_flash_that_another_command_has_is_told_with_that_command() {
    let scratch = Scratch::new("held");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &[]);
    // A flush that waits for its origin, which does not answer.
    let mute = scratch.path("mute.sock");
    let _listener = UnixListener::bind(&mute).expect("a socket");
    let origin = format!("nbd+unix:///?socket={}", mute.display());
    let mut flush = begin(larder(["flush", "--origin", &origin, "--flash"]).arg(&volume.flash));
    let holder = format!("`larder flush` (process {})", flush.id());
    let told = |command: &mut Command| {
        let out = ends(command);
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let is_told = (0..50).any(|_| {
        let (code, said) = told(larder(["status", "--flash"]).arg(&volume.flash));
        code == Some(1) && said.contains(&holder)
    });
    assert!(is_told && !flush.is_over());
    for mut command in [volume.serve_command(&[]), {
        let mut detach = larder(["detach", "--flash"]);
        detach.arg(&volume.flash);
        detach
    }] {
        let (code, said) = told(&mut command);
        assert!(code == Some(1) && said.contains(&holder) && said.lines().count() == 1, "{said}");
    }
}
