//! The trace of a recording: lines of requests, in the order of their ends, in the content format.
//!
//! Invariants: the file is a row of zstd frames, each of which ends with a whole request. So after
//! any event the file can be read up to the last frame. After a failed write the file is cut there,
//! and nothing is added any more. A line is added before its request is answered.
//!
//! It does not decide the content of a line; `recorder.rs` does.

use crate::{
    error::{Failure, Outcome},
    output,
    size::count,
    steps::Steps,
};
use larder_trace::{ContentWriter, Record, RecordWriter, Tag, TraceError, TraceResult};
use parking_lot::Mutex;
use std::{
    fs::File,
    io::{self, Seek, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{failure::failure, out::OutFile};

/// Lines in a frame: about 1 MiB of text, 300 KiB packed. Shorter frames pack worse.
const FRAME_RECORDS: u64 = 16 << 10;

/// A request's time of arrival, and its number.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// Microseconds since the recording began.
    pub time_us: u64,
    /// The request's number, from 1.
    pub request: u64,
}

/// A trace log, as the module describes it.
pub struct TraceLog {
    began: Instant,
    requests: AtomicU64,
    is_open: AtomicBool,
    tag: Tag,
    state: Mutex<RecordingState>,
    path: PathBuf,
    steps: Steps,
}

/// The trace's file, each write to which is a step.
#[derive(Clone)]
struct StepFile {
    file: Arc<File>,
    steps: Steps,
    /// The step, in words.
    writing: Arc<str>,
}

impl Write for StepFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _step = self.steps.begin(self.writing.clone());
        (&*self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.file).flush()
    }
}

struct RecordingState {
    /// `None` after the recording.
    writer: Option<ContentWriter<StepFile>>,
    /// The file, for the next frame.
    file: StepFile,
    out: Option<OutFile>,
    /// Records in the open frame.
    frame_records: u64,
    /// The end of the last whole frame.
    whole_bytes: u64,
    written: Recorded,
    /// The counts at the end of the last whole frame.
    whole: Recorded,
    failed: Option<TraceError>,
}

/// The counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Requests.
    pub requests: u64,
    /// Lines.
    pub records: u64,
    /// Blocks whose content could not be read back.
    pub unknown_blocks: u64,
}

impl TraceLog {
    /// Begins a recording; writes are steps of these.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(out: OutFile, tag: &str, steps: &Steps) -> Outcome<TraceLog> {
        let path = out.path().to_owned();
        let writing = format!("writing the trace {}", path.display()).into();
        let file = StepFile { file: out.file(), steps: steps.clone(), writing };
        let writer = ContentWriter::new(file.clone()).map_err(|error| failure(&error, None, Some(&path)))?;
        let state = RecordingState {
            writer: Some(writer),
            file,
            out: Some(out),
            frame_records: 0,
            whole_bytes: 0,
            written: Recorded::default(),
            whole: Recorded::default(),
            failed: None,
        };
        Ok(TraceLog {
            began: Instant::now(),
            requests: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
            tag: Tag::new(tag.as_bytes()),
            state: Mutex::new(state),
            path,
            steps: steps.clone(),
        })
    }

    /// Returns whether requests are still recorded.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Notes a request's arrival.
    pub fn arrival(&self) -> Arrival {
        let time_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Arrival { time_us, request: self.requests.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// Adds the lines of one finished request.
    pub fn append(&self, arrival: Arrival, records: impl Iterator<Item = Record>) {
        let mut state = self.state.lock();
        let (time_us, tag) = (Some(arrival.time_us), self.tag);
        let records = records.map(|record| Record { time_us, tag, request: arrival.request, ..record });
        if let Err(error) = state.append(records) {
            self.is_open.store(false, Ordering::Relaxed);
            let requests = count(state.whole.requests);
            let sentence = Failure::failed(format_args!(
                "{}: {error}: the recording has ended, with {requests} requests; serving goes on",
                self.path.display()
            ));
            output::complain(&sentence.sentence().unwrap_or_default());
            state.fail(error);
        }
    }

    /// Ends the recording, and gives the file its name.
    ///
    /// # Errors
    /// A sentence, also after an earlier failed write; then the file keeps its whole frames.
    pub fn finish(&self) -> Outcome<Recorded> {
        self.is_open.store(false, Ordering::Relaxed);
        let _step = self.steps.begin(format!("ending the trace {}", self.path.display()));
        let mut state = self.state.lock();
        if let Err(error) = state.end_frame() {
            state.fail(error);
        }
        state.writer = None;
        let Some(out) = state.out.take() else { return Ok(state.whole) };
        let Some(error) = state.failed.take() else {
            out.commit()?;
            return Ok(state.whole);
        };
        let path = self.path.display();
        let kept = match state.whole.requests {
            0 => "nothing was recorded".to_owned(),
            requests => {
                out.commit()?;
                format!("it has the first {} requests", count(requests))
            }
        };
        Err(Failure::failed(format_args!("{path}: {error}: {kept}")))
    }
}

impl RecordingState {
    fn append(&mut self, records: impl Iterator<Item = Record>) -> TraceResult<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for record in records {
            writer.write(&record)?;
            self.written.unknown_blocks += u64::from(record.is_data() && record.content.is_none());
            self.written.records += 1;
            self.frame_records += 1;
        }
        self.written.requests += 1;
        if self.frame_records >= FRAME_RECORDS {
            self.end_frame()?;
            self.writer = Some(ContentWriter::new(self.file.clone())?);
        }
        Ok(())
    }

    /// Writes the open frame to its end.
    fn end_frame(&mut self) -> TraceResult<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.finish()?;
        let at = (&*self.file.file).stream_position();
        self.whole_bytes = at.map_err(|error| {
            TraceError::io("", larder_trace::Position::Whole, "cannot tell the trace's length", error)
        })?;
        self.frame_records = 0;
        self.whole = self.written;
        Ok(())
    }

    /// Gives up the part that is not whole.
    fn fail(&mut self, error: TraceError) {
        // The drop of a writer writes nothing more.
        self.writer = None;
        // A file that cannot be cut has a torn end; readers say so.
        let _ = self.file.file.set_len(self.whole_bytes);
        self.failed.get_or_insert(error);
    }
}
