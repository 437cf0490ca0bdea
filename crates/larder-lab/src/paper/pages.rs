//! Pages of a disk, an image or a folder, as if a trace had written them one after the other.
//!
//! A folder's regular files come in the order of their names, each beginning a page. A file with
//! several names comes once, and links are not followed. The last page of a file is filled with
//! zeroes, as on a disk.
//!
//! Invariants: the given paths are only read. A read error fails all of it, and the rest gives no
//! figure.
//!
//! It does not keep bytes: a page is its hash, XXH3 of 128 bits.

use larder::error::{Failure, Outcome};
use larder_papers::{DISK, Records, Workload};
use larder_trace::{ContentId, Op, Packing, Position, Provenance, Record, TraceContent, TraceError, TraceResult};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};
use twox_hash::XxHash3_128;

use super::Watch;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Bytes of one read: whole pages.
const READ_BYTES: usize = 1 << 20;

/// Returns the content of a path, for an experiment about disks.
///
/// # Errors
/// A sentence: the path has nothing, nothing with pages, nothing readable, or a packed file.
pub fn given<'a>(path: &Path, watch: &'a Watch) -> Outcome<Workload<'a>> {
    let shown = path.display().to_string();
    let failed = |error: io::Error| Failure::failed(format_args!("{shown}: {error}"));
    let (files, what) = files(path).map_err(failed)?;
    let Some(first) = files.first() else {
        return Err(Failure::failed(format_args!("{shown}: there is no file in it, and so no page")));
    };
    // A read error is reported before anything else.
    let mut opened =
        File::open(first).map_err(|error| Failure::failed(format_args!("{}: {error}", first.display())))?;
    let mut head = [0; 6];
    let packing = opened.read_exact(&mut head).map_or(Packing::Plain, |()| Packing::of(&head));
    if what == "a file" && packing != Packing::Plain {
        let name = packing.name();
        let why = "its pages are those of the packing: unpack it, or give a trace with --trace";
        return Err(Failure::failed(format_args!("{shown}: it is packed with {name}, and {why}")));
    }
    let about = format!("{shown}, {what}, in pages of 4 KiB");
    let open = move |_: &str| Ok(Box::new(watch.making(Pages::new(files.clone()))) as Records<'a>);
    Ok(Workload::new(DISK, about, open).given(path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()))
}

/// Returns the files at a path, and the path's kind.
fn files(path: &Path) -> io::Result<(Vec<PathBuf>, &'static str)> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok((vec![path.to_owned()], if kind.is_file() { "a file" } else { "a disk" }));
    }
    if !kind.is_dir() {
        return Err(io::Error::other("expected a file, a folder or a disk"));
    }
    let (mut files, mut folders, mut seen) = (Vec::new(), vec![path.to_owned()], HashSet::new());
    while let Some(folder) = folders.pop() {
        let inside = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(inside)? {
            let entry = entry.map_err(inside)?;
            let metadata = entry.metadata().map_err(inside)?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino()))) {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    Ok((files, "all files of a folder"))
}

/// The pages of files, one after the other.
struct Pages {
    files: std::vec::IntoIter<PathBuf>,
    open: Option<(PathBuf, File)>,
    buffer: Vec<u8>,
    /// The start of the next page in the buffer, and the buffer's fill.
    next: usize,
    filled: usize,
    number: u64,
}

impl Pages {
    fn new(files: Vec<PathBuf>) -> Pages {
        Pages { files: files.into_iter(), open: None, buffer: vec![0; READ_BYTES], next: 0, filled: 0, number: 0 }
    }

    /// Fills the buffer, from the next file after the end of one. False at the end of all.
    fn fill(&mut self) -> Result<bool, (PathBuf, io::Error)> {
        loop {
            let (path, mut file) = match self.open.take() {
                Some(open) => open,
                None => match self.files.next() {
                    None => return Ok(false),
                    Some(path) => match File::open(&path) {
                        Ok(file) => (path, file),
                        Err(error) => return Err((path, error)),
                    },
                },
            };
            self.next = 0;
            self.filled = 0;
            while let Some(room) = self.buffer.get_mut(self.filled..).filter(|room| !room.is_empty()) {
                match file.read(room) {
                    Ok(0) => break,
                    Ok(read) => self.filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err((path, error)),
                }
            }
            if self.filled == self.buffer.len() {
                self.open = Some((path, file));
            }
            let whole = self.filled.next_multiple_of(PAGE_BYTES);
            if let Some(behind) = self.buffer.get_mut(self.filled..whole) {
                behind.fill(0);
            }
            self.filled = whole;
            if whole > 0 {
                return Ok(true);
            }
        }
    }
}

impl Iterator for Pages {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.filled {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err((path, error)) => {
                    self.files = Vec::new().into_iter();
                    let file = path.display().to_string();
                    return Some(Err(TraceError::io(&file, Position::Whole, "it cannot be read", error)));
                }
            }
        }
        let page = self.buffer.get(self.next..self.next + PAGE_BYTES)?;
        self.next += PAGE_BYTES;
        let mut record = Record::new(self.number, Op::Write, self.number * PAGE_BYTES as u64, PAGE_BYTES as u64);
        self.number += 1;
        record.content = Some(TraceContent {
            fingerprint: ContentId::from_u128(XxHash3_128::oneshot(page)),
            stored_bytes: None,
            is_zero: page.iter().all(|byte| *byte == 0),
            provenance: Provenance::Recorded,
        });
        Some(Ok(record))
    }
}
