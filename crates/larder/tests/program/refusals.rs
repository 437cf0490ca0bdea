//! Bad input to the command line. Each gets one sentence that names the mistake and the right form,
//! a non-zero exit, and no change of any file.
//!
//! The clients' tests cover mistakes of a client over the wire.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::support::wire::Wire;
use crate::support::{Loop, MIB, Mounted, Scratch, Volume};
use crate::support::{ends, fifo, have_mounts, larder, run, stands_in, system};
use larder_format::superblock::SUPERBLOCK_BYTES;

/// The longest sentence of a refusal.
const SENTENCE_BYTES_MAX: usize = 600;
const FLASH_BYTES: u64 = 16 * MIB;
const ORIGIN_BYTES: u64 = 16 * MIB;

/// Length, checksum and time of change of a file.
pub type Mark = (usize, u32, Option<SystemTime>);

/// Returns name, content and time of change of every file below the folder.
///
/// Sockets, logs and pipes have only their names.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Mark> {
    let times_count = times_count(folder);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        let mut mark = (0, 0, None);
        if path.is_file() && path.extension().is_none_or(|ext| ext != "log") {
            let content = fs::read(&path).expect("a file of ours");
            let changed = fs::metadata(&path).and_then(|meta| meta.modified()).expect("a time");
            mark = (content.len(), larder_format::crc32c(&content), times_count.then_some(changed));
        }
        found.insert(path, mark);
    }
    found
}

/// Returns true on a file system that is known to punch holes.
///
/// On others an opening tries that on the file, which moves its time of change.
fn times_count(folder: &Path) -> bool {
    static TIMES_COUNT: OnceLock<bool> = OnceLock::new();
    *TIMES_COUNT.get_or_init(|| {
        let kind = run(system("stat").args(["-f", "-c", "%T"]).arg(folder));
        ["ext2/ext3", "xfs", "btrfs", "tmpfs"].contains(&kind.trim())
    })
}

/// Checks that the command is refused as the head of this file says.
///
/// All `words` must be in its sentence (case does not count).
pub fn refused(scratch: &Scratch, command: &mut Command, words: &[&str]) {
    refused_with(scratch, command, &[1], words);
}

fn refused_with(scratch: &Scratch, command: &mut Command, codes: &[i32], words: &[&str]) {
    let folder = scratch.path(".");
    let before = contents(&folder);
    let out = ends(command);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(
        out.status.code().is_some_and(|code| codes.contains(&code)),
        "{command:?}: {}\n{said}{complaint}",
        out.status
    );
    assert_eq!(said, "", "{command:?} speaks of success");
    let sentence = complaint.trim_end();
    assert!(sentence.starts_with("larder: "), "{command:?} does not say who speaks: {complaint}");
    assert!(!sentence.contains('\n'), "{command:?} must say one sentence:\n{complaint}");
    assert!(sentence.len() < SENTENCE_BYTES_MAX, "{command:?}: {} bytes: {sentence}", sentence.len());
    let lower = sentence.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{command:?} does not say {word:?}: {sentence}");
    }
    // Raw words of the system, and of a broken program.
    for rubbish in ["panicked", "os error", "sun_len", "none)", "some(", "{", "\u{0}"] {
        assert!(!lower.contains(rubbish), "{command:?}: {sentence}");
    }
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
        // Options that a design fixes.
        (
            &["--size", "64M", "--design", "d-lru", "--compress", "lz4"],
            &["d-lru", "compress", "or take larder, nitro, cd-arc, austere"],
        ),
        // The named designs take all requested options, not the one option alone.
        (
            &["--size", "64M", "--design", "d-lru", "--compress", "lz4", "--chunk", "4K"],
            &["d-lru", "switch compression off, or take larder, nitro, cd-arc"],
        ),
        (
            &["--size", "64M", "--design", "lru", "--compress", "zstd", "--dedup", "off"],
            &["lru", "switch compression off, or take larder, nitro, cd-arc"],
        ),
        (
            &["--size", "64M", "--design", "austere", "--compress", "lz4", "--dedup", "off"],
            &["austere", "switch that on, or take larder, nitro, cd-arc"],
        ),
        (
            &["--size", "64M", "--design", "austere", "--weu", "1M"],
            &["austere", "4096 bytes", "no WEUs", "nitro, cd-arc"],
        ),
        (
            &["--size", "64M", "--design", "austere", "--dedup", "off"],
            &["austere", "deduplicates", "nitro, cd-arc, lru, arc"],
        ),
        (&["--size", "64M", "--design", "d-arc", "--weu", "2M"], &["d-arc", "no WEUs", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "d-arc", "--dedup", "off"], &["d-arc", "deduplicat", "lru, arc"]),
        (&["--size", "64M", "--design", "d-lru", "--fp-index", "50"], &["d-lru", "fingerprints", "nitro"]),
        (&["--size", "64M", "--design", "lru", "--dedup", "on"], &["lru", "deduplicat", "d-lru, d-arc"]),
        (&["--size", "300K", "--design", "arc"], &["flash", "small", "seven chunks of 8K"]),
        (&["--size", "300K", "--design", "austere"], &["flash", "small", "16 subchunks of 4K"]),
        (&["--size", "300K", "--design", "austere", "--chunk", "4K"], &["flash", "small", "16 subchunks of 4K"]),
        (&["--size", "64M", "--design", "lru", "--fp-index", "50"], &["lru", "no FP index", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "lru", "--fp-index", "100"], &["lru", "no FP index", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "arc", "--fp-index", "100"], &["arc", "no FP index", "nitro, cd-arc"]),
        (
            &["--size", "64M", "--design", "austere", "--chunk", "4K", "--compress", "lz4"],
            &[
                "austere",
                "4096 bytes",
                "for nothing",
                "switch compression off",
                "chunks of 8192 bytes",
                "nitro, cd-arc",
            ],
        ),
        (
            &["--size", "64M", "--design", "austere", "--chunk", "4K", "--compress", "zstd"],
            &["austere", "switch compression off"],
        ),
        (&["--size", "64M", "--design", "arc", "--fp-index", "0"], &["arc", "no FP index", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "austere", "--fp-index", "50"], &["austere", "FP index", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "d-lru", "--weu", "2M"], &["d-lru", "no WEUs", "nitro, cd-arc"]),
        (&["--size", "64M", "--design", "lru", "--weu", "2M"], &["lru", "no WEUs", "nitro, cd-arc"]),
        // Contradictions.
        (&["--size", "64M", "--dedup", "off", "--fp-index", "50"], &["--dedup off", "--fp-index 50", "leave one"]),
        (&["--size", "64M", "--dedup", "on", "--fp-index", "0"], &["--dedup on", "--fp-index 0", "leave one"]),
        // A new flash file needs a size.
        (&[], &["--size"]),
    ];
    for (options, words) in cases {
        // Options that are wrong by themselves, or missing in a design, are wrong usage; options
        // that do not fit the devices fail.
        let does_not_fit = words.contains(&"small") || options.is_empty();
        refused_with(&scratch, &mut create(&flash, &origin, options), &[if does_not_fit { 1 } else { 2 }], words);
    }
    // An existing flash file that is too small.
    let small = scratch.file("small", 2 * MIB);
    refused(&scratch, &mut create(&small, &origin, &[]), &["a flash of 2M is too small; 4M is the least"]);
}

