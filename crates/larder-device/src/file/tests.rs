//! Tests of the file device: a seeded model, locks, extents, and futures that are dropped or moved.

use super::*;
use crate::{IoErrorKind, driver::block_on};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// A path in a directory on a disk (not tmpfs, if there is one), removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> TempFile {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        TempFile(std::env::temp_dir().join(format!("larder-file-{}-{number}", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const BYTES: u64 = 1 << 20;

fn options(direct: bool) -> OpenOptions {
    OpenOptions { direct, create_bytes: Some(BYTES), ..OpenOptions::default() }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Runs seeded operations on disjoint ranges against a byte array, each batch in flight at once.
fn run_model(direct: bool, seed: u64) {
    println!("direct {direct}, seed {seed}");
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(direct)).unwrap();
    let sector = u64::from(device.info().sector_bytes);
    let mut model = vec![0u8; BYTES as usize];
    let mut rng = Rng(seed);
    const LANES: u64 = 8;
    let lane_bytes = BYTES / LANES;
    for _ in 0..60 {
        block_on(async {
            let mut reads = Vec::new();
            let mut others = Vec::new();
            for lane in 0..LANES {
                let sectors = lane_bytes / sector;
                let first = rng.below(sectors);
                let len = (1 + rng.below((sectors - first).min(40))) * sector;
                let offset = lane * lane_bytes + first * sector;
                let range = offset as usize..(offset + len) as usize;
                match rng.below(10) {
                    0..4 => {
                        // Memory at an odd multiple of a sector, and at an odd byte.
                        let skip = [0, sector as usize, 8][rng.below(3) as usize];
                        let mut buf = IoBuf::new(len as usize + skip);
                        drop(buf.split_to(skip));
                        reads.push((range, device.read(offset, buf)));
                    }
                    4..8 => {
                        let skip = [0, sector as usize, 8][rng.below(3) as usize];
                        let mut data = IoBuf::new(len as usize + skip);
                        drop(data.split_to(skip));
                        data.iter_mut().for_each(|byte| *byte = rng.next() as u8);
                        model[range].copy_from_slice(&data);
                        let flags = WriteFlags { fua: rng.below(4) == 0 };
                        others.push(device.write(offset, data.freeze(), flags));
                    }
                    8 => {
                        if device.info().discard_zeroes {
                            model[range].fill(0);
                            others.push(device.discard(offset, len));
                        }
                    }
                    _ => {
                        model[range].fill(0);
                        let (fua, no_hole) = (rng.below(2) == 0, rng.below(2) == 0);
                        let fast_only = rng.below(2) == 0 && device.info().zeroes_fast;
                        others.push(device.write_zeroes(offset, len, ZeroFlags { fua, no_hole, fast_only }));
                    }
                }
            }
            for (range, future) in reads {
                let buf = future.await.unwrap();
                assert!(buf[..] == model[range.clone()], "read of {range:?} differs");
            }
            for future in others {
                future.await.unwrap();
            }
            device.flush().await.unwrap();
        });
    }
    drop(device);
    assert!(fs::read(&temp.0).unwrap() == model);
}

#[test]
fn random_operations_match_a_byte_array() {
    for seed in 1..=4 {
        run_model(true, seed);
        run_model(false, seed);
    }
}

#[test]
fn a_file_is_created_once_and_keeps_its_content() {
    let temp = TempFile::new();
    assert_eq!(FileDevice::open(&temp.0, OpenOptions::default()).err().unwrap().errno, Some(libc::ENOENT));
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    assert_eq!(device.info().size_bytes, BYTES);
    assert_ne!(device.identity(), 0);
    block_on(device.write(4096, IoBuf::copy_of(&[7; 4096]).freeze(), WriteFlags::default())).unwrap();
    drop(device);
    let grown = OpenOptions { create_bytes: Some(2 * BYTES), ..options(false) };
    let device = FileDevice::open(&temp.0, grown).unwrap();
    assert_eq!(device.info().size_bytes, BYTES);
    assert!(!device.is_direct());
    assert_eq!(block_on(device.read(4096, IoBuf::new(4096))).unwrap()[..], [7; 4096]);
}

#[test]
fn a_file_system_without_direct_io_is_served_buffered() {
    // The kernel decides about O_DIRECT on this tmpfs; either way it must work.
    let path = PathBuf::from(format!("/dev/shm/larder-file-{}", std::process::id()));
    let temp = TempFile(path);
    let Ok(device) = FileDevice::open(&temp.0, options(true)) else { return };
    block_on(async {
        device.write(512, IoBuf::copy_of(&[3; 512]).freeze(), WriteFlags { fua: true }).await.unwrap();
        assert_eq!(device.read(512, IoBuf::new(512)).await.unwrap()[..], [3; 512]);
    });
}

