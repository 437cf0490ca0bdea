//! A device in memory over an image that many runs share: a run's writes go to pages of its own.
//!
//! Invariants: an operation is over when its call returns; the image below never changes.
//!
//! It does not lose anything. The damage is done before.

use larder_device::{BlockDevice, DeviceInfo, IoBuf, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags, ZeroFlags};
use parking_lot::Mutex;
use std::sync::Arc;

pub const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// A sector before an overwrite: its number and its bytes.
pub type OldSector = (u64, [u8; SECTOR]);

pub struct Medium {
    info: DeviceInfo,
    image: Arc<Vec<u8>>,
    state: Mutex<State>,
}

struct State {
    pages: Vec<Option<Box<[u8; PAGE]>>>,
    old: Option<Vec<OldSector>>,
}

impl Medium {
    /// Makes a device of `size_bytes`, at most those of the image. With `keeps_old` it keeps
    /// overwritten sectors.
    pub fn new(name: &str, image: Arc<Vec<u8>>, size_bytes: u64, keeps_old: bool) -> Arc<Medium> {
        let info = DeviceInfo {
            name: name.into(),
            size_bytes,
            sector_bytes: SECTOR as u32,
            physical_sector_bytes: SECTOR as u32,
            optimal_io_bytes: 64 << 10,
            request_bytes_max: 64 << 20,
            discard_zeroes: true,
            zeroes_fast: true,
            read_only: false,
        };
        let pages = vec![None; image.len().div_ceil(PAGE)];
        let state = State { pages, old: keeps_old.then(Vec::new) };
        Arc::new(Medium { info, image, state: Mutex::new(state) })
    }

    /// Returns all bytes as they are now.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.info.size_bytes as usize];
        self.copy_out(&self.state.lock(), 0, &mut out);
        out
    }

    /// Takes the overwritten sectors.
    pub fn take_old(&self) -> Vec<OldSector> {
        self.state.lock().old.take().unwrap_or_default()
    }

    fn copy_out(&self, state: &State, offset: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let (page, at) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let len = (PAGE - at).min(out.len() - done);
            match &state.pages[page] {
                Some(bytes) => out[done..done + len].copy_from_slice(&bytes[at..at + len]),
                None => out[done..done + len].copy_from_slice(&self.image[page * PAGE + at..][..len]),
            }
            done += len;
        }
    }

    fn change(&self, op: IoOp, offset: u64, len: u64, data: Option<&[u8]>) -> IoFuture<()> {
        IoFuture::ready(self.info.check(op, offset, len).map(|()| self.copy_in(offset as usize, len as usize, data)))
    }

    fn copy_in(&self, offset: usize, len: usize, data: Option<&[u8]>) {
        let mut state = self.state.lock();
        let noted = if state.old.is_some() { offset / SECTOR..(offset + len) / SECTOR } else { 0..0 };
        for sector in noted {
            let mut before = [0; SECTOR];
            self.copy_out(&state, sector * SECTOR, &mut before);
            if let Some(old) = state.old.as_mut().filter(|_| before.iter().any(|&byte| byte != 0)) {
                old.push((sector as u64, before));
            }
        }
        let mut done = 0;
        while done < len {
            let (page, at) = ((offset + done) / PAGE, (offset + done) % PAGE);
            let part = (PAGE - at).min(len - done);
            let bytes = state.pages[page].get_or_insert_with(|| {
                let mut bytes = Box::new([0; PAGE]);
                let below = &self.image[page * PAGE..];
                let have = below.len().min(PAGE);
                bytes[..have].copy_from_slice(&below[..have]);
                bytes
            });
            match data {
                Some(data) => bytes[at..at + part].copy_from_slice(&data[done..done + part]),
                None => bytes[at..at + part].fill(0),
            }
            done += part;
        }
    }

    fn fill(&self, offset: u64, mut buf: IoBuf) -> IoResult<IoBuf> {
        self.info.check(IoOp::Read, offset, buf.len() as u64)?;
        self.copy_out(&self.state.lock(), offset as usize, &mut buf);
        Ok(buf)
    }
}

impl BlockDevice for Medium {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        IoFuture::ready(self.fill(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, _: WriteFlags) -> IoFuture<()> {
        self.change(IoOp::Write, offset, data.len() as u64, Some(&data))
    }
    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.change(IoOp::Discard, offset, len, None)
    }
    fn write_zeroes(&self, offset: u64, len: u64, _: ZeroFlags) -> IoFuture<()> {
        self.change(IoOp::WriteZeroes, offset, len, None)
    }
}
