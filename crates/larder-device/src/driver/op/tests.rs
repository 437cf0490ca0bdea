//! Transfers that the kernel cuts short go on where they stopped, over a ring and in blocking
//! calls.
//!
//! Each step is a real kernel call for a part of the operation's length. The test then reports
//! exactly that part as done.
//!
//! It does not cut transfers short in the kernel. No file does that and takes the rest a moment
//! later.

use super::*;
use crate::{IoFuture, IoResult, driver::block_on};
use io_uring::IoUring;
use std::{fs::File, io::Write as _, os::unix::fs::FileExt, path::PathBuf};

/// The offset of the operation in its file. No buffer begins at this offset.
const OFFSET: u64 = 8192;
const LEN: usize = 40 << 10;
/// The file's length. Bytes around the range reveal a transfer to a wrong place.
const FILE_BYTES: usize = OFFSET as usize + 2 * LEN;

/// The way of an operation to the kernel.
#[derive(Clone, Copy, Debug)]
enum Way {
    Ring,
    Call,
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, way: Way, content: &[u8]) -> (Scratch, Arc<File>) {
        let path = std::env::temp_dir().join(format!("larder-{name}-{way:?}-{}", std::process::id()));
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("a file");
        file.write_all(content).expect("its content");
        (Scratch(path), Arc::new(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes the kernel do the rest of the operation. Returns the kernel's result.
fn go(op: &mut Op, way: Way) -> i32 {
    let Way::Ring = way else { return op.call() };
    let mut ring = IoUring::new(4).expect("a ring");
    // SAFETY: the operation lives on the caller's stack until its completion is here.
    unsafe { ring.submission().push(&op.entry()) }.expect("an empty queue has room");
    ring.submit_and_wait(1).expect("a completion");
    ring.completion().next().expect("the completion").result()
}

/// Runs the operation from beginning to end, cut short after each of these byte counts.
fn in_pieces(mut op: Op, way: Way, pieces: &[usize]) {
    for &piece in pieces {
        let all = go(&mut op, way);
        assert!(all as usize > piece, "{way:?}: the kernel did {all} bytes at once, and not more than {piece}");
        op = op.finish(piece as i32).expect("it is not over");
    }
    let rest = go(&mut op, way);
    assert!(op.finish(rest).is_none(), "{way:?}: it is over");
}

fn ways() -> Vec<Way> {
    let has_ring = crate::driver::io_backend().kind == crate::driver::IoBackendKind::Uring;
    if has_ring { vec![Way::Ring, Way::Call] } else { vec![Way::Call] }
}

/// Bytes that differ from place to place.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| (at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) as u8;
    (0..len as u64).map(byte).collect()
}

/// Whole sectors, a part of one, and several cuts.
const CUTS: [&[usize]; 4] = [&[512], &[4096, 8192], &[5000], &[513, 1024, 4095]];

#[test]
fn a_write_that_was_cut_short_goes_on_where_it_stopped() {
    for way in ways() {
        for (number, cuts) in CUTS.into_iter().enumerate() {
            let (before, data) = (noise(1, FILE_BYTES), noise(2 + number as u64, LEN));
            let (_scratch, file) = Scratch::new("cut-write", way, &before);
            // The bytes that the kernel had not written are removed. Otherwise the first try would
            // have written all of them.
            let shown = Shown { file: file.clone(), before: before.clone() };
            let (to, future): (_, IoFuture<()>) = IoFuture::pending();
            let kind = OpKind::Write { data: IoBuf::copy_of(&data).freeze(), done: 0, dsync: number % 2 == 0, to };
            let mut op = Op::new(Fd::Shared(file.clone()), OFFSET, kind);
            let mut done = 0;
            for &cut in cuts {
                go(&mut op, way);
                done = (done + cut) / RESUME_ALIGN * RESUME_ALIGN;
                shown.forget_from(OFFSET + done as u64);
                op = op.finish(cut as i32).expect("it is not over");
            }
            let rest = go(&mut op, way);
            assert!(op.finish(rest).is_none(), "{way:?}, {cuts:?}: it is over");
            let written: IoResult<()> = block_on(future);
            written.expect("it is written");
            let mut expected = before;
            expected[OFFSET as usize..OFFSET as usize + LEN].copy_from_slice(&data);
            let mut found = vec![0; FILE_BYTES];
            file.read_exact_at(&mut found, 0).expect("the file");
            let differs = found.iter().zip(&expected).position(|(one, other)| one != other);
            assert_eq!(differs, None, "{way:?}, {cuts:?}: first byte that differs");
        }
    }
}

/// The file before the write.
struct Shown {
    file: Arc<File>,
    before: Vec<u8>,
}

impl Shown {
    fn forget_from(&self, offset: u64) {
        self.file.write_all_at(&self.before[offset as usize..], offset).expect("written");
    }
}

#[test]
fn a_read_that_was_cut_short_goes_on_where_it_stopped() {
    for way in ways() {
        for cuts in CUTS {
            let content = noise(3, FILE_BYTES);
            let (_scratch, file) = Scratch::new("cut-read", way, &content);
            let (to, future): (_, IoFuture<IoBuf>) = IoFuture::pending();
            let op = Op::new(Fd::Shared(file), OFFSET, OpKind::Read { buf: IoBuf::zeroed(LEN), done: 0, to });
            in_pieces(op, way, cuts);
            let found = block_on(future).expect("it is read");
            assert!(found[..] == content[OFFSET as usize..OFFSET as usize + LEN], "{way:?}, {cuts:?}");
        }
    }
}

/// A transfer without progress fails, and its retries end.
#[test]
fn a_transfer_of_nothing_fails() {
    let (_scratch, file) = Scratch::new("cut-nothing", Way::Call, &noise(4, FILE_BYTES));
    let (to, future): (_, IoFuture<IoBuf>) = IoFuture::pending();
    let op = Op::new(Fd::Shared(file), OFFSET, OpKind::Read { buf: IoBuf::zeroed(LEN), done: 0, to });
    assert!(op.finish(100).is_none(), "it is over");
    let error = block_on(future).expect_err("less than a sector was read");
    assert_eq!((error.kind, error.op), (IoErrorKind::Io, IoOp::Read));
}