/// Accepted input that is perhaps a mistake is reported in a line, with advice that can be
/// followed.
#[test]
fn create_says_what_it_left_out() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("notes");
    let origin = scratch.file("origin", 16 * MIB);
    let said = |name: &str, options: &[&str]| run(&mut create(&scratch.path(name), &origin, options));
    let austere = ["--size", "64M", "--design", "austere", "--chunk", "4K"];
    let made = said("austere", &austere);
    assert!(made.contains("compression off\n") && made.contains("chunks of 4K are not compressed"), "{made}");
    assert_eq!(made.lines().count(), 2, "{made}");
    let asked = said("asked", &[&austere[..], &["--compress", "off"]].concat());
    assert!(asked.contains("compression off\n") && asked.lines().count() == 1, "{asked}");
    let larger = said("larger", &["--size", "64M", "--design", "austere", "--chunk", "8K"]);
    assert!(larger.contains("compression lz4\n") && larger.lines().count() == 1, "{larger}");
    let status = run(larder(["status", "--json", "--flash"]).arg(scratch.path("austere")));
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["compression"], "off", "{status}");
    let budget = ["--size", "4G", "--design", "d-lru", "--ram", "1M"];
    let small = said("small", &[&budget[..], &["--chunk", "64K"]].concat());
    assert!(small.contains("a larger budget, or larger chunks, use more"), "{small}");
    // 128K is the largest chunk there is.
    let largest = said("largest", &[&budget[..], &["--chunk", "128K"]].concat());
    assert!(largest.contains("a larger budget uses more") && !largest.contains("larger chunks"), "{largest}");
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

    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
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

    let flash_name = volume.flash.display().to_string();
    let mut over_flash = create(&scratch.path("second"), &volume.flash, &["--size", "16M", "--weu", "512K"]);
    refused(&scratch, &mut over_flash, &[&flash_name, "--force"]);

    // Two volumes over one origin: the first that serves has it.
    let other = Volume::over(&scratch, "other", &volume.origin, FLASH_BYTES, &["--weu", "512K"]);
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
    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
    let whose = format!("design {}", crate::support::design().name);
    let address = format!("unix:{}", scratch.path("sock").display());
    let flash_name = volume.flash.display().to_string();

    // The flash of one volume is not silently made the flash of another.
    let other_origin = scratch.file("other-origin", 16 * MIB);
    refused(&scratch, &mut create(&volume.flash, &other_origin, &[]), &[&flash_name, &whose]);
    let over = &mut create(&volume.flash, &other_origin, &["--design", "austere"]);
    refused(&scratch, over, &[&flash_name, &whose, "larder status --flash", "larder detach --flash", "--force"]);
    // A flash with a design takes no other; a command with another one names the remedy.
    let words =
        ["--design d-lru", "keeps the design that it was created with", "larder status --flash", "larder create"];
    let mut set = larder(["set", "--mode", "write-back", "--flash"]);
    for command in [&mut serve(&volume.flash, &address), set.arg(&volume.flash)] {
        refused_with(&scratch, command.args(["--design", "d-lru"]), &[2], &words);
    }
    // Nor does it serve before another origin.
    let mut wrong_origin = serve(&volume.flash, &address);
    refused(&scratch, wrong_origin.arg("--origin").arg(&other_origin), &["origin"]);

    let blank = scratch.file("blank", 64 * MIB);
    let noise = scratch.path("noise");
    fs::write(&noise, crate::support::image::noise(3, 1 << 20)).expect("a file");
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
    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("tcp:127.0.0.1:{port}")), &[&port, "listens"]);

    let socket = scratch.path("taken.sock");
    let taken = UnixListener::bind(&socket).expect("a socket");
    let name = socket.display().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("unix:{name}")), &[&name, "listens"]);
    drop(taken);
    // The remains of a killed server are no reason to refuse.
    volume.serve_at(&format!("unix:{name}"), &[]).stop();

    // A file that is no socket stays.
    let file = scratch.file("plain", 10);
    let name = file.display().to_string();
    refused(&scratch, &mut serve(&volume.flash, &format!("unix:{name}")), &[&name]);
    for wrong in ["tcp:127.0.0.1", "tcp:127.0.0.1:99999", "carrier-pigeon:7", "unix:"] {
        refused_with(&scratch, &mut serve(&volume.flash, wrong), &[2], &["unix:"]);
    }
    // A path that no socket can have.
    let long = format!("unix:{}", scratch.path(&"x".repeat(120)).display());
    refused(&scratch, &mut serve(&volume.flash, &long), &["107"]);
    let run_dir = scratch.path(&"y".repeat(120));
    refused(&scratch, serve(&volume.flash, "unix:/nowhere/s").env("LARDER_RUN_DIR", &run_dir), &["/nowhere/s"]);
    let socket = format!("unix:{}", scratch.path("s").display());
    refused(&scratch, serve(&volume.flash, &socket).env("LARDER_RUN_DIR", &run_dir), &["107", "LARDER_RUN_DIR"]);
}

