//! Traces that come through a pipe or the like: opened and read by a thread of its own, so that a signal ends the command
//! however long nobody writes.
//!
//! Invariants: at most [`PIECES_MAX`] pieces of [`PIECE_BYTES`] wait to be taken. The thread ends with the process, or when
//! nobody takes its pieces.
//!
//! What it does not do: read anything twice.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait to be taken.
const PIECES_MAX: usize = 4;
/// Between two looks whether a signal came.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether this can be read only once, and may keep a reader waiting: no file, block device or folder.
pub fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device() && !kind.is_dir())
}

/// What a stream gives. An end is an empty piece.
pub struct Stream {
    pieces: Receiver<io::Result<Vec<u8>>>,
    is_ending: Arc<AtomicBool>,
    piece: Vec<u8>,
    /// Bytes of the piece that were passed on.
    passed: usize,
    is_at_end: bool,
}

impl Stream {
    /// Begins to open and read `path`; what fails in that, the first read tells. Reading fails once `is_ending`.
    pub fn open(path: &Path, is_ending: Arc<AtomicBool>) -> Stream {
        let (sender, pieces) = sync_channel(PIECES_MAX);
        let path = PathBuf::from(path);
        thread::spawn(move || read(&path, &sender));
        Stream { pieces, is_ending, piece: Vec::new(), passed: 0, is_at_end: false }
    }

    fn next_piece(&mut self) -> io::Result<()> {
        loop {
            if self.is_ending.load(Ordering::Relaxed) {
                return Err(io::Error::other("ended by a signal"));
            }
            match self.pieces.recv_timeout(LOOK_EVERY) {
                Ok(piece) => self.piece = piece?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => self.piece = Vec::new(),
            }
            self.passed = 0;
            self.is_at_end = self.piece.is_empty();
            return Ok(());
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.passed == self.piece.len() && !self.is_at_end && !buf.is_empty() {
            self.next_piece()?;
        }
        let read = self.piece.get(self.passed..).unwrap_or_default().read(buf)?;
        self.passed += read;
        Ok(read)
    }
}

fn read(path: &Path, pieces: &SyncSender<io::Result<Vec<u8>>>) {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => {
            // Nobody may want to know any more.
            let _ = pieces.send(Err(error));
            return;
        }
    };
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match file.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let is_last = !matches!(read, Ok(1..));
        let piece = read.map(|len| {
            piece.truncate(len);
            piece
        });
        if pieces.send(piece).is_err() || is_last {
            return;
        }
    }
}
