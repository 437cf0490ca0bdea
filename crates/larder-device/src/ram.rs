//! [`RamDevice`]: a block device in memory. Every operation ends when its call returns.
//!
//! Role: the medium of tests, benches and embedders that need a device with no cost of its own. It
//! is sparse: a device of many TiB costs only its written bytes.
//!
//! Invariants: the device consists of stripes of [`STRIPE_BYTES`], each behind its own lock and
//! allocated by its first write. An operation holds the lock of one stripe at a time, for the
//! length of one copy, so no sector mixes two operations. An operation that spans stripes is not
//! atomic as a whole (no block device is).
//!
//! It does not survive the process. It loses nothing before that: `flush` and FUA have nothing to
//! do. It leaves power loss to [`crate::sim`].

use crate::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags,
    ZeroFlags,
};
use parking_lot::RwLock;
use std::sync::OnceLock;

/// Bytes under one lock, and the unit of allocation.
pub const STRIPE_BYTES: usize = 64 << 10;
/// Largest device, in bytes (1 PiB); its empty table takes 64 MiB.
pub const RAM_DEVICE_BYTES_MAX: u64 = 1 << 50;
/// Longest request, in bytes.
pub const RAM_REQUEST_BYTES_MAX: u32 = 64 << 20;
/// Most extents in one answer.
const EXTENTS_MAX: usize = 4096;
/// Stripes in a group; a group's table (64 KiB) is made by the first write to it.
const GROUP_STRIPES: usize = 4096;
const GROUP_BYTES: u64 = (STRIPE_BYTES * GROUP_STRIPES) as u64;

/// A stripe; `None` reads as zeroes: the stripe was never written, or was discarded whole.
type Stripe = RwLock<Option<Box<[u8; STRIPE_BYTES]>>>;
type Group = OnceLock<Box<[Stripe]>>;

/// A sparse block device in memory.
pub struct RamDevice {
    info: DeviceInfo,
    groups: Box<[Group]>,
}

/// The part of an operation that lies in one stripe.
struct StripePiece {
    group: usize,
    stripe: usize,
    /// Its start in the stripe.
    at: usize,
    /// Its start in the operation.
    done: usize,
    len: usize,
}

/// Cuts `offset..offset + len` at the stripes' borders.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = StripePiece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let place = offset + done;
        let at = (place % STRIPE_BYTES as u64) as usize;
        let part = ((STRIPE_BYTES - at) as u64).min(len - done);
        let piece = StripePiece {
            group: (place / GROUP_BYTES) as usize,
            stripe: (place % GROUP_BYTES) as usize / STRIPE_BYTES,
            at,
            done: done as usize,
            len: part as usize,
        };
        done += part;
        Some(piece)
    })
}

fn new_stripe() -> Box<[u8; STRIPE_BYTES]> {
    vec![0; STRIPE_BYTES].into_boxed_slice().try_into().expect("the length is that of a stripe")
}