#[test]
fn an_option_file_must_be_readable() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("option-file");
    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
    let address = format!("unix:{}", scratch.path("sock").display());
    let garbled = scratch.path("garbled.toml");
    fs::write(&garbled, b"\xff\xfe = [").expect("a file");
    let unknown = scratch.path("unknown.toml");
    fs::write(&unknown, "wings = 2\n").expect("a file");
    for options in [scratch.path("absent.toml"), garbled, unknown] {
        let name = options.display().to_string();
        let mut command = serve(&volume.flash, &address);
        refused_with(&scratch, command.arg("--config").arg(&options), &[1, 2], &[&name]);
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("usage");
    for args in [&["fly"][..], &["serve"], &["create", "--flash"], &["status", "--flash", "x", "--wings"]] {
        refused_with(&scratch, &mut larder(args), &[2], &[]);
    }
}

/// Returns every command that opens a cache, except `create`.
///
/// Those that take a flash alone, or those that also want the origin.
pub fn commands(flash: &Path, scratch: &Scratch, with_origin: bool) -> Vec<Command> {
    let mut all = vec![serve(flash, &format!("unix:{}", scratch.path("sock").display()))];
    for args in [&["flush"][..], &["set", "--mode", "write-around"], &["detach"]] {
        all.push(larder(args));
    }
    if !with_origin {
        all.extend(["status", "verify", "dump"].map(|name| larder([name])));
    }
    for command in &mut all[1..] {
        command.arg("--flash").arg(flash);
    }
    all
}

pub fn all_refused(scratch: &Scratch, flash: &Path, words: &[&str]) {
    for mut command in commands(flash, scratch, false) {
        refused(scratch, &mut command, words);
    }
}

