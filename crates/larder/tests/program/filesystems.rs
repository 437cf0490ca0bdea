//! ext4 and XFS on a served volume, through nbdfuse and a loop device, before and after a restart.
//! Then the server is killed under writers that sync, and SQLite among them. No kernel NBD is
//! needed. Root and loop devices are; without them the tests say so and skip.
//!
//! `LARDER_KILL_ROUNDS=N` asks for more kills, `LARDER_SEED=N` for other writers.

use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

use crate::support::image::{Numbers, checksums, text, tree};
use crate::support::{Background, FuseFile, Loop, MIB, Mounted, Scratch, Server, Volume};
use crate::support::{begin, have_mounts, have_tools, left_behind, run, say, sh, stands_in, system};

/// The tree is about twice this.
const TREE_BYTES: u64 = 16 * MIB;
/// XFS asks for at least 300 MiB.
const ORIGIN_BYTES: u64 = 384 * MIB;

fn make(kind: &str, device: &Path) {
    match kind {
        "ext4" => {
            run(system("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(device))
        }
        _ => run(system("mkfs.xfs").args(["-q", "-f"]).arg(device)),
    };
}

fn check(kind: &str, device: &Path) {
    match kind {
        "ext4" => run(system("fsck.ext4").args(["-f", "-n"]).arg(device)),
        _ => run(system("xfs_repair").arg("-n").arg(device)),
    };
}

/// Brings the whole file system back: after a restart, and from the origin after a full destage.
fn lives_through_a_restart(name: &str, kind: &str, options: &[&str], flash_bytes: u64) {
    let mkfs = format!("mkfs.{kind}");
    let checker = if kind == "ext4" { "fsck.ext4" } else { "xfs_repair" };
    if !have_tools(name, &["nbdfuse", "losetup", "fstrim", &mkfs, checker]) || !have_mounts(name) {
        return;
    }
    let scratch = Scratch::new(name);
    let volume = Volume::create(&scratch, flash_bytes, ORIGIN_BYTES, options);
    let before;
    let server = volume.serve();
    {
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        let device = Loop::over(&fuse.file());
        make(kind, &device.device);
        let mounted = Mounted::mount(&scratch, "mnt", &device.device, "rw");
        tree(&mounted.folder, 23, TREE_BYTES);
        sh("sync", ["-f".as_ref(), mounted.folder.as_os_str()]);
        // Old places become free, are trimmed, and are written again.
        fs::remove_dir_all(mounted.folder.join("second/part-1")).expect("a folder of ours");
        fs::remove_dir_all(mounted.folder.join("first/part-2")).expect("a folder of ours");
        run(system("fstrim").arg(&mounted.folder));
        tree(&mounted.folder.join("first/part-0"), 29, TREE_BYTES / 4);
        before = checksums(&mounted.folder);
        assert!(before.lines().count() > 500, "{before}");
    }
    server.stop();

    let server = volume.serve();
    {
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        let device = Loop::over(&fuse.file());
        check(kind, &device.device);
        let mounted = Mounted::mount(&scratch, "mnt", &device.device, "rw");
        assert_eq!(before, checksums(&mounted.folder), "{name}: files differ after a restart");
        run(system("fstrim").arg(&mounted.folder));
        assert_eq!(before, checksums(&mounted.folder), "{name}: files differ after a trim of all free space");
    }
    if stands_in() {
        server.stop();
        return;
    }
    assert_eq!(volume.number("failed_checks"), 0, "{name}: a record is damaged, and nothing damaged it");
    volume.flush();
    server.stop();
    volume.verify();
    let device = Loop::over(&volume.origin);
    check(kind, &device.device);
    let mounted = Mounted::mount(&scratch, "mnt", &device.device, "ro");
    assert_eq!(before, checksums(&mounted.folder), "{name}: files differ on the origin alone");
}

#[test]
fn ext4_write_back() {
    lives_through_a_restart("ext4-write-back", "ext4", &[], 128 * MIB);
}

#[test]
fn xfs_write_back() {
    lives_through_a_restart("xfs-write-back", "xfs", &[], 128 * MIB);
}

#[test]
fn ext4_write_back_on_a_flash_that_evicts_all_the_time() {
    let options = ["--weu", "512K", "--chunk", "4K", "--compress", "zstd", "--fp-index", "25"];
    lives_through_a_restart("ext4-tiny-flash", "ext4", &options, 16 * MIB);
}

#[test]
fn ext4_write_through() {
    lives_through_a_restart("ext4-write-through", "ext4", &["--mode", "write-through"], 64 * MIB);
}

#[test]
fn xfs_write_around_in_large_chunks() {
    let options = ["--mode", "write-around", "--chunk", "32K", "--dedup", "off", "--compress", "off"];
    lives_through_a_restart("xfs-write-around", "xfs", &options, 64 * MIB);
}

/// Kills of the server under each file system; `LARDER_KILL_ROUNDS` asks for more.
const KILL_ROUNDS: u64 = 2;
/// Writers that append to a log of their own and sync it.
const LOG_WRITERS: usize = 3;
/// SQLite's transactions for one round; it never gets so far.
const TRANSACTIONS_MAX: u64 = 20_000;

/// A served volume with a mounted file system; all of it goes when it is dropped, in the right
/// order.
struct Attached {
    mounted: Option<Mounted>,
    device: Loop,
    fuse: FuseFile,
}

impl Attached {
    fn new(scratch: &Scratch, server: &Server) -> Self {
        let fuse = FuseFile::mount(scratch, "fuse", &server.uri);
        Attached { mounted: None, device: Loop::over(&fuse.file()), fuse }
    }

    fn mount(&mut self, scratch: &Scratch) -> PathBuf {
        let mounted = Mounted::mount(scratch, "mnt", &self.device.device, "rw");
        self.mounted.insert(mounted).folder.clone()
    }
}

/// Returns a line of a log, by its number.
///
/// Its length is any, so that lines end in the middle of sectors.
fn line(seed: u64, number: u64) -> String {
    let mut numbers = Numbers::seeded(seed ^ number << 20);
    let words: String = (0..=numbers.below(40)).map(|_| format!(" {:x}", numbers.next())).collect();
    format!("{number}{words}\n")
}

/// Appends lines and syncs them until the disk fails, and returns the number of synced lines.
fn write_log(path: &Path, seed: u64, killed: &AtomicBool) -> u64 {
    let mut file = File::create(path).expect("a log");
    let mut numbers = Numbers::seeded(seed);
    let (mut written, mut synced) = (0, 0);
    loop {
        for _ in 0..=numbers.below(12) {
            if file.write_all(line(seed, written).as_bytes()).is_err() {
                assert!(killed.load(Acquire), "a write failed before the server was killed");
                return synced;
            }
            written += 1;
        }
        // fsync makes the new file's name durable, too. XFS may report success when it has just
        // shut down: it drops the transactions of its journal, and finds nothing left to wait for.
        // A look at the file then fails.
        if file.sync_all().and_then(|()| file.metadata()).is_err() {
            assert!(killed.load(Acquire), "a sync failed before the server was killed");
            return synced;
        }
        synced = written;
    }
}

/// Checks that each synced line is there. Unsynced whole lines are as they were written.
fn check_log(path: &Path, seed: u64, synced: u64) {
    let text = fs::read(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let expected: Vec<u8> = (0..synced).flat_map(|number| line(seed, number).into_bytes()).collect();
    let differs = text.iter().zip(&expected).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{}: a synced line differs", path.display());
    assert!(text.len() >= expected.len(), "{}: {} of {} synced bytes", path.display(), text.len(), expected.len());
}

/// Makes, renames and removes files, so that metadata and free space move, until the disk fails.
fn churn(folder: &Path, seed: u64) {
    let mut numbers = Numbers::seeded(seed);
    fs::create_dir_all(folder).expect("a folder");
    loop {
        let at = folder.join(format!("file-{}", numbers.below(40)));
        let done = match numbers.below(4) {
            0 => fs::remove_file(&at).or_else(|err| if at.exists() { Err(err) } else { Ok(()) }),
            1 if at.exists() => fs::rename(&at, folder.join(format!("file-{}", numbers.below(40)))),
            _ => fs::write(&at, text(numbers.next(), numbers.below(100_000) as usize)),
        };
        if done.and_then(|()| fs::metadata(folder)).is_err() {
            return;
        }
    }
}

/// Runs transactions of SQLite until the disk fails, and prints the last committed one.
fn transact(scratch: &Scratch, database: &Path, first: u64) -> Background {
    let script = scratch.path("transactions.sql");
    // PERSIST: zeroes over the header of its journal commit, and a file is synced after them. If a
    // removal commits, a folder is synced, and XFS reports success when it has just shut down. Then
    // SQLite reports a transaction that is not there. (2 of 80 kills of nbdkit over a plain file
    // did that, and none with this.)
    let mut statements = String::from(
        "PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, x);\n",
    );
    for number in first..first + TRANSACTIONS_MAX {
        statements.push_str(&format!("INSERT INTO t VALUES({number}, randomblob(700));\nSELECT {number};\n"));
    }
    fs::write(&script, statements).expect("a script");
    // Its output goes to files: a pipe might fill, and wait.
    let command = "exec sqlite3 -bail \"$0\" <\"$1\" >\"$2\" 2>/dev/null";
    let out = scratch.path("committed");
    // No wrapper around it: the kill must hit SQLite itself.
    begin(Command::new("sh").args(["-c", command]).arg(database).arg(&script).arg(&out))
}

/// Kills a file system on the export under load, again and again.
///
/// The journal is replayed, synced data is there, and the checker finds nothing to mend.
fn lives_through_kills(kind: &str, default_seed: u64) {
    let name = format!("{kind}-kills");
    let mkfs = format!("mkfs.{kind}");
    let checker = if kind == "ext4" { "fsck.ext4" } else { "xfs_repair" };
    if !have_tools(&name, &["nbdfuse", "losetup", &mkfs, checker]) || !have_mounts(&name) || stands_in() {
        return;
    }
    let number = |variable: &str| std::env::var(variable).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("LARDER_SEED").unwrap_or(default_seed);
    let rounds = number("LARDER_KILL_ROUNDS").unwrap_or(KILL_ROUNDS);
    say(&format!("{name}: LARDER_SEED={seed}"));
    let has_sqlite = have_tools(&format!("{name}: transactions"), &["sqlite3"]);
    let mut numbers = Numbers::seeded(seed);
    let scratch = Scratch::new(&name);
    let volume = Volume::create(&scratch, 24 * MIB, ORIGIN_BYTES, &["--weu", "512K"]);
    let (mut logs, mut committed) = (Vec::new(), 0);
    for round in 0..=rounds {
        let server = volume.serve();
        let mut attached = Attached::new(&scratch, &server);
        if round == 0 {
            make(kind, &attached.device.device);
        } else {
            // The mount replays the journal; then nothing is left to mend.
            attached.mount(&scratch);
            attached.mounted = None;
            check(kind, &attached.device.device);
        }
        let folder = attached.mount(&scratch);
        let database = folder.join("database");
        for (file, seed, synced) in &logs {
            check_log(&folder.join(file), *seed, *synced);
        }
        if has_sqlite && round > 0 {
            let query = "PRAGMA integrity_check; SELECT max(n), count(*) FROM t;";
            let said = run(system("sqlite3").arg(&database).arg(query));
            let found: Vec<&str> = said.split_whitespace().collect();
            let (max, count) = found.get(1).and_then(|text| text.split_once('|')).expect("two numbers");
            // The largest number of an empty table is an empty text.
            let max: u64 = max.parse().unwrap_or(0);
            assert!(found[0] == "ok" && max.to_string() == count, "{said}");
            assert!(max >= committed, "{name}: {committed} transactions were committed, {max} are left");
            committed = max;
        }
        if round == rounds {
            drop(attached);
            server.stop();
            break;
        }
        let killed = AtomicBool::new(false);
        let transactions = has_sqlite.then(|| transact(&scratch, &database, committed + 1));
        thread::scope(|scope| {
            let writers: Vec<_> = (0..LOG_WRITERS)
                .map(|writer| {
                    let (file, seed, killed) = (format!("log-{round}-{writer}"), numbers.next(), &killed);
                    let path = folder.join(&file);
                    (file, seed, scope.spawn(move || write_log(&path, seed, killed)))
                })
                .collect();
            let (busy, seed) = (folder.join("busy"), numbers.next());
            scope.spawn(move || churn(&busy, seed));
            thread::sleep(Duration::from_millis(400 + numbers.below(900)));
            killed.store(true, Release);
            server.kill();
            for (file, seed, writer) in writers {
                logs.push((file, seed, writer.join().expect("a writer")));
            }
        });
        if let Some(transactions) = transactions {
            transactions.ends("sqlite3 on a dead disk");
            let said = fs::read_to_string(scratch.path("committed")).expect("its output");
            committed = said.lines().filter_map(|line| line.parse().ok()).max().unwrap_or(committed);
        }
        drop(attached);
        volume.verify();
    }
    let lines: u64 = logs.iter().map(|(_, _, synced)| synced).sum();
    say(&format!("{name}: {rounds} kills, {lines} synced lines and {committed} transactions are all there"));
    assert!(lines > rounds, "hardly any load");
    let left = left_behind(&scratch);
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn ext4_killed_under_load() {
    lives_through_kills("ext4", 31);
}

#[test]
fn xfs_killed_under_load() {
    lives_through_kills("xfs", 37);
}

/// A failing test leaves nothing behind either, with anything open.
#[test]
fn a_panic_leaves_no_mount_loop_device_or_process() {
    let name = "panics";
    if !have_tools(name, &["nbdfuse", "losetup", "mkfs.ext4"]) || !have_mounts(name) || stands_in() {
        return;
    }
    let scratch = Scratch::new(name);
    for killed in ["nothing", "the server", "nbdfuse"] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let volume = Volume::create(&scratch, 64 * MIB, 64 * MIB, &["--force"]);
            let server = volume.serve();
            let mut attached = Attached::new(&scratch, &server);
            make("ext4", &attached.device.device);
            let folder = attached.mount(&scratch);
            let mut file = File::create(folder.join("file")).expect("a file");
            file.write_all(&[7; 100_000]).expect("a write");
            assert!(left_behind(&scratch).len() >= 4, "the search finds nothing: {:?}", left_behind(&scratch));
            match killed {
                "the server" => server.kill(),
                "nbdfuse" => attached.fuse.kill(),
                _ => {}
            }
            panic!("on purpose, in the middle");
        }));
        assert!(panicked.is_err());
        let left = left_behind(&scratch);
        assert!(left.is_empty(), "{killed} killed, and left behind: {left:?}");
    }
}
