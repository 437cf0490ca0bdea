//! [`Disk`]: the inside of an experiment's origin, of any size, with a trace's initial content.
//!
//! Role: the initial content is generated at each read, from its fingerprint. So a disk takes
//! memory only for writes, and none has to be filled first.
//!
//! Invariants: a read returns the last write. Each operation ends when its call returns.
//!
//! It does not take time; it lies in a [`Throttled`](larder_device::throttled::Throttled).

use crate::content::Bytes;
use larder_device::{
    BlockDevice, DeviceInfo, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u32 = 64 << 20;

/// The initial content by block number; zeroes everywhere else.
pub type DiskContent = Arc<HashMap<u64, Bytes>>;

/// A disk, as the module describes it.
pub struct Disk {
    info: DeviceInfo,
    block_bytes: usize,
    initial: DiskContent,
    written: Mutex<HashMap<u64, Box<[u8]>>>,
}

/// The part of an operation in one block.
struct BlockPiece {
    block: u64,
    /// Its start in the block, and in the operation.
    at: usize,
    done: usize,
    len: usize,
}

impl Disk {
    /// Returns a disk of so many bytes, rounded up to a block.
    pub fn new(size_bytes: u64, block_bytes: usize, initial: DiskContent) -> Disk {
        let info = DeviceInfo {
            name: "disk".to_owned(),
            size_bytes: size_bytes.next_multiple_of(block_bytes as u64),
            sector_bytes: 512,
            physical_sector_bytes: 4096,
            optimal_io_bytes: 4096,
            request_bytes_max: REQUEST_BYTES_MAX,
            discard_zeroes: true,
            zeroes_fast: true,
            read_only: false,
        };
        Disk { info, block_bytes, initial, written: Mutex::default() }
    }

    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = BlockPiece> + use<> {
        let block_bytes = self.block_bytes;
        let mut done = 0;
        std::iter::from_fn(move || {
            let place = offset + done as u64;
            let at = (place % block_bytes as u64) as usize;
            let piece =
                BlockPiece { block: place / block_bytes as u64, at, done, len: (block_bytes - at).min(len - done) };
            done += piece.len;
            (piece.len > 0).then_some(piece)
        })
    }

    /// Returns the initial content of a block.
    fn fill(&self, block: u64, out: &mut [u8]) {
        self.initial.get(&block).unwrap_or(&Bytes::Zero).fill(out);
    }

    fn change(&self, (op, offset, len): (IoOp, u64, u64), data: Option<&[u8]>) -> IoResult<()> {
        self.info.check(op, offset, len)?;
        let mut written = self.written.lock();
        for BlockPiece { block, at, done, len } in self.pieces(offset, len as usize) {
            let held = written.entry(block).or_insert_with(|| {
                let mut held = vec![0; self.block_bytes].into_boxed_slice();
                self.fill(block, &mut held);
                held
            });
            let Some(place) = held.get_mut(at..at + len) else { continue };
            match data.and_then(|data| data.get(done..done + len)) {
                Some(data) => place.copy_from_slice(data),
                None => place.fill(0),
            }
        }
        Ok(())
    }

    fn read_into(&self, offset: u64, buf: &mut [u8]) -> IoResult<()> {
        self.info.check(IoOp::Read, offset, buf.len() as u64)?;
        let written = self.written.lock();
        let mut whole = vec![0; self.block_bytes];
        for BlockPiece { block, at, done, len } in self.pieces(offset, buf.len()) {
            let Some(out) = buf.get_mut(done..done + len) else { continue };
            match written.get(&block).and_then(|held| held.get(at..at + len)) {
                Some(held) => out.copy_from_slice(held),
                None if len == self.block_bytes => self.fill(block, out),
                None => {
                    self.fill(block, &mut whole);
                    out.copy_from_slice(whole.get(at..at + len).unwrap_or_default());
                }
            }
        }
        Ok(())
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        IoFuture::ready(self.read_into(offset, &mut buf).map(|()| buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, _: WriteFlags) -> IoFuture<()> {
        IoFuture::ready(self.change((IoOp::Write, offset, data.len() as u64), Some(&data)))
    }

    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        IoFuture::ready(self.change((IoOp::Discard, offset, len), None))
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: ZeroFlags) -> IoFuture<()> {
        if len > u64::from(REQUEST_BYTES_MAX) {
            let error = IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len);
            return IoFuture::ready(Err(error.with_detail("an experiment's disk is not zeroed as a whole")));
        }
        IoFuture::ready(self.change((IoOp::WriteZeroes, offset, len), None))
    }
}

/// A disk whose own write cache is off: an acknowledged write is durable.
///
/// With the cache on, a write without a cache before the disk would end as soon as the disk's
/// memory has it. It would be compared with caches that wait for the platter before they call data
/// clean. Arrays and SAS disks have it off as well. At the size of an experiment it would hold much
/// of a working set.
pub struct Durable<D>(pub D);

impl<D: BlockDevice> BlockDevice for Durable<D> {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, _: WriteFlags) -> IoFuture<()> {
        self.0.write(offset, data, WriteFlags { fua: true })
    }

    /// Does nothing: each write is durable by itself.
    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.0.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.0.write_zeroes(offset, len, ZeroFlags { fua: true, ..flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::driver::block_on;
    use larder_trace::ContentId;

    #[test]
    fn a_disk_has_what_it_began_with_until_it_is_written() {
        let bytes = Bytes::Of { fingerprint: ContentId([3, 4]), stored_bytes: 2000 };
        let disk = Disk::new(1 << 30, 4096, Arc::new(HashMap::from([(2, bytes)])));
        let mut whole = vec![0; 4096];
        bytes.fill(&mut whole);
        let read = |offset, len| block_on(disk.read(offset, IoBuf::new(len))).expect("read").to_vec();
        assert_eq!(read(8192, 4096), whole);
        assert_eq!(read(8704, 1024), whole[512..1536], "a part of a block");
        assert_eq!(read(4096, 8192)[4096..], whole);
        assert!(read(4096, 4096).iter().all(|byte| *byte == 0));
        let mut data = IoBuf::new(1024);
        data.fill(7);
        block_on(disk.write(12288 - 512, data.freeze(), WriteFlags::default())).expect("written");
        assert_eq!(read(8192, 3584), whole[..3584]);
        assert!(read(12288 - 512, 1024).iter().all(|byte| *byte == 7));
        block_on(disk.discard(8192, 4096)).expect("trimmed");
        assert!(read(8192, 4096).iter().all(|byte| *byte == 0));
        assert!(block_on(disk.read(1 << 30, IoBuf::new(512))).is_err(), "behind the end");
    }
}