/// Makes a cache with dirty data on its flash, and both devices in the scratch folder.
pub fn used_volume(scratch: &Scratch) -> Volume {
    let volume = Volume::create(scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
    let server = volume.serve_with(&["--dirty-low", "60", "--dirty-high", "60"]);
    let mut wire = crate::support::wire::Wire::connect(&server.socket);
    for number in 0..32 {
        wire.write(number * (64 << 10), &crate::support::image::noise(number, 64 << 10));
    }
    wire.flush();
    drop(wire);
    server.stop();
    assert!(volume.number("dirty_bytes") > 0);
    volume
}

pub const TWINS: [usize; 2] = [0, 64 << 10];

/// Makes the same flash with other bytes in its twins.
pub fn with_twins(scratch: &Scratch, good: &[u8], change: impl Fn(usize, &mut [u8])) -> PathBuf {
    let path = scratch.path("bad");
    let mut bytes = good.to_vec();
    for (number, at) in TWINS.into_iter().enumerate() {
        change(number, &mut bytes[at..at + SUPERBLOCK_BYTES]);
    }
    fs::write(&path, bytes).expect("a flash");
    path
}

/// Gives a twin another value in a field, under a right checksum.
pub fn patched(twin: &mut [u8], at: usize, bytes: &[u8]) {
    twin[at..at + bytes.len()].copy_from_slice(bytes);
    twin[16..20].fill(0);
    let crc = larder_format::crc32c(twin);
    twin[16..20].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_damaged_flash_is_told_from_a_foreign_and_a_newer_one() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("bad-flashes");
    let volume = used_volume(&scratch);
    let good = fs::read(&volume.flash).expect("the flash");
    let other_origin = scratch.file("other-origin", ORIGIN_BYTES);
    let other = Volume::over(&scratch, "other", &other_origin, FLASH_BYTES, &["--weu", "512K"]);
    let other = fs::read(&other.flash).expect("the other flash");
    let second = &other[TWINS[1]..TWINS[1] + SUPERBLOCK_BYTES];

    // A newer version, in one twin or both: this program must not touch it.
    for newer in [&[0][..], &[1], &[0, 1]] {
        let flash = with_twins(&scratch, &good, |twin, bytes| {
            if newer.contains(&twin) {
                patched(bytes, 8, &2_u32.to_le_bytes());
            }
        });
        all_refused(&scratch, &flash, &["bad", "version 2", "newer larder"]);
        refused(&scratch, &mut create(&flash, &other_origin, &[]), &["bad", "newer", "--force"]);
    }
    let flash = with_twins(&scratch, &good, |_, bytes| patched(bytes, 56, &(1_u64 << 20).to_le_bytes()));
    all_refused(&scratch, &flash, &["bad", "feature bit 20,", "wrote to this flash last, or a newer one"]);
    refused(&scratch, &mut create(&flash, &other_origin, &[]), &["bad", "feature bit 20", "newer", "--force"]);

    // Half-formatted: before its first superblock, and over an older cache.
    let flash = with_twins(&scratch, &good, |_, bytes| bytes.fill(0));
    all_refused(&scratch, &flash, &["bad", "not a larder flash", "larder create"]);
    refused(&scratch, &mut create(&flash, &other_origin, &[]), &["bad", "other data", "--force"]);
    let flash = with_twins(&scratch, &good, |twin, bytes| {
        if twin == 1 {
            bytes.copy_from_slice(second);
        }
    });
    all_refused(&scratch, &flash, &["bad", "interrupted", "--force"]);
    refused(&scratch, &mut create(&flash, &other_origin, &[]), &["bad", "--force"]);

    // Rot in both twins; and a right checksum over nonsense.
    let flash = with_twins(&scratch, &good, |_, bytes| bytes[300] ^= 1);
    all_refused(&scratch, &flash, &["bad", "checksum", "larder create --force"]);
    refused(&scratch, &mut create(&flash, &other_origin, &[]), &["bad", "--force"]);
    for (at, value) in [(64, 9), (65, 77), (68, 5), (72, 3), (80, 1)] {
        let flash = with_twins(&scratch, &good, |_, bytes| patched(bytes, at, &[value]));
        all_refused(&scratch, &flash, &["bad", "superblock", "larder create --force"]);
    }

    // One good twin is enough, and the creation that wrote only one is over.
    for lost in 0..2 {
        let flash = with_twins(&scratch, &good, |twin, bytes| {
            if twin == lost {
                bytes.fill(0);
            }
        });
        let status = run(larder(["status", "--json", "--flash"]).arg(&flash));
        assert!(status.contains("\"dirty_bytes\""), "{status}");
    }
}

#[test]
fn a_truncated_flash_is_refused_at_every_length() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("truncated");
    let volume = used_volume(&scratch);
    let file = File::options().write(true).open(&volume.flash).expect("the flash");
    let whole = fs::read(&volume.flash).expect("the flash");
    // A file too short for its superblocks tells nothing.
    for bytes in [0, 1, 511, 4096, 68 << 10] {
        file.set_len(bytes).expect("a shorter flash");
        all_refused(&scratch, &volume.flash, &["flash", "larder create"]);
    }
    fs::write(&volume.flash, &whole).expect("the flash");
    for bytes in [FLASH_BYTES - 4096, FLASH_BYTES / 2, 128 << 10] {
        file.set_len(bytes).expect("a shorter flash");
        for mut command in commands(&volume.flash, &scratch, true) {
            refused(&scratch, &mut command, &["flash", "fewer", "give it back its size"]);
        }
        refused(&scratch, larder(["status", "--flash"]).arg(&volume.flash), &["fewer"]);
        refused(&scratch, &mut create(&volume.flash, &volume.origin, &[]), &["--force"]);
        refused(
            &scratch,
            larder(["verify", "--flash"]).arg(&volume.flash),
            &["flash", "fewer", "give it back its size"],
        );
    }
}