impl RamDevice {
    /// Returns a device of `size_bytes` zeroes with sectors of `sector_bytes`.
    ///
    /// Its physical sectors have 4 KiB.
    ///
    /// # Panics
    /// If `sector_bytes` is not a power of two in 512..=4096. Also if `size_bytes` is not a
    /// multiple of it or is greater than [`RAM_DEVICE_BYTES_MAX`].
    pub fn new(name: impl Into<String>, size_bytes: u64, sector_bytes: u32) -> RamDevice {
        assert!(
            sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes),
            "a sector has 512 to 4096 bytes, not {sector_bytes}"
        );
        assert!(
            size_bytes <= RAM_DEVICE_BYTES_MAX && size_bytes.is_multiple_of(u64::from(sector_bytes)),
            "{size_bytes} bytes are more than {RAM_DEVICE_BYTES_MAX} or no multiple of the sector"
        );
        let groups = (0..size_bytes.div_ceil(GROUP_BYTES)).map(|_| OnceLock::new()).collect();
        let info = DeviceInfo {
            name: name.into(),
            size_bytes,
            sector_bytes,
            physical_sector_bytes: 4096,
            optimal_io_bytes: STRIPE_BYTES as u32,
            request_bytes_max: RAM_REQUEST_BYTES_MAX,
            discard_zeroes: true,
            zeroes_fast: true,
            read_only: false,
        };
        RamDevice { info, groups }
    }

    /// Returns the same device, which refuses writes from now on.
    pub fn read_only(mut self) -> RamDevice {
        self.info.read_only = true;
        self
    }

    /// Returns the bytes of memory that hold data: whole stripes.
    pub fn allocated_bytes(&self) -> u64 {
        let stripes = self.groups.iter().filter_map(OnceLock::get).flatten();
        stripes.filter(|stripe| stripe.read().is_some()).count() as u64 * STRIPE_BYTES as u64
    }

    /// Returns a copy of all bytes. It is consistent only without concurrent writes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.info.size_bytes as usize];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// Replaces all bytes with those of a [`RamDevice::snapshot`].
    ///
    /// # Panics
    /// If the length is not the size of the device.
    pub fn restore(&self, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, self.info.size_bytes, "a snapshot of another device");
        self.zero(0, self.info.size_bytes, false);
        for (index, stripe) in bytes.chunks(STRIPE_BYTES).enumerate() {
            if stripe.iter().any(|&byte| byte != 0) {
                self.copy_in((index * STRIPE_BYTES) as u64, stripe);
            }
        }
    }

    fn group(&self, group: usize) -> &[Stripe] {
        self.groups[group].get_or_init(|| (0..GROUP_STRIPES).map(|_| RwLock::new(None)).collect())
    }

    fn copy_out(&self, offset: u64, out: &mut [u8]) {
        for piece in pieces(offset, out.len() as u64) {
            self.copy_piece_out(&piece, &mut out[piece.done..piece.done + piece.len]);
        }
    }

    #[inline]
    fn copy_piece_out(&self, piece: &StripePiece, out: &mut [u8]) {
        let Some(group) = self.groups[piece.group].get() else { return out.fill(0) };
        match &*group[piece.stripe].read() {
            Some(bytes) => out.copy_from_slice(&bytes[piece.at..piece.at + piece.len]),
            None => out.fill(0),
        }
    }

    fn copy_in(&self, offset: u64, data: &[u8]) {
        for piece in pieces(offset, data.len() as u64) {
            let mut stripe = self.group(piece.group)[piece.stripe].write();
            let bytes = stripe.get_or_insert_with(new_stripe);
            bytes[piece.at..piece.at + piece.len].copy_from_slice(&data[piece.done..piece.done + piece.len]);
        }
    }

    /// Zeroes a range. With `keep` it is allocated afterwards, else whole stripes are given up.
    fn zero(&self, offset: u64, len: u64, keep: bool) {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let group = (at / GROUP_BYTES) as usize;
            let part = (GROUP_BYTES - at % GROUP_BYTES).min(end - at);
            if keep || self.groups[group].get().is_some() {
                self.zero_in_group(at, part, keep);
            }
            at += part;
        }
    }

    fn zero_in_group(&self, offset: u64, len: u64, keep: bool) {
        let size = self.info.size_bytes;
        for piece in pieces(offset, len) {
            let mut stripe = self.group(piece.group)[piece.stripe].write();
            if keep {
                stripe.get_or_insert_with(new_stripe)[piece.at..piece.at + piece.len].fill(0);
            } else if piece.len == STRIPE_BYTES
                || (piece.at == 0 && piece.done as u64 + piece.len as u64 + offset == size)
            {
                *stripe = None;
            } else if let Some(bytes) = stripe.as_mut() {
                bytes[piece.at..piece.at + piece.len].fill(0);
            }
        }
    }

    fn extents_of(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let group = self.groups[(at / GROUP_BYTES) as usize].get();
            let unit = if group.is_some() { STRIPE_BYTES as u64 } else { GROUP_BYTES };
            let stripe = (at % GROUP_BYTES) as usize / STRIPE_BYTES;
            let hole = group.is_none_or(|group| group[stripe].read().is_none());
            let part = (unit - at % unit).min(end - at);
            let full = extents.len() == EXTENTS_MAX;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.len += part,
                _ if full => break,
                _ => extents.push(Extent { len: part, hole, zero: hole }),
            }
            at += part;
        }
        extents
    }
}

impl BlockDevice for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        if let Err(error) = self.info.check(IoOp::Read, offset, buf.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        self.copy_out(offset, &mut buf);
        IoFuture::ready(Ok(buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, _flags: WriteFlags) -> IoFuture<()> {
        let checked = self.info.check(IoOp::Write, offset, data.len() as u64);
        IoFuture::ready(checked.map(|()| self.copy_in(offset, &data)))
    }

    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        let checked = self.info.check(IoOp::Discard, offset, len);
        IoFuture::ready(checked.map(|()| self.zero(offset, len, false)))
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        IoFuture::ready(self.zeroes_now(offset, len, flags))
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        let checked = self.info.check(IoOp::Extents, offset, len);
        IoFuture::ready(checked.map(|()| self.extents_of(offset, len)))
    }
}