#[test]
fn wrong_ranges_are_refused() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    let kind = |offset, len| block_on(device.read(offset, IoBuf::new(len))).unwrap_err().kind;
    assert_eq!(kind(BYTES, 4096), IoErrorKind::OutOfRange);
    assert_eq!(kind(BYTES - 4096, 8192), IoErrorKind::OutOfRange);
    assert_eq!(kind(100, 4096), IoErrorKind::Unaligned);
    assert_eq!(block_on(device.discard(BYTES, 4096)).unwrap_err().kind, IoErrorKind::OutOfRange);
    assert_eq!(block_on(device.read(0, IoBuf::new(0))).unwrap().len(), 0);
    drop(device);

    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let device = FileDevice::open(&temp.0, options).unwrap();
    let write = device.write(0, IoBuf::zeroed(4096).freeze(), WriteFlags::default());
    assert_eq!(block_on(write).unwrap_err().kind, IoErrorKind::ReadOnly);
    block_on(device.flush()).unwrap();
}

#[test]
fn a_file_cut_short_under_us_is_an_error() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    fs::OpenOptions::new().write(true).open(&temp.0).unwrap().set_len(8192).unwrap();
    let error = block_on(device.read(4096, IoBuf::new(16384))).unwrap_err();
    assert_eq!(error.kind, IoErrorKind::Io);
    assert!(error.to_string().contains("ends early"), "{error}");
}

#[test]
fn a_held_lock_refuses_the_second() {
    let temp = TempFile::new();
    let exclusive = OpenOptions { exclusive: true, ..options(true) };
    let first = FileDevice::open(&temp.0, exclusive).unwrap();
    let error = FileDevice::open(&temp.0, exclusive).err().unwrap();
    assert_eq!(error.kind, IoErrorKind::InUse);
    assert_eq!(error.to_string(), "open failed: in use by another process");
    FileDevice::open(&temp.0, options(true)).unwrap();
    drop(first);
    FileDevice::open(&temp.0, exclusive).unwrap();
}

#[test]
fn directories_and_character_devices_are_refused() {
    for path in ["/tmp", "/dev/null"] {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        assert!(FileDevice::open(path, options).is_err(), "{path}");
    }
}

#[test]
fn extents_tell_data_from_holes() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    block_on(async {
        device.write(65536, IoBuf::copy_of(&[1; 65536]).freeze(), WriteFlags::default()).await.unwrap();
        device.flush().await.unwrap();
        let extents = device.extents(0, BYTES).await.unwrap();
        assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), BYTES);
        if extents.len() > 1 {
            let hole = Extent { len: 65536, hole: true, zero: true };
            let data = Extent { len: 65536, hole: false, zero: false };
            assert_eq!(extents[..2], [hole, data]);
            device.discard(65536, 65536).await.unwrap();
            let extents = device.extents(4096, BYTES - 4096).await.unwrap();
            assert_eq!(extents, [Extent { len: BYTES - 4096, hole: true, zero: true }]);
        }
    });
}

#[test]
fn dropped_futures_leave_the_kernel_its_buffers() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    for round in 0..50u8 {
        block_on(async {
            for lane in 0..8 {
                let data = IoBuf::copy_of(&[round; 4096]).freeze();
                drop(device.write(lane * 4096, data, WriteFlags::default()));
                drop(device.read(lane * 4096 + 65536, IoBuf::new(32768)));
            }
            // These buffers would find memory freed too early: they come from the same pool.
            let bufs: Vec<_> = (0..32).map(|_| IoBuf::copy_of(&[0xee; 32768])).collect();
            let read = device.read(0, IoBuf::new(4096)).await.unwrap();
            assert_eq!(read.len(), 4096);
            assert!(bufs.iter().all(|buf| buf.iter().all(|&byte| byte == 0xee)));
        });
    }
}

#[test]
fn a_thread_that_ends_waits_for_its_operations() {
    let temp = TempFile::new();
    let device = Arc::new(FileDevice::open(&temp.0, options(true)).unwrap());
    for round in 1..=20u8 {
        let writer = device.clone();
        let futures = thread::spawn(move || {
            block_on(async {
                let write = |lane: u64| {
                    writer.write(lane * 65536, IoBuf::copy_of(&[round; 65536]).freeze(), WriteFlags::default())
                };
                (0..16).map(write).collect::<Vec<_>>()
            })
        })
        .join()
        .unwrap();
        for future in futures {
            block_on(future).unwrap();
        }
        let mut all = vec![0; BYTES as usize];
        fs::File::open(&temp.0).unwrap().read_exact_at(&mut all, 0).unwrap();
        assert!(all.iter().all(|&byte| byte == round));
    }
}

