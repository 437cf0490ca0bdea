//! Bytes of a trace file, unpacked on the fly, behind a window.
//!
//! The file is plain, zstd, gzip or xz; its first bytes tell, not its name. Without the feature
//! `packed`, gzip and xz are refused. Lines and binary records are taken from the window without
//! copying.
//!
//! Invariants: memory is the window ([`WINDOW_BYTES`], or one line of at most [`LINE_BYTES_MAX`])
//! and the decompressor's (128 MiB of zstd, [`packed::XZ_MEMORY_KIB_MAX`]). It is never the file.
//!
//! It does not know any format.

mod packed;

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

#[cfg(feature = "packed")]
use flate2::bufread::GzDecoder;
#[cfg(feature = "packed")]
use lzma_rust2::XzReader;
use packed::{BytesBehind, PackedStreams};

use crate::error::{Position, TraceError, TraceErrorKind, TraceResult};

/// Bytes of one read.
const WINDOW_BYTES: usize = 256 << 10;
/// The longest line of a text trace, in bytes. A line of 1 MiB of content in MD5s of 512 bytes is
/// 64 KiB.
pub(crate) const LINE_BYTES_MAX: usize = 128 << 10;

/// The packing of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not packed.
    Plain,
    /// zstd.
    Zstd,
    /// gzip.
    Gzip,
    /// xz.
    Xz,
}

impl Packing {
    /// Finds the packing from a file's first bytes (six suffice).
    pub fn of(head: &[u8]) -> Packing {
        match head {
            // A zstd frame, or a skippable frame, which pzstd writes first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
            [0x1f, 0x8b, 0x08, ..] => Packing::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => Packing::Plain,
        }
    }

    /// Returns the packing's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Plain => "plain",
            Packing::Zstd => "zstd",
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
        }
    }
}

/// A file, and a count of its packed bytes that were read.
struct Counted {
    inner: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A line of text.
pub(crate) struct Line<'a> {
    /// The line without its end. If the line is too long, its last piece.
    pub bytes: &'a [u8],
    /// The line's number, from 1.
    pub number: u64,
    /// True if the line has its LF: the last line of a file may lack it.
    pub is_ended: bool,
    /// True if the line is longer than [`LINE_BYTES_MAX`].
    pub is_too_long: bool,
}

/// A trace's bytes after unpacking, behind a window.
pub(crate) struct Input {
    name: String,
    source: Box<dyn Read + Send>,
    packing: Packing,
    packed_bytes_read: Arc<AtomicU64>,
    packed_bytes: Option<u64>,
    window: Vec<u8>,
    /// The first byte of the window that was not taken.
    start: usize,
    end: usize,
    /// Bytes taken so far, after unpacking.
    taken_bytes: u64,
    /// Lines taken so far.
    lines: u64,
    is_at_end: bool,
    /// The failure of a look at the head. The read that gets there returns it.
    failure: Option<io::Error>,
}

impl Input {
    /// Opens a file.
    pub fn open(path: &Path) -> TraceResult<Input> {
        let name = path.display().to_string();
        let cannot = |error| TraceError::io(&name, Position::Whole, "cannot open the trace", error);
        let file = File::open(path).map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        let bytes = meta.is_file().then_some(meta.len());
        if meta.is_dir() {
            let message = "expected a trace file, found a folder";
            return Err(TraceError::new(TraceErrorKind::Io, &name, Position::Whole, message));
        }
        Input::new(&name, Box::new(file), bytes)
    }

    /// Reads from any source of bytes; `name` is for errors.
    pub fn new(name: &str, mut source: Box<dyn Read + Send>, packed_bytes: Option<u64>) -> TraceResult<Input> {
        let cannot = |error| TraceError::io(name, Position::Whole, "cannot read the trace", error);
        let mut head = [0u8; 6];
        let mut len = 0;
        while let Some(rest) = head.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match source.read(rest) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        let head = head.get(..len).unwrap_or_default().to_vec();
        let packing = Packing::of(&head);
        let count = Arc::new(AtomicU64::new(0));
        let whole = Box::new(io::Cursor::new(head).chain(source));
        let raw = Counted { inner: whole, count: Arc::clone(&count) };
        let source: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(raw),
            Packing::Zstd => {
                Box::new(PackedStreams::<zstd::Decoder<'static, BufReader<Counted>>>::new(raw).map_err(cannot)?)
            }
            #[cfg(feature = "packed")]
            Packing::Gzip => Box::new(PackedStreams::<GzDecoder<BufReader<Counted>>>::new(raw).map_err(cannot)?),
            #[cfg(feature = "packed")]
            Packing::Xz => Box::new(PackedStreams::<XzReader<BufReader<Counted>>>::new(raw).map_err(cannot)?),
            #[cfg(not(feature = "packed"))]
            Packing::Gzip | Packing::Xz => {
                let message = format!("expected a file that is plain or packed with zstd, found {}", packing.name());
                return Err(TraceError::new(TraceErrorKind::UnknownFormat, name, Position::Whole, message));
            }
        };
        Ok(Input {
            name: name.to_owned(),
            source,
            packing,
            packed_bytes_read: count,
            packed_bytes,
            window: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            taken_bytes: 0,
            lines: 0,
            is_at_end: false,
            failure: None,
        })
    }

