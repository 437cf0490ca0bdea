//! `larder-lab bench replay`: the requests of a trace, made against a device, and each read
//! verified.
//!
//! In order: (1) the cache is opened, or the export connected to. (2) Requests are made, as many at
//! once as allowed; those before the end of the warm-up are unmeasured. (3) The device is flushed,
//! and a cache of this process has inserted its reads. (4) Its counts are taken. (5) It is closed.
//!
//! Invariants: a request that overlaps one under way waits for it, and all later ones with it. A
//! device that fails ends the replay. At the trace's pace a latency begins at the request's due
//! time, so that its wait behind others counts; at full pace at its start.
//!
//! It does not count the cache's events; `counts.rs` asks it.

use crate::{
    args::BenchReplayArgs,
    sim::spec::Warmup,
    trace::{self, watch::Watch},
};
use larder::{
    error::{Failure, Outcome},
    flash::{Access, open_flash},
    output,
    size::count,
    volume::{OpenedCache, StateArgs, open_cache},
};
use larder_device::{
    BlockDevice, IoBuf, IoFuture, IoResult, WriteFlags, ZeroFlags,
    driver::{block_on, sleep},
    uri::{OpenMode, open_device},
};
use larder_engine::Tuning;
use larder_trace::Op;
use std::{
    future::{Future, poll_fn},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use super::{
    counts::{Counting, Counts, between},
    pace::Pace,
    report::{About, BenchReport, Latencies, Tally, Verified},
    requests::{Trace, TraceRequests},
};
use larder_papers::{
    blocks::{Blocks, Expected},
    request::PaperRequest,
};

/// Bytes of a request at most, if the device takes as many.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// The interval between looks for a signal while nothing is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &BenchReplayArgs) -> Outcome {
    let target = match (&args.flash, &args.nbd) {
        (Some(flash), _) => Target::Here(flash),
        (None, Some(uri)) => Target::Nbd(uri),
        (None, None) => return Err(Failure::Usage("name a cache with --flash, or an export with --nbd".into())),
    };
    let pace = Pace::of(args)?;
    let watch = Watch::new()?;
    let result = Trace::open(&args.input, &watch).and_then(|trace| against_target(args, pace, &target, &trace));
    watch.finish();
    let replayed = result?;
    match args.json {
        true => output::say_json(&replayed.report)?,
        false => output::say(&replayed.report.page())?,
    }
    match replayed.first_wrong {
        None => Ok(()),
        Some(wrong) => Err(Failure::Failed(wrong)),
    }
}

/// A replay that came to its end.
struct Replayed {
    report: BenchReport,
    /// The sentence on the first wrong block.
    first_wrong: Option<String>,
}

