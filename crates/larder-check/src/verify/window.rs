//! Reading a region of a flash that may be unreadable in places.
//!
//! Invariants: it does not write; unreadable bytes count as zeroes, and are remembered.
//!
//! It does not retry; a device's driver does.

use larder_core::{Lba, ranges::Run};
use larder_device::{BlockDevice, IoBuf};
use larder_format::layout::SECTOR_BYTES_MAX;
use std::collections::BTreeMap;

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a piece after a failed read: the largest sector of a device.
pub const PIECE_BYTES: usize = SECTOR_BYTES_MAX as usize;

/// A region, read forwards in large pieces.
pub struct Window<'a> {
    flash: &'a dyn BlockDevice,
    end: u64,
    piece_at: u64,
    piece: Vec<u8>,
    /// Offset and end, on the flash.
    unreadable: BTreeMap<u64, u64>,
}

impl<'a> Window<'a> {
    /// Returns the region from `start` to `end`, multiples of the device's sectors on the flash.
    pub fn new(flash: &'a dyn BlockDevice, start: u64, end: u64) -> Self {
        Window { flash, end, piece_at: start, piece: Vec::new(), unreadable: BTreeMap::new() }
    }

    /// Returns `len` bytes from `at` on; fewer at the end of the region. It reads the sectors that
    /// have them.
    pub async fn bytes(&mut self, at: u64, len: usize) -> &[u8] {
        let len = (len as u64).min(self.end.saturating_sub(at)) as usize;
        if at < self.piece_at || at + len as u64 > self.piece_at + self.piece.len() as u64 {
            let sector = u64::from(self.flash.info().sector_bytes.max(1));
            let from = at - at % sector;
            let end = (at + READ_BYTES.max(len) as u64).next_multiple_of(sector).min(self.end);
            self.piece = self.read(from, end.saturating_sub(from) as usize).await;
            self.piece_at = from;
        }
        let from = (at - self.piece_at) as usize;
        self.piece.get(from..from + len).unwrap_or_default()
    }

    async fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        if let Ok(read) = self.flash.read(offset, IoBuf::new(bytes)).await {
            return read.to_vec();
        }
        let mut out = Vec::with_capacity(bytes);
        while out.len() < bytes {
            let at = offset + out.len() as u64;
            let len = PIECE_BYTES.min(bytes - out.len());
            match self.flash.read(at, IoBuf::new(len)).await {
                Ok(read) => out.extend_from_slice(&read),
                Err(_) => {
                    out.resize(out.len() + len, 0);
                    self.unreadable.insert(at, at + len as u64);
                }
            }
        }
        out
    }

    /// Returns the unreadable ranges: first byte and end, on the flash, neighbours joined.
    pub fn unreadable(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (&from, &end) in &self.unreadable {
            match joined.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(end),
                _ => joined.push((from, end)),
            }
        }
        joined.into_iter()
    }
}

/// Returns a run that is a range alone.
pub fn span(first: u64, count: u64) -> Run {
    Run::new(Lba(first), count, 0)
}
