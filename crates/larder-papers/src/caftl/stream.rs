//! A trace as requests of pages to a drive, with their times.
//!
//! A run of blocks that follow one another in one request of the trace is one request here. It has
//! at most 128 pages: the 512 KiB that Linux of the paper's time hands to a drive at once.
//!
//! Invariants: times do not step back. Memory is 16 bytes for each page written, and 32 for each
//! request.
//!
//! It does not ask the drive.

use std::ops::Range;

use larder_trace::{ChunkRequest, Op};

use super::setting::{PAGE_BYTES, how};
use crate::Lab;
use larder_ssd::{
    ftl::PageWrite,
    geometry::Lpn,
    profile::{DriveProfile, ProfileScale},
    time::{DriveRequest, Nanos},
};

/// Pages of a request at most.
const REQUEST_PAGES_MAX: u32 = 128;
/// The furthest page of a trace: 256 GiB of them.
const PAGES_MAX: u64 = 1 << 26;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    /// Its contents are from here on.
    Write {
        contents: usize,
    },
    Trim,
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct PageRequest {
    at: Nanos,
    kind: Kind,
    first: u32,
    pages: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct PageStream {
    asked: Vec<PageRequest>,
    contents: Vec<Option<larder_core::Fingerprint>>,
    /// A bit a page: the trace read, wrote or trimmed it.
    touched: Vec<u64>,
    /// Pages whose first request is a read.
    read_first: Vec<u32>,
    has_times: bool,
    pages_end: u32,
    /// The request of the trace that the last one belongs to.
    request: Option<u64>,
}

impl PageStream {
    /// Takes a trace of the lab.
    ///
    /// # Errors
    /// A sentence: the trace's, or one of a trace that no drive has room for.
    pub fn of(lab: &Lab<'_>, at: usize) -> Result<PageStream, String> {
        let title = lab.workload(at)?.title();
        let mut stream = PageStream { has_times: true, ..PageStream::default() };
        for request in lab.requests(at, &how())? {
            stream.push(&request?).map_err(|sentence| format!("{title}: {sentence}"))?;
        }
        stream.read_first.sort_unstable();
        if !stream.asked.iter().any(|asked| matches!(asked.kind, Kind::Write { .. })) {
            return Err(format!("{title}: it has no writes, which these experiments are about"));
        }
        Ok(stream)
    }

    fn push(&mut self, request: &ChunkRequest) -> Result<(), String> {
        let at = self.time_of(request);
        let is_data = matches!(request.op, Op::Read | Op::Write);
        if is_data && request.lba >= PAGES_MAX {
            return Err(format!(
                "it reaches to page {} of 4 KiB, and the drives of these experiments end at {PAGES_MAX}",
                request.lba
            ));
        }
        // A trim of the whole disk may reach beyond its end.
        let first = request.lba.min(PAGES_MAX) as u32;
        let pages = request.chunk_count.min(PAGES_MAX - u64::from(first)) as u32;
        let kind = match request.op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write { contents: self.contents.len() },
            // A page that is trimmed in part keeps the rest.
            Op::Trim if !request.is_whole => return Ok(()),
            Op::Trim => Kind::Trim,
            Op::Flush => Kind::Flush,
        };
        for page in first..first + pages {
            if is_data && self.touch(page) && request.op == Op::Read {
                self.read_first.push(page);
            }
        }
        if is_data {
            self.pages_end = self.pages_end.max(first + 1);
        } else if request.op == Op::Trim {
            // Only up to the last touched page: a trim of a whole disk costs no more than its used
            // part.
            for page in first..(first + pages).min(64 * self.touched.len() as u32) {
                self.touch(page);
            }
        }
        self.append(request, PageRequest { at, kind, first, pages });
        Ok(())
    }

    /// Returns the time of a request, which is never before the last one's.
    fn time_of(&mut self, request: &ChunkRequest) -> Nanos {
        let last = self.asked.last().map_or(0, |asked| asked.at);
        self.has_times &= request.time_us.is_some();
        request.time_us.map_or(last, |us| us.saturating_mul(1000).max(last))
    }

    /// Adds a chunk's request: to the last one, if it goes on there.
    fn append(&mut self, request: &ChunkRequest, asked: PageRequest) {
        let is_data = matches!(request.op, Op::Read | Op::Write);
        if request.op == Op::Write {
            let fingerprint = |content: larder_trace::TraceContent| match content.is_zero {
                true => larder_core::Fingerprint([0; 16]),
                false => larder_core::Fingerprint(content.fingerprint.to_u128().to_be_bytes()),
            };
            self.contents.push(request.content.map(fingerprint));
        }
        let goes_on = self.request == Some(request.request);
        self.request = Some(request.request);
        match self.asked.last_mut() {
            Some(last)
                if goes_on
                    && is_data
                    && last.first + last.pages == asked.first
                    && last.pages < REQUEST_PAGES_MAX
                    && matches!(
                        (last.kind, asked.kind),
                        (Kind::Read, Kind::Read) | (Kind::Write { .. }, Kind::Write { .. })
                    ) =>
            {
                last.pages += 1;
            }
            _ => self.asked.push(asked),
        }
    }

    /// Touches a page. Returns true for the first time.
    fn touch(&mut self, page: u32) -> bool {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        if word >= self.touched.len() {
            self.touched.resize(word + 1, 0);
        }
        let is_first = self.touched[word] & bit == 0;
        self.touched[word] |= bit;
        is_first
    }

    /// Returns the paper's drive, or one of more blocks if the trace reaches further.
    ///
    /// # Errors
    /// A sentence: there is no such drive.
    pub fn profile(&self) -> Result<DriveProfile, String> {
        let profile = DriveProfile::named("caftl").ok_or("there is no profile caftl")?;
        if self.pages_end <= profile.geometry.logical_pages() {
            return Ok(profile);
        }
        let bytes = u64::from(self.pages_end) * u64::from(PAGE_BYTES);
        profile.scaled_to(bytes, ProfileScale::Blocks).map_err(|error| error.to_string())
    }

    /// Returns true if each request has a time.
    pub fn has_times(&self) -> bool {
        self.has_times
    }

    /// Returns the number of pages written.
    pub fn pages_written(&self) -> u64 {
        self.contents.len() as u64
    }

    /// Returns the contents of all pages written, in order.
    pub fn contents(&self) -> &[Option<larder_core::Fingerprint>] {
        &self.contents
    }

    /// Returns the pages that the disk held before: the trace reads them first.
    pub fn read_first(&self) -> &[u32] {
        &self.read_first
    }

    /// Returns the requests to a drive of so many logical pages, with their times.
    pub fn requests(&self, logical_pages: u32) -> impl Iterator<Item = (Nanos, DriveRequest)> {
        self.asked.iter().map(move |asked| {
            let PageRequest { at, kind, first, pages } = *asked;
            let range: Range<u32> = first.min(logical_pages)..(first + pages).min(logical_pages);
            let request = match kind {
                Kind::Read => DriveRequest::Read(range),
                Kind::Trim => DriveRequest::Trim(range),
                Kind::Flush => DriveRequest::Flush,
                Kind::Write { contents } => DriveRequest::Write(
                    (range.zip(&self.contents[contents..]))
                        .map(|(lpn, content)| PageWrite { lpn: Lpn(lpn), content: *content })
                        .collect(),
                ),
            };
            (at, request)
        })
    }
}