/// The measured device.
enum Target<'a> {
    /// A cache that is opened in this process.
    Here(&'a Path),
    /// An export.
    Nbd(&'a str),
}

fn against_target(args: &BenchReplayArgs, pace: Pace, target: &Target<'_>, trace: &Trace<'_>) -> Outcome<Replayed> {
    // (1)
    let path = match target {
        Target::Here(path) => path,
        Target::Nbd(uri) => {
            let mode = OpenMode { exclusive: true, direct: true, ..OpenMode::default() };
            let opened = open_device(uri, mode)
                .map_err(|error| Failure::failed(format_args!("{uri} cannot be opened: {error}")))?;
            let counting = args.counts_of.clone().map_or(Counting::Nowhere, Counting::Served);
            return measure(args, pace, trace, &*opened.device, &counting, opened.canonical_uri.clone());
        }
    };
    let default = Tuning::default();
    let prefetch_bytes_max = if args.no_read_ahead { 0 } else { default.prefetch_bytes_max };
    let tuning = Tuning { prefetch_bytes_max, ..default };
    let OpenedCache { cache, runtime } =
        open_cache(open_flash(path, Access::Write)?, None, &StateArgs::default(), tuning)?;
    let cache = Arc::new(cache);
    let counting = Counting::Here(cache.clone());
    let measured = measure(args, pace, trace, &*cache, &counting, path.display().to_string());
    // (5)
    let closed = cache.close_blocking().map_err(|error| Failure::engine(path, &error));
    drop((cache, counting));
    runtime.shutdown();
    let measured = measured?;
    closed?;
    Ok(measured)
}

fn measure(
    args: &BenchReplayArgs,
    pace: Pace,
    trace: &Trace<'_>,
    device: &dyn BlockDevice,
    counting: &Counting,
    target: String,
) -> Outcome<Replayed> {
    let bytes_max = REQUEST_BYTES_MAX.min(device.info().request_bytes_max.into());
    let sector = u64::from(device.info().sector_bytes);
    if !trace.block_bytes().is_multiple_of(sector) {
        return Err(Failure::failed(format_args!(
            "{target} has sectors of {sector} bytes, and the trace blocks of {}: convert it with `larder-lab trace convert --chunk {sector}`",
            trace.block_bytes()
        )));
    }
    let warmup_requests = warmup_requests(args.warmup, trace, bytes_max)?;
    let mut replay = Replay {
        device,
        counting,
        watch: trace.watch(),
        blocks: Blocks::new(trace.block_bytes()),
        outstanding: args.outstanding.into(),
        pace,
        warmup_requests,
        flights: Vec::new(),
        scratch: vec![0; trace.block_bytes() as usize],
        measured: Measured::new(counting.now()?)?,
        verified: Verified::default(),
        first_wrong: None,
        failed: None,
    };
    let mut requests = trace.requests("replaying", bytes_max)?;
    block_on(replay.all(&mut requests))?;
    let content = requests.provenance().map_or("none", trace::provenance_name);
    // (3)
    block_on(device.flush())
        .map_err(|error| Failure::failed(format_args!("{target}: the last flush failed: {error}")))?;
    if let Counting::Here(cache) = counting {
        block_on(cache.wait_for_insertions());
    }
    // (4)
    let counts = between(&replay.measured.before, &counting.now()?);
    let about = About {
        trace: args.input.file.trace.display().to_string(),
        content,
        target,
        outstanding: args.outstanding,
        pace: pace.words(),
        block_bytes: trace.block_bytes(),
        warmup_requests,
        contradictions: replay.blocks.contradictions,
    };
    let Measured { tally, latencies, late, .. } = &replay.measured;
    let report = BenchReport::new(about, tally, &replay.verified, latencies, late, counts);
    Ok(Replayed { report, first_wrong: replay.first_wrong })
}

/// Returns how many requests precede the measured ones.
///
/// # Errors
/// A sentence: that nothing would be left to measure, or the trace's reader's.
fn warmup_requests(warmup: Warmup, trace: &Trace<'_>, bytes_max: u64) -> Outcome<u64> {
    let requests_to = |most: u64| -> Outcome<u64> {
        let mut requests = trace.requests("counting", bytes_max)?;
        let mut total = 0;
        while total < most && requests.next().transpose()?.is_some() {
            total += 1;
        }
        Ok(total)
    };
    let (requests, total) = match warmup {
        Warmup::Requests(0) | Warmup::Percent(0.0) => return Ok(0),
        Warmup::Requests(requests) => (requests, requests_to(requests.saturating_add(1))?),
        Warmup::Percent(percent) => {
            let total = requests_to(u64::MAX)?;
            ((total as f64 * percent / 100.0) as u64, total)
        }
    };
    match requests == 0 || requests < total {
        true => Ok(requests),
        false => Err(nothing_to_measure(total)),
    }
}

fn nothing_to_measure(requests: u64) -> Failure {
    Failure::failed(format_args!(
        "the warm-up takes all {} requests of the trace, and leaves none to measure: give --warmup fewer",
        count(requests)
    ))
}

/// The measurements since the warm-up.
struct Measured {
    began: Instant,
    before: Counts,
    tally: Tally,
    latencies: [Latencies; 4],
    late: Latencies,
}

impl Measured {
    fn new(before: Counts) -> Outcome<Measured> {
        let latencies = [Latencies::new()?, Latencies::new()?, Latencies::new()?, Latencies::new()?];
        Ok(Measured { began: Instant::now(), before, tally: Tally::default(), latencies, late: Latencies::new()? })
    }
}

/// The outcome to come of a request under way.
enum Doing {
    Read(IoFuture<IoBuf>),
    Other(IoFuture<()>),
}

impl Doing {
    fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<IoResult<Option<IoBuf>>> {
        match self {
            Doing::Read(read) => Pin::new(read).poll(context).map_ok(Some),
            Doing::Other(other) => Pin::new(other).poll(context).map_ok(|()| None),
        }
    }
}

/// A request that is under way.
struct Flight {
    request: PaperRequest,
    expected: Vec<Expected>,
    doing: Doing,
    /// The start of its latency.
    since: Instant,
    is_measured: bool,
}

struct Replay<'a> {
    device: &'a dyn BlockDevice,
    counting: &'a Counting,
    watch: &'a Watch,
    blocks: Blocks,
    outstanding: usize,
    pace: Pace,
    warmup_requests: u64,
    flights: Vec<Flight>,
    scratch: Vec<u8>,
    measured: Measured,
    verified: Verified,
    first_wrong: Option<String>,
    failed: Option<Failure>,
}

