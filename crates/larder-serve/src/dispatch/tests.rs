//! The dispatch over a device that notes each call, or hangs until it is let go.

use super::*;
use larder_device::{Completer, driver};
use parking_lot::Mutex;

const MIB: u32 = 1 << 20;
const BLOCK_BYTES: u32 = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Noted {
    Read(u64, usize),
    Write(u64, usize, WriteFlags),
    Flush,
    Discard(u64, u64),
    Zero(u64, u64, ZeroFlags),
    Extents(u64, u64),
}

/// A device of one MiB whose second half is a hole.
struct Recorder {
    info: DeviceInfo,
    noted: Mutex<Vec<Noted>>,
    /// Extents that are answered later, if the device must look for them.
    later: Mutex<Option<Vec<Completer<Vec<Extent>>>>>,
    /// The next operation fails with this.
    fault: Mutex<Option<IoErrorKind>>,
}

impl Recorder {
    fn done<T>(&self, call: Noted, op: IoOp, value: T) -> IoFuture<T> {
        self.noted.lock().push(call);
        IoFuture::ready(match self.fault.lock().take() {
            Some(kind) => Err(IoError::new(kind, op, 0, 0)),
            None => Ok(value),
        })
    }
}

impl BlockDevice for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        buf.fill((offset >> 9) as u8);
        self.done(Noted::Read(offset, buf.len()), IoOp::Read, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.done(Noted::Write(offset, data.len(), flags), IoOp::Write, ())
    }
    fn flush(&self) -> IoFuture<()> {
        self.done(Noted::Flush, IoOp::Flush, ())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.done(Noted::Discard(offset, len), IoOp::Discard, ())
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.done(Noted::Zero(offset, len, flags), IoOp::WriteZeroes, ())
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        let data = u64::from(MIB / 2).saturating_sub(offset).min(len);
        let runs = [extent(data, false), extent(len - data, true)];
        let noted = Noted::Extents(offset, len);
        if let Some(later) = &mut *self.later.lock() {
            self.noted.lock().push(noted);
            let (completer, extents) = IoFuture::pending();
            later.push(completer);
            return extents;
        }
        self.done(noted, IoOp::Extents, runs.into_iter().filter(|run| run.len > 0).collect())
    }
}

fn recorder() -> Recorder {
    let info = DeviceInfo {
        name: "recorder".into(),
        size_bytes: u64::from(MIB),
        sector_bytes: BLOCK_BYTES,
        physical_sector_bytes: BLOCK_BYTES,
        optimal_io_bytes: 4096,
        request_bytes_max: MIB / 2 + 100,
        discard_zeroes: false,
        zeroes_fast: true,
        read_only: false,
    };
    Recorder { info, noted: Mutex::default(), later: Mutex::default(), fault: Mutex::default() }
}

fn over(recorder: Recorder) -> (Arc<Recorder>, Dispatch) {
    let (device, limits) = (Arc::new(recorder), MIB);
    let limits = Limits::new(device.info(), limits);
    (device.clone(), Dispatch::new(device, limits))
}

fn extent(len: u64, zero: bool) -> Extent {
    Extent { len, hole: zero, zero }
}

/// Runs a request to its end, and returns the calls of the device beside the outcome.
fn run(device: &Recorder, dispatch: &Dispatch, request: Request) -> (Vec<Noted>, IoResult<Reply>) {
    assert_eq!(dispatch.limits.check(request), Ok(()), "{request:?}");
    let len = request.range().1 as usize;
    let payload = matches!(request, Request::Write { .. }).then(|| IoBuf::zeroed(len).freeze());
    let begun = dispatch.start(request, payload);
    let outcome = begun.try_ready().unwrap_or_else(driver::block_on);
    (std::mem::take(&mut device.noted.lock()), outcome)
}

/// Returns each request that this range may have, in each of its forms.
fn requests(offset: u64, len: u32) -> Vec<Request> {
    let mut all = vec![Request::Flush];
    for first in [false, true] {
        all.push(Request::Read { offset, len, whole: first });
        all.push(Request::Write { offset, len, fua: first });
        all.push(Request::Trim { offset, len, fua: first });
        all.push(Request::Extents { offset, len, one: first });
        for (no_hole, fast_only) in [(false, false), (false, true), (true, false), (true, true)] {
            all.push(Request::WriteZeroes { offset, len, flags: ZeroFlags { fua: first, no_hole, fast_only } });
        }
    }
    all
}