#[test]
fn what_is_no_device_is_refused_at_once() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("no-devices");
    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
    let (folder, pipe) = (scratch.path("folder"), scratch.path("pipe"));
    fs::create_dir(&folder).expect("a folder");
    fifo(&pipe);
    for wrong in [&folder, &pipe, Path::new("/dev/null")] {
        let name = wrong.display().to_string();
        for mut command in commands(wrong, &scratch, false) {
            // A server of another test that hangs could be the one of this file.
            command.env("LARDER_RUN_DIR", &folder);
            refused(&scratch, &mut command, &[&name, "neither", "block device"]);
        }
        refused(&scratch, &mut create(wrong, &volume.origin, &["--force"]), &[&name, "neither"]);
        refused(&scratch, &mut create(&scratch.path("new"), wrong, &["--size", "16M"]), &["origin", &name, "neither"]);
        let mut bare = larder(["serve", "--no-cache", "--nbd", "unix:/nowhere/s", "--origin"]);
        refused(&scratch, bare.arg(wrong), &["origin", &name, "neither"]);
    }
    refused(&scratch, &mut create(&volume.origin, &volume.origin, &[]), &["both"]);
}

/// A file and a block device are themselves under every name, and no other process holds them.
#[test]
fn flash_and_origin_are_told_to_be_one_whatever_they_are_called() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("one-file");
    let origin = scratch.file("one disk", ORIGIN_BYTES);
    let (hard, soft) = (scratch.path("hard"), scratch.path("soft"));
    fs::hard_link(&origin, &hard).expect("a hard link");
    std::os::unix::fs::symlink(&origin, &soft).expect("a link");
    let uri = format!("file://{}", origin.display()).replace(' ', "%20");
    for flash in [&origin, &hard, &soft] {
        let words = [&flash.display().to_string(), "both flash and origin", "name two devices"];
        for origin in [&origin, Path::new(&uri)] {
            for options in [&[][..], &["--force"]] {
                refused(&scratch, &mut create(flash, origin, options), &words);
            }
        }
    }
    if !have_mounts("a block device under two names") {
        return;
    }
    let disk = Loop::over(&origin);
    let node = scratch.path("node");
    let numbers = run(system("lsblk").args(["-dno", "MAJ:MIN"]).arg(&disk.device));
    let (major, minor) = numbers.trim().split_once(':').expect("two numbers");
    run(system("mknod").arg(&node).args(["b", major, minor]));
    refused(&scratch, &mut create(&node, &disk.device, &["--force"]), &["node", "both flash and origin"]);
}

/// File systems use inodes again.
#[test]
fn an_origin_that_was_removed_and_made_anew_is_another_one() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("new-origin");
    let volume = used_volume(&scratch);
    fs::remove_file(&volume.origin).expect("the origin");
    fs::write(&volume.origin, crate::support::image::noise(5, ORIGIN_BYTES as usize)).expect("another origin");
    for mut command in commands(&volume.flash, &scratch, true) {
        refused(&scratch, &mut command, &["not the one", "bring that one back"]);
    }
}

/// A disk is no file, and a disk of the same size no other disk, at the end of any link.
#[test]
fn a_block_device_is_not_taken_for_the_origin_that_it_is_not() {
    if stands_in() || !have_mounts("block devices") {
        return;
    }
    let scratch = Scratch::new("other-disks");
    let [mine, foreign] = ["mine", "foreign"].map(|name| scratch.file(name, ORIGIN_BYTES));
    let (disk, other) = (Loop::over(&mine), Loop::over(&foreign));
    let before = fs::read(&foreign).expect("the other disk");
    // Made for a file, for a disk, and for a disk by a link.
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&disk.device, &link).expect("a link");
    for (number, origin) in [None, Some(&disk.device), Some(&link)].into_iter().enumerate() {
        let volume = match origin {
            None => used_volume(&scratch),
            Some(origin) => {
                let flash = format!("flash-{number}");
                let volume = Volume::over(&scratch, &flash, origin, FLASH_BYTES, &["--weu", "512K"]);
                let server = volume.serve_with(&["--dirty-low", "60", "--dirty-high", "60"]);
                let mut wire = Wire::connect(&server.socket);
                wire.write(0, &crate::support::image::noise(3, 64 << 10));
                wire.flush();
                drop(wire);
                server.stop();
                volume
            }
        };
        let mut flush = larder(["flush", "--flash"]);
        let flush = flush.arg(&volume.flash).arg("--origin").arg(&other.device);
        refused(&scratch, flush, &["not the one", "bring that one back"]);
        if origin.is_some() {
            let mut flush = larder(["flush", "--flash"]);
            refused(&scratch, flush.arg(&volume.flash).arg("--origin").arg(&foreign), &["not the one"]);
        }
        if origin == Some(&link) {
            fs::remove_file(&link).expect("the link");
            std::os::unix::fs::symlink(&other.device, &link).expect("a link");
            for mut command in commands(&volume.flash, &scratch, true) {
                refused(&scratch, &mut command, &["not the one"]);
            }
        }
        assert!(fs::read(&foreign).expect("the other disk") == before, "a foreign disk was written to");
    }
    // It is known under every name.
    let again = scratch.path("again");
    std::os::unix::fs::symlink(&disk.device, &again).expect("a link");
    run(larder(["flush", "--flash"]).arg(scratch.path("flash-1")).arg("--origin").arg(&again));
}

