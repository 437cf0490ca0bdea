//! The recorder over memory: each block has the trace's content, with overlaps and dropped clients.

use super::{Recorder, content_of};
use crate::{steps::Steps, trace::log::TraceLog, trace::out::OutFile};
use larder_device::{
    BlockDevice, IoBuf, IoErrorKind, IoOp, Runtime, WriteFlags, ZeroFlags,
    driver::block_on,
    faulty::Faulty,
    ram::RamDevice,
    rng::Rng,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
    throttled::{Profile, Throttled},
};
use larder_trace::{ContentId, Info, InfoCollector, Op, ReaderOptions, Record};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A recording over a device, and its file.
struct Bench {
    runtime: Arc<ThreadRuntime>,
    log: Arc<TraceLog>,
    recorder: Recorder,
    path: PathBuf,
}

impl Bench {
    fn over(device: impl FnOnce(&Arc<ThreadRuntime>) -> Arc<dyn BlockDevice>, block_bytes: u32) -> Bench {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("larder-recorder-{}-{number}", std::process::id()));
        let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 2, ..ThreadRuntimeOptions::default() });
        let out = OutFile::create(&path, true).expect("a new file");
        let log = Arc::new(TraceLog::begin(out, "test", &Steps::default()).expect("a recording"));
        let recorder = Recorder::new(device(&runtime), runtime.clone() as Arc<dyn Runtime>, log.clone(), block_bytes);
        Bench { runtime, log, recorder, path }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let data = IoBuf::copy_of(data).freeze();
        block_on(self.recorder.write(offset, data, WriteFlags::default())).expect("a write");
    }

    fn read(&self, offset: u64, len: usize) -> IoBuf {
        block_on(self.recorder.read(offset, IoBuf::new(len))).expect("a read")
    }

    /// Ends the recording and reads it.
    fn records(self) -> Vec<Record> {
        self.log.finish().expect("a whole trace");
        self.runtime.shutdown();
        let trace = larder_trace::open(&self.path, None, ReaderOptions::default()).expect("a trace");
        let records = trace.collect::<Result<Vec<_>, _>>().expect("good lines");
        std::fs::remove_file(&self.path).expect("clean up");
        records
    }
}

fn short(records: &[Record]) -> Vec<(u64, Op, u64, u64)> {
    records.iter().map(|record| (record.request, record.op, record.offset_bytes, record.len_bytes)).collect()
}

fn fingerprints(records: &[Record]) -> Vec<Option<ContentId>> {
    records.iter().map(|record| record.content.map(|content| content.fingerprint)).collect()
}

#[test]
fn fingerprints_and_sizes_are_those_of_other_recordings() {
    // The fingerprint and the size that the published traces have for zeroes.
    let zeroes = content_of(&[0; 4096]);
    assert_eq!((zeroes.fingerprint.to_string().as_str(), zeroes.stored_bytes), ("93d76fe148c689ba", Some(26)));
    assert!(zeroes.is_zero);
    let larger = content_of(&[0; 32 << 10]);
    assert!(larger.is_zero && larger.fingerprint == zeroes.fingerprint);
    let noise: Vec<u8> = (0..4096_u64).map(|at| (larder_trace::rng::mix(at) >> 9) as u8).collect();
    let noise = content_of(&noise);
    assert!(noise.stored_bytes == Some(4096) && !noise.is_zero, "what does not shrink has its own size");
}

#[test]
fn a_part_of_a_block_is_recorded_as_the_whole_block() {
    // The last block of the device is a short one.
    let ram = Arc::new(RamDevice::new("ram", 10 << 10, 512));
    let bench = Bench::over(|_| ram.clone(), 4096);
    bench.write(1024, &[1; 512]);
    bench.write(3584, &[2; 1024]);
    bench.write(8192, &[3; 2048]);
    bench.read(512, 512);
    let zeroes = bench.recorder.write_zeroes(3072, 2048, ZeroFlags::default());
    block_on(zeroes).expect("zeroes");
    let records = bench.records();
    let (read, write) = (Op::Read, Op::Write);
    let wanted = [
        (1, write, 0, 4096),
        (2, write, 0, 4096),
        (2, write, 4096, 4096),
        (3, write, 8192, 4096),
        (4, read, 0, 4096),
        (5, write, 0, 4096),
        (5, write, 4096, 4096),
    ];
    assert_eq!(short(&records), wanted);
    let block = |parts: &[(usize, u8, usize)]| {
        let mut bytes = vec![0; 4096];
        parts.iter().for_each(|&(at, byte, len)| bytes[at..at + len].fill(byte));
        Some(content_of(&bytes).fingerprint)
    };
    let both = block(&[(1024, 1, 512), (3584, 2, 512)]);
    let wanted = [
        block(&[(1024, 1, 512)]),
        both,
        block(&[(0, 2, 512)]),
        block(&[(0, 3, 2048)]),
        both,
        block(&[(1024, 1, 512)]),
        block(&[]),
    ];
    assert_eq!(fingerprints(&records), wanted);
}

#[test]
fn trims_flushes_and_forced_writes_have_lines() {
    let bench = Bench::over(|_| Arc::new(RamDevice::new("ram", 1 << 20, 512)), 4096);
    bench.write(0, &[1; 8192]);
    block_on(bench.recorder.discard(512, 4096)).expect("a trim");
    block_on(bench.recorder.flush()).expect("a flush");
    let forced = bench.recorder.write(0, IoBuf::copy_of(&[2; 4096]).freeze(), WriteFlags { fua: true });
    block_on(forced).expect("a write");
    let records = bench.records();
    let wanted = [
        (1, Op::Write, 0, 4096),
        (1, Op::Write, 4096, 4096),
        (2, Op::Trim, 512, 4096),
        (3, Op::Flush, 0, 0),
        (4, Op::Write, 0, 4096),
        (5, Op::Flush, 0, 0),
    ];
    assert_eq!(short(&records), wanted);
    assert!(records.iter().all(|record| record.time_us.is_some() && record.tag.as_bytes() == b"test"));
}

