//! Traces through a pipe or another stream, opened and read by a thread of its own.
//!
//! So a signal ends the command even if no writer comes.
//!
//! Invariants: at most [`PIECES_MAX`] pieces of [`PIECE_BYTES`] wait for the reader. The thread
//! ends with the process, or with its reader.
//!
//! It does not read anything twice.

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

/// Bytes of one read.
const PIECE_BYTES: usize = 256 << 10;
/// The most pieces that wait for the reader.
const PIECES_MAX: usize = 4;
/// The interval between looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns whether this can be read only once, and may keep a reader waiting.
///
/// That is anything else than a file, block device or folder.
pub fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device() && !kind.is_dir())
}

/// The reading side of a stream. An empty piece is the end.
pub struct Stream {
    pieces: Receiver<io::Result<Vec<u8>>>,
    is_ending: Arc<AtomicBool>,
    piece: Vec<u8>,
    /// Bytes of the piece that were passed on.
    passed: usize,
    is_at_end: bool,
}

impl Stream {
    /// Begins to open and read `path`.
    ///
    /// The first read reports a failure of these; later reads fail once `is_ending`.
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
            // The reader may be gone.
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