#[test]
fn each_request_is_its_own_call_of_the_device_with_its_flags() {
    let (device, dispatch) = over(recorder());
    for (offset, len) in [(0, BLOCK_BYTES), (4096, MIB / 4), (u64::from(MIB - BLOCK_BYTES), BLOCK_BYTES)] {
        for request in requests(offset, len) {
            let (calls, outcome) = run(&device, &dispatch, request);
            let (len, asks) = (u64::from(len), len >= SPARSE_READ_BYTES_MIN);
            let expected = match request {
                Request::Read { whole, .. } => {
                    let read = Noted::Read(offset, len as usize);
                    if asks && !whole { vec![Noted::Extents(offset, len), read] } else { vec![read] }
                }
                Request::Write { fua, .. } => vec![Noted::Write(offset, len as usize, WriteFlags { fua })],
                Request::Flush => vec![Noted::Flush],
                Request::Trim { fua: false, .. } => vec![Noted::Discard(offset, len)],
                Request::Trim { fua: true, .. } => vec![Noted::Discard(offset, len), Noted::Flush],
                Request::WriteZeroes { flags, .. } => vec![Noted::Zero(offset, len, flags)],
                Request::Extents { .. } => vec![Noted::Extents(offset, len)],
            };
            assert_eq!(calls, expected, "{request:?}");
            let reply = outcome.expect("a sound device");
            let fits = match (request, &reply) {
                (Request::Read { .. }, Reply::Read(Content::Data(at, data))) => {
                    (*at, data.len() as u64) == (offset, len)
                }
                (Request::Extents { .. }, Reply::Extents(extents)) => extents.len() == 1 && extents[0].len == len,
                (_, Reply::Done) => !matches!(request, Request::Read { .. } | Request::Extents { .. }),
                _ => false,
            };
            assert!(fits, "{request:?}: {reply:?}");
        }
    }
}

#[test]
fn an_error_of_the_device_is_the_requests() {
    let (device, dispatch) = over(recorder());
    for request in requests(0, BLOCK_BYTES) {
        *device.fault.lock() = Some(IoErrorKind::NoSpace);
        let (calls, outcome) = run(&device, &dispatch, request);
        let error = outcome.expect_err("a failing device");
        assert_eq!((calls.len(), error.kind, error.op), (1, IoErrorKind::NoSpace, request.op()));
    }
}

#[test]
fn refusals_come_before_the_device_in_one_order() {
    let (mut limits, mib) = (over(recorder()).1.limits, u64::from(MIB));
    assert_eq!(limits.request_bytes_max, MIB / 2, "whole blocks");
    let with_data = |request: &Request| matches!(request, Request::Read { .. } | Request::Write { .. });
    for (offset, len, refusal) in [
        (1, 0, Refusal::Empty),
        (mib, BLOCK_BYTES, Refusal::PastEnd),
        (mib - 1, BLOCK_BYTES, Refusal::PastEnd),
        (u64::MAX, BLOCK_BYTES, Refusal::PastEnd),
        (1, BLOCK_BYTES, Refusal::Unaligned),
        (0, MIB - 1, Refusal::Unaligned),
        (0, MIB / 2 + BLOCK_BYTES, Refusal::TooLong),
    ] {
        for request in requests(offset, len) {
            let is_refused = match refusal {
                Refusal::TooLong => with_data(&request),
                _ => request != Request::Flush,
            };
            assert_eq!(limits.check(request).err(), is_refused.then_some(refusal), "{request:?}");
        }
    }
    limits.read_only = true;
    for request in requests(1, 0) {
        let expected = match request {
            Request::Flush => Ok(()),
            _ if request.changes() => Err(Refusal::ReadOnly),
            _ => Err(Refusal::Empty),
        };
        assert_eq!(limits.check(request), expected, "{request:?}");
    }
}

#[test]
fn fast_zeroes_are_refused_by_a_device_that_writes_them_as_data() {
    let mut slow = recorder();
    slow.info.zeroes_fast = false;
    let (device, dispatch) = over(slow);
    for request in requests(0, BLOCK_BYTES) {
        let Request::WriteZeroes { flags, .. } = request else { continue };
        let (calls, outcome) = run(&device, &dispatch, request);
        assert_eq!(calls.is_empty(), flags.fast_only);
        assert_eq!(outcome.err().map(|error| error.kind), flags.fast_only.then_some(IoErrorKind::Unsupported));
    }
}

#[test]
fn pieces_are_as_durable_as_the_whole_and_lie_one_behind_the_other() {
    let (device, dispatch) = over(recorder());
    let request = Request::Write { offset: 4096, len: 3 * BLOCK_BYTES, fua: true };
    let flags = WriteFlags { fua: true };
    for at in 0..3 {
        let (calls, _) = run(&device, &dispatch, request.piece(at * BLOCK_BYTES, BLOCK_BYTES));
        assert_eq!(calls, [Noted::Write(4096 + u64::from(at) * 512, 512, flags)]);
    }
    let read = Request::Read { offset: 512, len: MIB / 2, whole: true };
    assert_eq!(read.piece(1024, 512), Request::Read { offset: 1536, len: 512, whole: true });
    assert_eq!(Request::Flush.piece(512, 512), Request::Flush);
}