#[test]
fn what_failed_is_not_recorded_and_what_cannot_be_read_back_has_no_fingerprint() {
    let faulty = Arc::new(Faulty::new(RamDevice::new("ram", 1 << 20, 512)));
    let bench = Bench::over(|_| faulty.clone(), 4096);
    faulty.plan().fail_next(IoOp::Write, IoErrorKind::Io);
    let failed = bench.recorder.write(0, IoBuf::copy_of(&[1; 4096]).freeze(), WriteFlags::default());
    assert_eq!(block_on(failed).expect_err("a fault").kind, IoErrorKind::Io);
    faulty.plan().fail_next(IoOp::Read, IoErrorKind::Io);
    // The write is done, the rest of its block cannot be read.
    bench.write(512, &[2; 512]);
    let log = bench.log.clone();
    let records = bench.records();
    assert_eq!(short(&records), [(2, Op::Write, 0, 4096)]);
    assert_eq!(fingerprints(&records), [None]);
    assert_eq!(log.finish().expect("it is over").unknown_blocks, 1);
}

#[test]
fn a_request_whose_client_is_gone_has_its_lines() {
    let bench = Bench::over(
        |runtime| {
            let ram = RamDevice::new("ram", 1 << 20, 512);
            Arc::new(Throttled::new(ram, Profile::SataSsd, runtime.clone()))
        },
        4096,
    );
    drop(bench.recorder.write(0, IoBuf::copy_of(&[1; 4096]).freeze(), WriteFlags::default()));
    // It waits for the earlier one.
    bench.read(0, 4096);
    let records = bench.records();
    assert_eq!(short(&records), [(1, Op::Write, 0, 4096), (2, Op::Read, 0, 4096)]);
    assert_eq!(fingerprints(&records), [Some(content_of(&[1; 4096]).fingerprint); 2]);
}

/// Makes random requests on sectors of a small device, as far as they go through `bench`.
fn disturb(bench: &Bench, seed: u64, requests: u32, size: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..requests {
        let first = rng.below(size / 512);
        let sectors = 1 + rng.below((size / 512 - first).min(40));
        let (offset, len) = (first * 512, sectors * 512);
        match rng.below(10) {
            0..=4 => bench.write(offset, &vec![rng.below(4) as u8; len as usize]),
            5..=7 => drop(bench.read(offset, len as usize)),
            8 => {
                block_on(bench.recorder.write_zeroes(offset, len, ZeroFlags::default())).expect("zeroes");
            }
            _ => {
                // Whole blocks only: the trace does not tell the rest of a partly trimmed block.
                let (first, end) = (offset.next_multiple_of(4096), (offset + len) / 4096 * 4096);
                if first < end {
                    block_on(bench.recorder.discard(first, end - first)).expect("a trim");
                }
            }
        }
    }
}

#[test]
fn threads_that_overlap_leave_a_trace_that_agrees_with_the_device() {
    const SIZE: u64 = 64 << 10;
    let seed = std::env::var("LARDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(77);
    let ram = Arc::new(RamDevice::new("ram", SIZE, 512));
    let bench = Bench::over(|runtime| Arc::new(Throttled::new(ram.clone(), Profile::Nvme, runtime.clone())), 4096);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || disturb(bench, seed + thread, 400, SIZE));
        }
    });
    let records = bench.records();
    let info: Info = InfoCollector::collect(None, records.iter().map(|record| Ok(*record))).expect("statistics");
    let content = info.content.expect("content");
    assert!(content.reads_checked > 100 && content.reads_after_trim > 0, "seed {seed}: {content:?}");
    assert_eq!((content.reads_mismatched, content.reads_after_trim_not_zero), (0, 0), "seed {seed}");
    // Each block's last content in the trace is on the device.
    let mut held = HashMap::new();
    for record in &records {
        match (record.op, record.content) {
            (Op::Trim, _) => (record.offset_bytes / 4096..record.end_bytes() / 4096).for_each(|block| {
                held.insert(block, content_of(&[0; 4096]).fingerprint);
            }),
            (_, Some(content)) => drop(held.insert(record.offset_bytes / 4096, content.fingerprint)),
            _ => {}
        }
    }
    let snapshot = ram.snapshot();
    for (block, fingerprint) in held {
        let at = block as usize * 4096;
        assert_eq!(content_of(&snapshot[at..at + 4096]).fingerprint, fingerprint, "block {block}, seed {seed}");
    }
}

#[test]
fn a_recording_of_many_frames_is_one_trace() {
    let bench = Bench::over(|_| Arc::new(RamDevice::new("ram", 256 << 20, 512)), 4096);
    let blocks = (256 << 20) / 4096;
    block_on(bench.recorder.write_zeroes(0, 256 << 20, ZeroFlags::default())).expect("zeroes");
    bench.write(4096, &[1; 4096]);
    block_on(bench.recorder.write_zeroes(0, 256 << 20, ZeroFlags::default())).expect("zeroes");
    let records = bench.records();
    assert_eq!(records.len(), 2 * blocks + 1);
    assert_eq!(records.last().map(|record| record.offset_bytes), Some((256 << 20) - 4096));
}