#[test]
fn another_origin_is_refused_by_every_command_that_would_write_to_it() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("other-origins");
    let volume = used_volume(&scratch);
    let name = volume.origin.display().to_string();
    let refused_by_all = |words: &[&str]| {
        for mut command in commands(&volume.flash, &scratch, true) {
            refused(&scratch, &mut command, &[&[name.as_str()], words].concat());
        }
    };
    let aside = scratch.path("aside");
    fs::rename(&volume.origin, &aside).expect("a rename");
    refused_by_all(&["missing"]);
    // Swapped for another of the same size.
    fs::write(&volume.origin, crate::support::image::noise(5, ORIGIN_BYTES as usize)).expect("another origin");
    refused_by_all(&["not the one", "bring that one back"]);
    fs::remove_file(&volume.origin).expect("the other origin");
    fs::create_dir(&volume.origin).expect("a folder");
    refused_by_all(&["neither"]);
    fs::remove_dir(&volume.origin).expect("the folder");
    fs::rename(&aside, &volume.origin).expect("a rename");

    let file = File::options().write(true).open(&volume.origin).expect("the origin");
    for bytes in [0, ORIGIN_BYTES - 512, ORIGIN_BYTES / 2] {
        file.set_len(bytes).expect("a smaller origin");
        refused_by_all(&["smaller", "give it its size back"]);
    }
    file.set_len(ORIGIN_BYTES + 4096).expect("a larger origin");
    for mut command in commands(&volume.flash, &scratch, true) {
        // A volume is enlarged by detaching it.
        if !format!("{command:?}").contains("detach") {
            refused(&scratch, &mut command, &[&name, "grown", "detach"]);
        }
    }
    file.set_len(ORIGIN_BYTES).expect("its size");
    // The origin belongs to another cache now.
    let other = Volume::over(&scratch, "other", &volume.origin, FLASH_BYTES, &["--weu", "512K"]);
    let server = other.serve();
    refused_by_all(&["in use"]);
    server.stop();
    // The file has its size, and was written to all the same.
    refused_by_all(&["was written to", "--origin-changed drop"]);
    run(larder(["flush", "--origin-changed", "keep", "--flash"]).arg(&volume.flash));
    assert_eq!(volume.number("dirty_bytes"), 0);
}

#[test]
fn two_processes_do_not_share_a_flash() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("two-processes");
    let volume = used_volume(&scratch);
    let name = volume.flash.display().to_string();
    let server = volume.serve();
    let address = format!("unix:{}", scratch.path("sock").display());
    // The server itself may change the flash meanwhile: a copy of the folder would tell nothing.
    let refused_now = |command: &mut Command, words: &[&str]| {
        let out = ends(command);
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && out.stdout.is_empty(), "{command:?}: {out:?}");
        assert!(complaint.starts_with("larder: ") && complaint.lines().count() == 1, "{command:?}: {complaint}");
        for word in words {
            assert!(complaint.contains(word), "{command:?} does not say {word:?}: {complaint}");
        }
    };
    refused_now(&mut serve(&volume.flash, &address), &[&name, "in use"]);
    for options in [&[][..], &["--force"]] {
        refused_now(&mut create(&volume.flash, &scratch.file("other", MIB), options), &[&name, "in use"]);
        refused_now(&mut create(&scratch.path("new"), &volume.flash, &["--size", "16M"]), &["origin", &name]);
    }
    for command in ["verify", "dump"] {
        refused_now(larder([command, "--flash"]).arg(&volume.flash), &[&name, "is served now"]);
    }
    // If the server cannot be asked, no command works behind its back.
    let elsewhere = scratch.path("elsewhere");
    for mut command in commands(&volume.flash, &scratch, false) {
        refused_now(command.env("LARDER_RUN_DIR", &elsewhere), &[&name, "in use"]);
    }
    assert!(!scratch.path("new").exists(), "a refused flash is left behind");
    // A copy has the same identity.
    let copy = scratch.path("copy");
    fs::copy(&volume.flash, &copy).expect("a copy");
    let other_origin = scratch.file("copied-origin", ORIGIN_BYTES);
    let mut of_copy = serve(&copy, &address);
    refused_now(of_copy.arg("--origin").arg(&other_origin), &["origin"]);
    server.stop();
    volume.verify();
}