#[test]
fn a_write_without_its_payload_reaches_no_device() {
    let (device, dispatch) = over(recorder());
    let request = Request::Write { offset: 0, len: 1024, fua: false };
    for payload in [None, Some(IoBuf::zeroed(512).freeze())] {
        let Ok(outcome) = dispatch.start(request, payload).try_ready() else { panic!("it is refused at once") };
        assert_eq!(outcome.expect_err("refused").kind, IoErrorKind::Unaligned);
    }
    assert_eq!(*device.noted.lock(), []);
}

#[test]
fn zeroes_of_a_read_stay_behind_unless_all_of_it_is_wanted() {
    let (device, dispatch) = over(recorder());
    let (offset, len) = (u64::from(MIB / 4), MIB / 2);
    let (calls, outcome) = run(&device, &dispatch, Request::Read { offset, len, whole: false });
    assert_eq!(calls, [Noted::Extents(offset, u64::from(len)), Noted::Read(offset, len as usize / 2)]);
    let Ok(Reply::Read(Content::Sparse(pieces))) = outcome else { panic!("{outcome:?}") };
    let [SparsePiece::Data(first, data), SparsePiece::Zeroes(second, zeroes)] = &pieces[..] else {
        panic!("{pieces:?}")
    };
    assert_eq!((*first, data.len(), *second, *zeroes), (offset, len as usize / 2, u64::from(MIB / 2), len / 2));
    let (calls, outcome) = run(&device, &dispatch, Request::Read { offset, len, whole: true });
    assert_eq!(calls, [Noted::Read(offset, len as usize)]);
    assert!(matches!(outcome, Ok(Reply::Read(Content::Data(at, data))) if at == offset && data.len() == len as usize));
    // Nothing but zeroes is no read at all.
    let (calls, outcome) = run(&device, &dispatch, Request::Read { offset: offset * 2, len, whole: false });
    assert_eq!(calls, [Noted::Extents(offset * 2, u64::from(len))]);
    assert!(
        matches!(outcome, Ok(Reply::Read(Content::Sparse(pieces))) if matches!(pieces[..], [SparsePiece::Zeroes(..)]))
    );
}

#[test]
fn a_device_that_looks_for_its_extents_is_asked_once() {
    let device = recorder();
    *device.later.lock() = Some(Vec::new());
    let (device, dispatch) = over(device);
    let request = Request::Read { offset: 0, len: MIB / 2, whole: false };
    let noted = Noted::Read(0, MIB as usize / 2);
    let (calls, outcome) = run(&device, &dispatch, request);
    assert_eq!(calls, [Noted::Extents(0, u64::from(MIB / 2)), noted.clone()]);
    assert!(matches!(outcome, Ok(Reply::Read(Content::Data(0, _)))));
    assert_eq!(run(&device, &dispatch, request).0, [noted]);
    // A client that asks for extents waits for them.
    let one = Request::Extents { offset: 0, len: MIB, one: true };
    let Err(begun) = dispatch.start(one, None).try_ready() else { panic!("the device looks") };
    let completer = device.later.lock().as_mut().and_then(Vec::pop).expect("the second question");
    completer.complete(Ok(vec![extent(512, true), extent(512, true), extent(512, false)]));
    let outcome = driver::block_on(begun);
    assert!(matches!(outcome, Ok(Reply::Extents(extents)) if extents == [extent(1024, true)]));
}

#[test]
fn extents_are_merged_cut_and_never_empty() {
    let tidied = tidy(&[extent(512, true), extent(512, true), extent(0, false), extent(4096, false)], 2048, 512);
    assert_eq!(tidied, [extent(1024, true), extent(1024, false)]);
    assert_eq!(tidy(&[], 512, 512), [extent(512, false)]);
    assert_eq!(tidy(&[extent(100, true), extent(412, false)], 512, 512), [extent(512, false)]);
    assert_eq!(tidy(&[extent(700, true), extent(324, false)], 1024, 512), [extent(512, true)]);
}

#[test]
fn extents_are_bounded() {
    let many: Vec<Extent> = (0..5000).map(|i| extent(512, i % 2 == 0)).collect();
    assert_eq!(tidy(&many, 5000 * 512, 512).len(), EXTENTS_MAX);
}
