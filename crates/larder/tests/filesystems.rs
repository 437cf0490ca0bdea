//! ext4 and XFS on a served volume, through nbdfuse and a loop device: make, work, trim, unmount, restart, check, and
//! every file as it was. No kernel NBD is needed. Root and loop devices are; without them the tests say so and skip.

mod support;

use std::fs;
use std::path::Path;

use support::image::{checksums, tree};
use support::{FuseFile, Loop, MIB, Mounted, Scratch, Volume};
use support::{have_mounts, have_tools, run, sh, stands_in, system};

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

/// Everything that the file system does comes back: after a restart, and from the origin alone after a full destage.
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

#[test]
fn a_synced_file_system_survives_a_killed_server() {
    let name = "ext4-kill";
    if !have_tools(name, &["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4"]) || !have_mounts(name) {
        return;
    }
    let scratch = Scratch::new(name);
    let volume = Volume::create(&scratch, 64 * MIB, ORIGIN_BYTES, &[]);
    let before;
    let server = volume.serve();
    {
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        let device = Loop::over(&fuse.file());
        make("ext4", &device.device);
        let mounted = Mounted::mount(&scratch, "mnt", &device.device, "rw,errors=continue");
        tree(&mounted.folder, 31, TREE_BYTES / 2);
        before = checksums(&mounted.folder);
        sh("sync", ["-f".as_ref(), mounted.folder.as_os_str()]);
        // A process kill, while the file system is mounted: what follows on this mount are I/O errors.
        server.kill();
    }
    let server = volume.serve();
    {
        let fuse = FuseFile::mount(&scratch, "fuse", &server.uri);
        let device = Loop::over(&fuse.file());
        // The mount replays the journal; then nothing is left to mend.
        drop(Mounted::mount(&scratch, "mnt", &device.device, "rw"));
        check("ext4", &device.device);
        let mounted = Mounted::mount(&scratch, "mnt", &device.device, "ro");
        assert_eq!(before, checksums(&mounted.folder), "files differ after a crash of the server");
    }
    server.stop();
}