impl RamDevice {
    fn zeroes_now(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoResult<()> {
        self.info.check(IoOp::WriteZeroes, offset, len)?;
        // Zeroes that must stay allocated are written byte by byte, which `fast_only` forbids.
        if flags.no_hole && flags.fast_only {
            return Err(IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len));
        }
        self.zero(offset, len, flags.no_hole);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now<T>(future: IoFuture<T>) -> IoResult<T> {
        future.try_ready().ok().expect("operations in memory are over at once")
    }

    fn put(device: &RamDevice, offset: u64, byte: u8, len: usize) {
        now(device.write(offset, IoBuf::copy_of(&vec![byte; len]).freeze(), WriteFlags::default())).expect("write");
    }

    fn get(device: &RamDevice, offset: u64, len: usize) -> IoBuf {
        now(device.read(offset, IoBuf::new(len))).expect("read")
    }

    #[test]
    fn what_was_written_is_read_across_stripes_and_groups() {
        let device = RamDevice::new("ram", 2 * GROUP_BYTES, 512);
        let border = GROUP_BYTES - 1024;
        put(&device, border, 7, 2048 + STRIPE_BYTES);
        let bytes = get(&device, border - 512, 3072 + STRIPE_BYTES);
        assert!(bytes[..512].iter().all(|&b| b == 0));
        assert!(bytes[512..2560 + STRIPE_BYTES].iter().all(|&b| b == 7));
        assert!(bytes[2560 + STRIPE_BYTES..].iter().all(|&b| b == 0));
        assert_eq!(device.allocated_bytes(), 3 * STRIPE_BYTES as u64);
    }

    #[test]
    fn zeroes_and_discards_give_memory_back() {
        let device = RamDevice::new("ram", 1 << 20, 512);
        put(&device, 0, 9, 1 << 20);
        now(device.discard(512, (128 << 10) - 512)).expect("discard");
        assert_eq!((get(&device, 0, 512)[0], get(&device, 512, 512)[0]), (9, 0));
        assert_eq!(device.allocated_bytes(), (1 << 20) - (64 << 10));
        let kept = ZeroFlags { no_hole: true, ..ZeroFlags::default() };
        now(device.write_zeroes(0, 1 << 20, kept)).expect("zeroes");
        assert_eq!(device.allocated_bytes(), 1 << 20);
        assert!(device.snapshot().iter().all(|&b| b == 0));
        now(device.write_zeroes(0, 1 << 20, ZeroFlags::default())).expect("zeroes");
        assert_eq!(device.allocated_bytes(), 0);
        let refused = now(device.write_zeroes(0, 512, ZeroFlags { fast_only: true, ..kept }));
        assert_eq!(refused.expect_err("slow").kind, IoErrorKind::Unsupported);
    }

    #[test]
    fn a_huge_device_costs_nothing_until_written() {
        let device = RamDevice::new("ram", 64 << 40, 4096);
        assert_eq!(get(&device, (64 << 40) - 4096, 4096)[4095], 0);
        now(device.discard(0, 64 << 40)).expect("discard");
        let all = now(device.extents(0, 64 << 40)).expect("extents");
        assert_eq!(all, [Extent { len: 64 << 40, hole: true, zero: true }]);
        put(&device, 1 << 40, 1, 4096);
        let extents = now(device.extents(4096, (64 << 40) - 4096)).expect("extents");
        let holes: Vec<_> = extents.iter().map(|extent| (extent.len, extent.hole)).collect();
        assert_eq!(holes[..2], [((1 << 40) - 4096, true), (STRIPE_BYTES as u64, false)]);
        assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), (64 << 40) - 4096);
    }

    #[test]
    fn a_snapshot_restores() {
        let device = RamDevice::new("ram", 200 << 10, 512);
        put(&device, 100 << 10, 5, 512);
        let before = device.snapshot();
        put(&device, 0, 6, 200 << 10);
        device.restore(&before);
        assert_eq!(device.snapshot(), before);
        assert_eq!(device.allocated_bytes(), STRIPE_BYTES as u64);
    }

    #[test]
    fn ranges_outside_are_refused() {
        let device = RamDevice::new("ram", 1 << 20, 4096);
        assert_eq!(now(device.read(512, IoBuf::new(4096))).expect_err("odd").kind, IoErrorKind::Unaligned);
        assert_eq!(now(device.read(1 << 20, IoBuf::new(4096))).expect_err("end").kind, IoErrorKind::OutOfRange);
        assert_eq!(now(device.discard(u64::MAX - 4095, 8192)).expect_err("wraps").kind, IoErrorKind::OutOfRange);
        let device = device.read_only();
        assert_eq!(now(device.discard(0, 4096)).expect_err("read-only").kind, IoErrorKind::ReadOnly);
    }

    #[test]
    fn threads_never_mix_a_sector() {
        let device = RamDevice::new("ram", 64 << 10, 512);
        std::thread::scope(|scope| {
            for byte in 1..=3u8 {
                let device = &device;
                scope.spawn(move || (0..2000).for_each(|_| put(device, 0, byte, 8192)));
            }
            for _ in 0..2000 {
                let bytes = get(&device, 0, 8192);
                assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0])));
            }
        });
    }
}
