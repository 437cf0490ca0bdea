//! Bad input to the command line: each gets one sentence that names the thing and what would be right, a non-zero exit,
//! and changes nothing on any file.
//!
//! What a client may do wrong over the wire is tested with the clients.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{MIB, Scratch, Volume, ends, larder, stands_in};

/// Name, length and content of every file below the folder; sockets, logs and pipes by name only.
fn contents(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        let mut hasher = DefaultHasher::new();
        if path.is_file() && path.extension().is_none_or(|ext| ext != "log") {
            fs::read(&path).expect("a file of ours").hash(&mut hasher);
        }
        found.insert(path, hasher.finish());
    }
    found
}

/// The command must be refused as the head of this file says, with all `words` in its sentence (case does not count).
fn refused(scratch: &Scratch, command: &mut Command, words: &[&str]) {
    let folder = scratch.path(".");
    let before = contents(&folder);
    let out = ends(command);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(matches!(out.status.code(), Some(1 | 2)), "{command:?}: {}\n{said}{complaint}", out.status);
    assert_eq!(said, "", "{command:?} speaks of success");
    let sentence = complaint.trim_end();
    assert!(!sentence.is_empty() && !sentence.contains('\n'), "{command:?} must say one sentence:\n{complaint}");
    let lower = sentence.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{command:?} does not say {word:?}: {sentence}");
    }
    assert!(!lower.contains("panicked"), "{command:?}: {sentence}");
    let after = contents(&folder);
    let changed: Vec<_> = before.iter().filter(|(path, hash)| after.get(*path) != Some(hash)).collect();
    assert!(changed.is_empty(), "{command:?} changed {changed:?}");
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(new.is_empty(), "{command:?} left {new:?}");
}

fn create(flash: &Path, origin: &Path, options: &[&str]) -> Command {
    let mut command = larder(["create", "--flash"]);
    command.arg(flash).arg("--origin").arg(origin).args(options);
    command
}

fn serve(flash: &Path, address: &str) -> Command {
    let mut command = larder(["serve", "--flash"]);
    command.arg(flash).args(["--nbd", address]);
    command
}

#[test]
fn create_refuses_a_wrong_geometry() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("geometry");
    let origin = scratch.file("origin", 16 * MIB);
    let flash = scratch.path("flash");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--size", "64M", "--chunk", "5K"], &["chunk", "power of two"]),
        (&["--size", "64M", "--chunk", "2K"], &["chunk", "4"]),
        (&["--size", "64M", "--chunk", "256K"], &["chunk", "128"]),
        (&["--size", "64M", "--chunk", "many"], &["chunk", "many"]),
        (&["--size", "64M", "--chunk", "0"], &["chunk"]),
        (&["--size", "64M", "--weu", "3M"], &["weu", "power of two"]),
        (&["--size", "64M", "--weu", "8M"], &["weu", "4"]),
        (&["--size", "64M", "--weu", "64K", "--chunk", "128K"], &["weu"]),
        (&["--size", "8M", "--weu", "2M"], &["flash", "small"]),
        (&["--size", "-1"], &["size"]),
        (&["--size", "99999999999999999999G"], &["size"]),
        (&["--size", "64M", "--fp-index", "60"], &["fp-index", "75"]),
        (&["--size", "64M", "--mode", "write-sideways"], &["mode", "write-back"]),
        (&["--size", "64M", "--compress", "rar"], &["compress", "lz4"]),
        (&["--size", "64M", "--dedup", "maybe"], &["dedup", "on"]),
        (&["--size", "64M", "--wings", "2"], &["--wings"]),
        // A new flash file needs a size.
        (&[], &["--size"]),
    ];
    for (options, words) in cases {
        refused(&scratch, &mut create(&flash, &origin, options), words);
    }
    // A flash file that is there, and is too small.
    let small = scratch.file("small", 4 * MIB);
    refused(&scratch, &mut create(&small, &origin, &[]), &["flash", "small"]);
}