impl Replay<'_> {
    /// Runs step (2): all requests, to their ends.
    async fn all(&mut self, requests: &mut TraceRequests<'_, '_>) -> Outcome {
        let mut next = self.fetch(requests)?;
        let begin = Instant::now();
        let first_us = next.as_ref().and_then(|request| request.time_us).unwrap_or_default();
        self.measured.began = begin;
        let mut made = 0;
        while self.failed.is_none()
            && let Some(request) = next.take()
        {
            if self.watch.is_ending() {
                let made = count(made);
                self.failed.get_or_insert(Failure::failed(format_args!("ended by a signal after {made} requests")));
                break;
            }
            let due = self.due(&request, begin, first_us)?;
            let waits = self.flights.len() >= self.outstanding
                || self
                    .flights
                    .iter()
                    .any(|flight| flight.request.meets(request.offset, request.len, request.op == Op::Read));
            let now = Instant::now();
            if waits || due.is_some_and(|due| now < due) {
                let until = if waits { None } else { due };
                next = Some(request);
                self.wait(until.map(|until| (until - now).min(LOOK_EVERY))).await;
                continue;
            }
            if made == self.warmup_requests && made > 0 {
                self.measured = Measured::new(self.counting.now()?)?;
            }
            self.start(request, due, made >= self.warmup_requests);
            made += 1;
            next = match self.fetch(requests) {
                Ok(next) => next,
                Err(failure) => {
                    self.failed.get_or_insert(failure);
                    None
                }
            };
        }
        while !self.flights.is_empty() {
            self.wait(None).await;
        }
        self.measured.tally.elapsed = self.measured.began.elapsed();
        if self.failed.is_none() && made <= self.warmup_requests && self.warmup_requests > 0 {
            // Trims that the device does not support are not made, and were counted before.
            return Err(nothing_to_measure(made));
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns the next request with any work, checked.
    fn fetch(&self, requests: &mut TraceRequests<'_, '_>) -> Outcome<Option<PaperRequest>> {
        let info = self.device.info();
        for request in requests {
            let mut request = request?;
            if request.op == Op::Trim {
                // A range that no trim of the device can name is not trimmed.
                let sector = u64::from(info.sector_bytes);
                let end = (request.offset + request.len) / sector * sector;
                request.offset = request.offset.next_multiple_of(sector);
                request.len = end.saturating_sub(request.offset);
                if request.len == 0 {
                    continue;
                }
            }
            if request.offset + request.len > info.size_bytes {
                return Err(Failure::failed(format_args!(
                    "request {} of the trace reaches to byte {}, and {} has {} bytes: use a larger one, or take less of the trace with --limit",
                    request.number,
                    request.offset + request.len,
                    if info.name.is_empty() { "the volume" } else { &info.name },
                    info.size_bytes
                )));
            }
            return Ok(Some(request));
        }
        Ok(None)
    }

    /// Returns when a request is due; `None` at full pace.
    fn due(&self, request: &PaperRequest, begin: Instant, first_us: u64) -> Outcome<Option<Instant>> {
        let Pace::Times(speed) = self.pace else { return Ok(None) };
        let Some(time_us) = request.time_us else {
            return Err(Failure::failed(format_args!(
                "request {} of the trace has no time: replay it with --pace full",
                request.number
            )));
        };
        let seconds = Duration::from_micros(time_us.saturating_sub(first_us)).as_secs_f64() / speed;
        let due = Duration::try_from_secs_f64(seconds).ok().and_then(|after| begin.checked_add(after));
        let never = || {
            Failure::failed(format_args!(
                "request {} of the trace would be made {seconds:.0} seconds after the first, which no clock here reaches: replay it with --pace full, or a larger --speed",
                request.number
            ))
        };
        due.map(Some).ok_or_else(never)
    }

    fn start(&mut self, request: PaperRequest, due: Option<Instant>, is_measured: bool) {
        let expected = if request.op == Op::Read { self.blocks.read(&request) } else { Vec::new() };
        self.blocks.change(&request);
        let len = request.len as usize;
        let data = (request.op == Op::Write).then(|| {
            let mut data = IoBuf::new(len);
            for block in &request.blocks {
                if let Some(bytes) = block.bytes {
                    bytes.fill(&mut data[block.at as usize..(block.at + block.len) as usize]);
                }
            }
            data.freeze()
        });
        let now = Instant::now();
        let doing = match (request.op, data) {
            (Op::Write, Some(data)) => Doing::Other(self.device.write(request.offset, data, WriteFlags::default())),
            (Op::Trim, _) => Doing::Other(self.device.write_zeroes(request.offset, request.len, ZeroFlags::default())),
            (Op::Flush, _) => Doing::Other(self.device.flush()),
            _ => Doing::Read(self.device.read(request.offset, IoBuf::new(len))),
        };
        if is_measured && let Some(due) = due {
            self.measured.late.add(now.saturating_duration_since(due));
        }
        self.flights.push(Flight { request, expected, doing, since: due.unwrap_or(now), is_measured });
    }

    /// Waits until at least one request ends, or the time.
    async fn wait(&mut self, until: Option<Duration>) {
        let mut timer = until.map(sleep);
        let mut over = Vec::new();
        poll_fn(|context| {
            let mut at = 0;
            while let Some(flight) = self.flights.get_mut(at) {
                match flight.doing.poll(context) {
                    Poll::Ready(result) => over.push((self.flights.swap_remove(at), result, Instant::now())),
                    Poll::Pending => at += 1,
                }
            }
            let is_time = timer.as_mut().is_some_and(|timer| Pin::new(timer).poll(context).is_ready());
            if over.is_empty() && !is_time { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for (flight, result, at) in over {
            self.finish(&flight, result, at);
        }
    }

    fn finish(&mut self, flight: &Flight, result: IoResult<Option<IoBuf>>, at: Instant) {
        let request = &flight.request;
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                self.failed.get_or_insert(Failure::failed(format_args!(
                    "request {} of the trace failed: {error}",
                    request.number
                )));
                return;
            }
        };
        let kind = match request.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Trim => 2,
            Op::Flush => 3,
        };
        if flight.is_measured {
            self.measured.latencies[kind].add(at.saturating_duration_since(flight.since));
            self.measured.tally.requests[kind] += 1;
            if let Some(bytes) = self.measured.tally.bytes.get_mut(kind) {
                *bytes += request.len;
            }
        }
        if let Some(found) = found {
            self.verify(flight, &found);
        }
    }

    /// Verifies each block of a read. It counts those before the end of the warm-up, too.
    fn verify(&mut self, flight: &Flight, found: &[u8]) {
        let request = &flight.request;
        for (block, expected) in request.blocks.iter().zip(&flight.expected) {
            let Some(found) = found.get(block.at as usize..(block.at + block.len) as usize) else { continue };
            let (bytes, is_prepared) = match expected {
                Expected::Surely(bytes) => (bytes, true),
                Expected::IfPrepared(bytes) => (bytes, false),
                Expected::Anything => {
                    self.verified.unknown += 1;
                    continue;
                }
            };
            if bytes.is(found, &mut self.scratch) {
                self.verified.right += 1;
                continue;
            }
            self.verified.wrong += 1;
            let offset = request.offset + block.at;
            let number = request.number;
            if is_prepared {
                self.first_wrong.get_or_insert_with(|| {
                    format!("request {number} of the trace did not read the last content at byte {offset}")
                });
            } else {
                self.failed.get_or_insert(Failure::failed(format_args!(
                    "request {number} of the trace reads at byte {offset} other content than the device has: prepare the disk with `larder-lab bench prepare`"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchTrace, FormatArgs, PaceArg, TraceFile};
    use larder_device::{DeviceInfo, SharedBuf, ram::RamDevice};
    use std::path::PathBuf;

    /// A device that forgets writes to one place, or changes the reads there.
    struct Lying {
        inner: RamDevice,
        at: u64,
        forgets: bool,
    }

    impl BlockDevice for Lying {
        fn info(&self) -> &DeviceInfo {
            self.inner.info()
        }
        fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
            let at = self.at.checked_sub(offset).filter(|_| !self.forgets);
            self.inner.read(offset, buf).map(move |read| {
                read.map(|mut buf| {
                    if let Some(byte) = at.and_then(|at| buf.get_mut(at as usize)) {
                        *byte ^= 1;
                    }
                    buf
                })
            })
        }
        fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
            if self.forgets && offset == self.at {
                IoFuture::ready(Ok(()))
            } else {
                self.inner.write(offset, data, flags)
            }
        }
        fn flush(&self) -> IoFuture<()> {
            self.inner.flush()
        }
        fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
            self.inner.discard(offset, len)
        }
        fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
            self.inner.write_zeroes(offset, len, flags)
        }
    }

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Replays eight blocks written and read back, twice.
    fn replayed(name: &str, device: &dyn BlockDevice, warmup: u64) -> Replayed {
        let scratch = Scratch(std::env::temp_dir().join(format!("larder-bench-{name}-{}", std::process::id())));
        let mut lines = String::new();
        for request in 0..32 {
            let (block, round) = (request / 2 % 8, request / 16);
            let op = if request % 2 == 0 { 'W' } else { 'R' };
            lines += &format!("- {request} - {} 8 {op} 0 0 {:016x} 900\n", block * 8, 100 + block * 2 + round);
        }
        std::fs::write(&scratch.0, lines).expect("a trace");
        let trace = scratch.0.clone();
        let args = BenchReplayArgs {
            input: BenchTrace {
                file: TraceFile { trace, how: FormatArgs::default(), unit: None, skip_bad: false, content: None },
                limit: None,
            },
            flash: None,
            nbd: None,
            counts_of: None,
            no_read_ahead: false,
            outstanding: 4,
            pace: PaceArg::Full,
            speed: None,
            warmup: Warmup::Requests(warmup),
            design: None,
            json: false,
        };
        let watch = Watch::new().expect("signals");
        let trace = Trace::open(&args.input, &watch).expect("a trace");
        measure(&args, Pace::Full, &trace, device, &Counting::Nowhere, "a device".into()).expect("replayed")
    }

    #[test]
    fn a_device_that_lies_is_told() {
        let device = |forgets| Lying {
            inner: RamDevice::new("lying", 1 << 20, 512),
            at: 3 * 4096 + if forgets { 0 } else { 77 },
            forgets,
        };
        for (name, forgets) in [("forgets", true), ("changes", false)] {
            // Request 7 reads the first of the two wrong blocks, request 23 the second.
            for (warmup, requests) in [(0, 32), (10, 22), (30, 2)] {
                let replayed = replayed(name, &device(forgets), warmup);
                let told = replayed.first_wrong.expect("a wrong block");
                assert!(told.contains("request 7 of the trace did not read the last content at byte 12288"), "{told}");
                let report = serde_json::to_value(&replayed.report).expect("JSON");
                assert_eq!((&report["blocks_wrong"], &report["blocks_verified"]), (&2.into(), &14.into()), "{report}");
                assert_eq!(report["requests"], requests);
                let page = replayed.report.page();
                assert!(page.contains("16, of them wrong 2") && page.contains("warm-up") == (warmup > 0), "{page}");
            }
        }
        let honest = replayed("honest", &RamDevice::new("honest", 1 << 20, 512), 0);
        assert!(honest.first_wrong.is_none());
    }
}