#[test]
fn devices_that_cannot_be_written_are_refused() {
    if stands_in() || !have_mounts("read-only devices") {
        return;
    }
    let scratch = Scratch::new("read-only");
    let disk = Mounted::tmpfs(&scratch, "disk", 3 * FLASH_BYTES);
    let volume = used_volume(&scratch);
    for which in ["flash", "origin"] {
        let (here, there) = (scratch.path(which), disk.folder.join(which));
        if which == "flash" {
            fs::copy(&here, &there).expect("a copy");
            disk.remount("ro");
            let name = there.display().to_string();
            for mut command in commands(&there, &scratch, true) {
                refused(&scratch, &mut command, &[&name, "cannot be written", "writable"]);
            }
            refused(&scratch, &mut create(&there, &volume.origin, &["--force"]), &[&name, "cannot be written"]);
            refused(
                &scratch,
                &mut create(&disk.folder.join("new"), &volume.origin, &["--size", "16M"]),
                &["read-only"],
            );
            // Looking needs no more than reading.
            for command in ["status", "verify", "dump"] {
                run(larder([command, "--flash"]).arg(&there));
            }
            disk.remount("rw");
            fs::remove_file(&there).expect("the copy");
        } else {
            let on_disk = scratch.path("new-flash");
            fs::copy(&here, &there).expect("a copy");
            run(create(&on_disk, &there, &["--size", "16M", "--weu", "512K"]).arg("--force"));
            disk.remount("ro");
            let name = there.display().to_string();
            for mut command in commands(&on_disk, &scratch, true) {
                refused(&scratch, &mut command, &["origin", &name, "cannot be written", "writable"]);
            }
            disk.remount("rw");
        }
    }
}

/// The kernel opens such a device for writing, and fails each write.
#[test]
fn block_devices_that_take_no_write_are_refused() {
    if stands_in() || !have_mounts("read-only block devices") {
        return;
    }
    let scratch = Scratch::new("read-only-disks");
    let volume = used_volume(&scratch);
    let new_flash = scratch.path("new");

    let origin = Loop::read_only(&scratch.file("disk", ORIGIN_BYTES));
    let name = origin.device.display().to_string();
    let words = ["origin", &name, "cannot be written", "read-only", "make it writable"];
    refused(&scratch, &mut create(&new_flash, &origin.device, &["--size", "16M", "--weu", "512K"]), &words);
    let mut bare = larder(["serve", "--no-cache", "--nbd", "unix:/nowhere/s", "--origin"]);
    refused(&scratch, bare.arg(&origin.device), &words);
    // Writable when the cache was made before it.
    let file = scratch.file("switched", ORIGIN_BYTES);
    let switched = Loop::over(&file);
    run(&mut create(&new_flash, &switched.device, &["--size", "16M", "--weu", "512K"]));
    run(system("blockdev").arg("--setro").arg(&switched.device));
    let name = switched.device.display().to_string();
    for mut command in commands(&new_flash, &scratch, true) {
        refused(&scratch, &mut command, &["origin", &name, "cannot be written", "make it writable"]);
    }
    run(system("blockdev").arg("--setrw").arg(&switched.device));
    run(larder(["flush", "--flash"]).arg(&new_flash));

    let flash = Loop::read_only(&volume.flash);
    let name = flash.device.display().to_string();
    let words = [&name, "cannot be written", "read-only", "make it writable"];
    for mut command in commands(&flash.device, &scratch, true) {
        refused(&scratch, &mut command, &words);
    }
    refused(&scratch, &mut create(&flash.device, &volume.origin, &["--force"]), &words);
    refused(&scratch, larder(["verify", "--repair", "--flash"]).arg(&flash.device), &words);
    // Looking needs no more than reading.
    for command in [&["status"][..], &["verify"], &["verify", "--repair", "--dry-run"], &["dump"]] {
        run(larder(command).arg("--flash").arg(&flash.device));
    }
}

#[test]
fn a_full_disk_is_no_place_for_a_flash() {
    if stands_in() || !have_mounts("a full disk") {
        return;
    }
    let scratch = Scratch::new("full-disk");
    let origin = scratch.file("origin", ORIGIN_BYTES);
    let disk = Mounted::tmpfs(&scratch, "disk", FLASH_BYTES / 2);
    let flash = disk.folder.join("flash");
    let name = flash.display().to_string();
    let whole = format!("{FLASH_BYTES}");
    // Sparse it would fit, and fail as it fills.
    refused(
        &scratch,
        &mut create(&flash, &origin, &["--size", &whole, "--weu", "512K"]),
        &[&name, "no room", "--size"],
    );
    assert!(!flash.exists());
    File::create(&flash).and_then(|file| file.set_len(MIB)).expect("a file to grow");
    refused(
        &scratch,
        &mut create(&flash, &origin, &["--size", &whole, "--weu", "512K"]),
        &[&name, "no room", "--size"],
    );
    assert_eq!(fs::metadata(&flash).expect("the file").len(), MIB, "it has its old size");
    disk.fill();
    refused(&scratch, &mut create(&disk.folder.join("new"), &origin, &["--size", "8M", "--weu", "512K"]), &["no room"]);
    assert!(!disk.folder.join("new").exists());
}