#[test]
fn an_origin_must_be_there_whole_and_free() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("origins");
    let nowhere = scratch.path("nowhere");
    let nowhere_name = nowhere.display().to_string();
    refused(&scratch, &mut create(&scratch.path("flash"), &nowhere, &["--size", "64M"]), &[&nowhere_name]);
    let empty = scratch.file("empty", 0);
    refused(&scratch, &mut create(&scratch.path("flash"), &empty, &["--size", "64M"]), &["empty"]);
    let dead = format!("nbd+unix:///?socket={nowhere_name}");
    refused(&scratch, &mut create(&scratch.path("flash"), Path::new(&dead), &["--size", "64M"]), &[&nowhere_name]);

    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, &[]);
    let socket = scratch.path("sock");
    let address = format!("unix:{}", socket.display());
    let origin_name = volume.origin.display().to_string();

    let aside = scratch.path("aside");
    fs::rename(&volume.origin, &aside).expect("a rename");
    refused(&scratch, &mut serve(&volume.flash, &address), &[&origin_name]);
    fs::rename(&aside, &volume.origin).expect("a rename");

    let file = File::options().write(true).open(&volume.origin).expect("the origin");
    file.set_len(8 * MIB).expect("a smaller origin");
    refused(&scratch, &mut serve(&volume.flash, &address), &[&origin_name, "smaller"]);
    file.set_len(16 * MIB).expect("the old size");

    // Two volumes over one origin: the first that serves has it.
    let other = Volume::over(&scratch, "other", &volume.origin, 64 * MIB, &[]);
    let server = volume.serve();
    refused(&scratch, &mut serve(&other.flash, &address), &[&origin_name, "serve"]);
    server.stop();
    other.serve().stop();
}

#[test]
fn a_flash_must_be_ours_and_free() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("flashes");
    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, &[]);
    let address = format!("unix:{}", scratch.path("sock").display());
    let flash_name = volume.flash.display().to_string();

    // The flash of one volume is not silently made the flash of another.
    let other_origin = scratch.file("other-origin", 16 * MIB);
    refused(&scratch, &mut create(&volume.flash, &other_origin, &[]), &[&flash_name]);
    // Nor does it serve before another origin.
    let mut wrong_origin = serve(&volume.flash, &address);
    refused(&scratch, wrong_origin.arg("--origin").arg(&other_origin), &["origin"]);

    let blank = scratch.file("blank", 64 * MIB);
    let noise = scratch.path("noise");
    fs::write(&noise, support::image::noise(3, 1 << 20)).expect("a file");
    for foreign in [blank, noise, scratch.path("absent")] {
        let name = foreign.display().to_string();
        refused(&scratch, &mut serve(&foreign, &address), &[&name]);
        for command in ["status", "flush", "verify", "dump"] {
            refused(&scratch, larder([command, "--flash"]).arg(&foreign), &[&name]);
        }
    }

    let server = volume.serve();
    refused(&scratch, &mut serve(&volume.flash, &address), &[&flash_name, "use"]);
    refused(&scratch, &mut create(&volume.flash, &other_origin, &[]), &[&flash_name]);
    server.stop();
    volume.serve().stop();
}

#[test]
fn an_address_must_be_free() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("addresses");
    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, &[]);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("tcp:127.0.0.1:{port}")), &[&port, "listens"]);

    let socket = scratch.path("taken.sock");
    let taken = UnixListener::bind(&socket).expect("a socket");
    let name = socket.display().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("unix:{name}")), &[&name, "listens"]);
    drop(taken);
    // What a killed server left is no reason to refuse.
    volume.serve_at(&format!("unix:{name}"), &[]).stop();

    // A file that is no socket stays.
    let file = scratch.file("plain", 10);
    let name = file.display().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("unix:{name}")), &[&name]);
    for wrong in ["tcp:127.0.0.1", "tcp:127.0.0.1:99999", "carrier-pigeon:7", "unix:"] {
        refused(&scratch, &mut serve(&volume.flash, wrong), &["unix:"]);
    }
}

#[test]
fn an_option_file_must_be_readable() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("option-file");
    let volume = Volume::create(&scratch, 64 * MIB, 16 * MIB, &[]);
    let address = format!("unix:{}", scratch.path("sock").display());
    let garbled = scratch.path("garbled.toml");
    fs::write(&garbled, b"\xff\xfe = [").expect("a file");
    let unknown = scratch.path("unknown.toml");
    fs::write(&unknown, "wings = 2\n").expect("a file");
    for options in [scratch.path("absent.toml"), garbled, unknown] {
        let name = options.display().to_string();
        refused(&scratch, serve(&volume.flash, &address).arg("--config").arg(&options), &[&name]);
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("usage");
    for args in [&["fly"][..], &["serve"], &["create", "--flash"], &["status", "--flash", "x", "--wings"]] {
        refused(&scratch, &mut larder(args), &[]);
        assert_eq!(ends(&mut larder(args)).status.code(), Some(2), "{args:?}");
    }
}