    /// Returns the name for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the packing of the file.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Returns the packed bytes read so far, and the file's length if it is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.packed_bytes_read.load(Ordering::Relaxed), self.packed_bytes)
    }

    /// Returns the bytes taken so far.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Returns the window, filled up to `bytes` if the file has as many. Takes nothing.
    pub fn peek(&mut self, bytes: usize) -> TraceResult<&[u8]> {
        while self.end - self.start < bytes && !self.is_at_end {
            self.fill()?;
        }
        Ok(self.in_window())
    }

    /// Returns the same, or as much of it as can be unpacked; the failure then ends a later read.
    /// Fails if there is nothing.
    pub fn peek_head(&mut self, bytes: usize) -> TraceResult<&[u8]> {
        self.glimpse(bytes);
        match self.failure.take() {
            Some(failure) if self.left() == 0 => return Err(self.broken(failure)),
            failure => self.failure = failure,
        }
        Ok(self.in_window())
    }

    /// Returns as many of the first bytes as can be unpacked, perhaps none. A failure of the
    /// unpacking fails the next read.
    pub fn glimpse(&mut self, bytes: usize) -> &[u8] {
        while self.end - self.start < bytes && !self.is_at_end && self.failure.is_none() {
            self.failure = self.fill_or().err();
        }
        self.in_window()
    }

    /// Takes the failure that [`Input::peek_head`] left for later.
    pub fn take_failure(&mut self) -> Option<TraceError> {
        self.failure.take().map(|failure| self.broken(failure))
    }

    /// Returns whether the file ends at the end of the window.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Takes the next line, without its end (LF or CR LF). `None` at the end of the file.
    pub fn next_line(&mut self) -> TraceResult<Option<Line<'_>>> {
        let mut searched = 0;
        let mut is_too_long = false;
        let (len, is_ended) = loop {
            let unseen = self.window.get(self.start + searched..self.end).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unseen) {
                break (searched + at, true);
            }
            searched = self.end - self.start;
            if searched > LINE_BYTES_MAX {
                is_too_long = true;
                self.take(searched);
                searched = 0;
            }
            if self.is_at_end {
                break (searched, false);
            }
            self.fill()?;
        };
        if len == 0 && !is_ended && !is_too_long {
            return Ok(None);
        }
        is_too_long |= len > LINE_BYTES_MAX;
        let line = self.start..self.start + len;
        self.take(len + usize::from(is_ended));
        self.lines += 1;
        let bytes = self.window.get(line).unwrap_or_default();
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Ok(Some(Line { bytes, number: self.lines, is_ended, is_too_long }))
    }

    /// Returns the whole binary records of `record_bytes` in the window. There is at least one
    /// unless the file is at its end. Takes nothing: call [`Input::take`].
    pub fn peek_records(&mut self, record_bytes: usize) -> TraceResult<&[u8]> {
        let len = self.peek(record_bytes)?.len();
        let whole = len - len % record_bytes.max(1);
        Ok(self.in_window().get(..whole).unwrap_or_default())
    }

    /// Returns the bytes left in the window.
    pub fn left(&self) -> usize {
        self.end - self.start
    }

    /// Takes `bytes` of the window.
    pub fn take(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.taken_bytes += bytes as u64;
    }

    fn in_window(&self) -> &[u8] {
        self.window.get(self.start..self.end).unwrap_or_default()
    }

    /// Reads more into the window.
    fn fill(&mut self) -> TraceResult<()> {
        let result = self.failure.take().map_or_else(|| self.fill_or(), Err);
        result.map_err(|error| self.broken(error))
    }

    /// Moves the rest of the window to its front, and grows the window if a line needs that.
    fn fill_or(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.window.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.window.len() {
            self.window.resize(self.window.len() * 2, 0);
        }
        loop {
            let free = self.window.get_mut(self.end..).unwrap_or_default();
            match self.source.read(free) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    fn broken(&self, error: io::Error) -> TraceError {
        let position = match self.lines {
            0 => Position::Byte(self.taken_bytes),
            lines => Position::Line(lines + 1),
        };
        let packing = self.packing.name();
        match error.kind() {
            _ if self.packing == Packing::Plain => TraceError::io(&self.name, position, "cannot read the trace", error),
            _ if error.get_ref().is_some_and(|inner| inner.is::<BytesBehind>()) => {
                let message = format!("expected the end of the file behind the {packing} stream, found other bytes");
                TraceError::new(TraceErrorKind::Behind, &self.name, Position::Whole, message)
            }
            io::ErrorKind::UnexpectedEof => {
                let message = format!("the {packing} stream ends in its middle: the file is truncated");
                TraceError::new(TraceErrorKind::Truncated, &self.name, position, message)
            }
            _ => {
                let message = format!("cannot unpack the {packing} stream: {error}");
                TraceError::new(TraceErrorKind::Corrupt, &self.name, position, message)
            }
        }
    }
}