/// A server that cannot print that it is ready ends, and in order: the flash was open by then.
#[test]
fn a_server_that_cannot_speak_closes_its_cache() {
    let scratch = Scratch::new("cannot-speak");
    let volume = used_volume(&scratch);
    let dirty = volume.number("dirty_bytes");
    let mut command = volume.serve_command(&["--dirty-low", "60", "--dirty-high", "60"]);
    let full = File::options().write(true).open("/dev/full").expect("a device of every Linux");
    let out = command.stdout(full).stderr(std::process::Stdio::piped()).output().expect("larder");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let last = said.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("larder: ") && last.contains("standard output"), "{said}");
    assert_eq!(volume.number("dirty_bytes"), dirty, "nothing is lost");
    let server = volume.serve();
    assert_eq!(volume.status()["recovery"]["clean_shutdown"], true, "{}", volume.status());
    server.stop();
}

/// A command names a file, and no server of another one answers for it, though both have one
/// identity.
#[test]
fn a_copy_of_a_served_flash_is_not_taken_for_it() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("copies");
    let volume = Volume::create(&scratch, FLASH_BYTES, ORIGIN_BYTES, &["--weu", "512K"]);
    let server = volume.serve_with(&["--dirty-low", "90", "--dirty-high", "91", "--dirty-max", "92"]);
    let mut wire = Wire::connect(&server.socket);
    for number in 0..32 {
        wire.write(number * (64 << 10), &crate::support::image::noise(number, 64 << 10));
    }
    wire.flush();
    drop(wire);
    volume.wait_for_no_clients();
    let copy = scratch.path("image");
    fs::copy(&volume.flash, &copy).expect("a copy");
    let name = volume.flash.display().to_string();
    let before = volume.status();
    for args in [&["flush"][..], &["set", "--mode", "write-around"], &["detach"], &["status"]] {
        refused(&scratch, larder(args).arg("--flash").arg(&copy), &["image is a copy of", &name, "served now"]);
    }
    refused(&scratch, &mut serve(&copy, "unix:/nowhere/s"), &[]);
    let after = volume.status();
    assert!(after["dirty_bytes"].as_u64() > Some(0), "{after}");
    for key in ["mode", "dirty_bytes", "flash", "served"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    // Reading one is harmless; so is a repair, which writes to the copy alone.
    for args in [&["verify"][..], &["verify", "--repair"], &["dump", "mappings"]] {
        run(larder(args).arg("--flash").arg(&copy));
        refused(&scratch, larder(args).arg("--flash").arg(&volume.flash), &[&name, "is served now"]);
    }

    // The same file under other names is the same.
    let (link, hard, around) = (scratch.path("link"), scratch.path("hard"), scratch.path("d").join("../flash"));
    std::os::unix::fs::symlink(&volume.flash, &link).expect("a link");
    fs::hard_link(&volume.flash, &hard).expect("a link");
    fs::create_dir(scratch.path("d")).expect("a folder");
    for other in [&link, &hard, &around] {
        let status = run(larder(["status", "--json", "--flash"]).arg(other));
        assert!(status.contains("\"served\":true") || status.contains("\"served\": true"), "{status}");
        for args in [&["verify"][..], &["dump"]] {
            refused(&scratch, larder(args).arg("--flash").arg(other), &["is served now"]);
        }
    }
    run(larder(["set", "--mode", "write-through", "--flash"]).arg(&hard));
    run(larder(["flush", "--flash"]).arg(&around));
    assert_eq!((volume.number("dirty_bytes"), volume.status()["mode"].as_str()), (0, Some("write-through")));
    // The same at its new place.
    let moved = scratch.path("moved");
    fs::rename(&volume.flash, &moved).expect("a rename");
    fs::rename(&copy, &volume.flash).expect("a rename");
    refused(&scratch, larder(["detach", "--flash"]).arg(&volume.flash), &["copy"]);
    run(larder(["detach", "--flash"]).arg(&moved));
    server.ends_by_itself();
}

#[test]
fn a_copy_of_a_served_block_device_is_not_taken_for_it() {
    if stands_in() || !have_mounts("block devices as flash") {
        return;
    }
    let scratch = Scratch::new("copied-disks");
    let file = scratch.file("disk", FLASH_BYTES);
    let disk = Loop::over(&file);
    let origin = scratch.file("origin", ORIGIN_BYTES);
    let volume = Volume::on(&scratch, "flash", disk.device.clone(), &origin, FLASH_BYTES, &["--weu", "512K"]);
    let server = volume.serve();
    let image = scratch.path("image");
    fs::copy(&file, &image).expect("a copy");
    let other = Loop::over(&image);
    let (name, link) = (disk.device.display().to_string(), scratch.path("link"));
    std::os::unix::fs::symlink(&disk.device, &link).expect("a link");
    for args in [&["flush"][..], &["set", "--mode", "write-around"], &["detach"], &["status"]] {
        for copy in [&image, &other.device] {
            refused(&scratch, larder(args).arg("--flash").arg(copy), &["is a copy of", &name, "served now"]);
        }
    }
    run(larder(["verify", "--flash"]).arg(&other.device));
    let status = run(larder(["status", "--flash"]).arg(&link));
    assert!(status.contains("yes, 0 connections"), "{status}");
    run(larder(["flush", "--flash"]).arg(&link));
    server.stop();
}