#[test]
fn futures_outlive_the_block_on_that_began_them() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    for round in 0..200u8 {
        let future = block_on(async {
            device.write(0, IoBuf::copy_of(&[round; 4096]).freeze(), WriteFlags::default()).await.unwrap();
            device.read(0, IoBuf::new(4096))
        });
        // Awaited by a thread with no driver of its own.
        let buf = thread::scope(|scope| scope.spawn(|| poll_to_the_end(future)).join().unwrap()).unwrap();
        assert!(buf.iter().all(|&byte| byte == round));
    }
}

#[test]
fn devices_work_under_a_foreign_executor() {
    let temp = TempFile::new();
    let device = FileDevice::open(&temp.0, options(true)).unwrap();
    for round in 0..50u8 {
        let data = IoBuf::copy_of(&[round; 8192]).freeze();
        poll_to_the_end(device.write(4096, data, WriteFlags::default())).unwrap();
        assert!(poll_to_the_end(device.read(4096, IoBuf::new(8192))).unwrap().iter().all(|&byte| byte == round));
    }
}

/// A loop device over a file, let go at the end. `None` if the system or our rights do not allow
/// one.
struct LoopDevice(String);

impl LoopDevice {
    fn over(path: &std::path::Path) -> Option<LoopDevice> {
        LoopDevice::with(&[], path)
    }

    fn with(options: &[&str], path: &std::path::Path) -> Option<LoopDevice> {
        let mut losetup = std::process::Command::new("losetup");
        let Some(output) = losetup.args(options).args(["-f", "--show"]).arg(path).output().ok() else {
            println!("skipped: no losetup here");
            return None;
        };
        if !output.status.success() {
            println!("skipped: no loop device here: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_string()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_read_written_zeroed_and_locked() {
    let temp = TempFile::new();
    drop(FileDevice::open(&temp.0, options(false)).unwrap());
    let Some(node) = LoopDevice::over(&temp.0) else { return };
    let exclusive = OpenOptions { direct: true, exclusive: true, ..OpenOptions::default() };
    let device = FileDevice::open(&node.0, exclusive).unwrap();
    let info = device.info();
    assert_eq!((info.size_bytes, device.is_block_device()), (BYTES, true));
    assert_ne!(device.identity(), 0, "a loop device is known by its file");
    assert!(info.sector_bytes >= 512 && !info.discard_zeroes);
    assert_eq!(FileDevice::open(&node.0, exclusive).err().unwrap().kind, IoErrorKind::InUse);
    block_on(async {
        device.write(0, IoBuf::copy_of(&[5; 65536]).freeze(), WriteFlags { fua: true }).await.unwrap();
        for (at, no_hole) in [(0, false), (8192, true)] {
            device.write_zeroes(at, 4096, ZeroFlags { no_hole, fua: true, fast_only: false }).await.unwrap();
        }
        let fast = device.write_zeroes(16384, 4096, ZeroFlags { fast_only: true, ..ZeroFlags::default() }).await;
        assert_eq!(fast.is_ok(), device.info().zeroes_fast, "{fast:?}");
        device.discard(32768, 4096).await.unwrap();
        device.flush().await.unwrap();
        let all = device.read(0, IoBuf::new(65536)).await.unwrap();
        for (block, bytes) in all.chunks(4096).enumerate() {
            let expected = match block {
                0 | 2 => 0,
                4 if fast.is_ok() => 0,
                8 => continue,
                _ => 5,
            };
            assert!(bytes.iter().all(|&byte| byte == expected), "block {block}");
        }
        assert_eq!(device.extents(0, BYTES).await.unwrap().len(), 1);
    });
}

#[test]
fn a_block_device_that_takes_no_write_is_opened_for_reading_alone() {
    let temp = TempFile::new();
    drop(FileDevice::open(&temp.0, options(false)).unwrap());
    let Some(node) = LoopDevice::with(&["-r"], &temp.0) else { return };
    for exclusive in [false, true] {
        let writable = OpenOptions { direct: true, exclusive, ..OpenOptions::default() };
        let error = FileDevice::open(&node.0, writable).err().expect("no write would succeed");
        assert_eq!((error.kind, error.op), (IoErrorKind::ReadOnly, IoOp::Open), "{error}");
        let device = FileDevice::open(&node.0, OpenOptions { read_only: true, ..writable }).unwrap();
        assert!(device.info().read_only);
        assert_eq!(block_on(device.read(0, IoBuf::new(4096))).unwrap().len(), 4096);
    }
}

fn poll_to_the_end<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
