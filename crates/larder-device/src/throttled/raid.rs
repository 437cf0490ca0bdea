//! Five rotating disks as RAID 5 (left-symmetric): reads spread, small writes read before they
//! write.
//!
//! A write that covers a row writes data and parity. Any other reads the lesser of two sets first:
//! the old data and parity, or the rest of the row. It then writes data and parity.
//!
//! It does not run degraded, rebuild, or keep a cache of its own; the disks have theirs.

use super::{
    hdd::{Hdd, HddFigures},
    model::{Model, Nanos, RequestKind, TimedRequest},
};
use std::collections::HashMap;

const DISKS: u64 = 5;
const DATA_DISKS: u64 = DISKS - 1;
const CHUNK_BYTES: u64 = 64 << 10;
const ROW_BYTES: u64 = DATA_DISKS * CHUNK_BYTES;

pub(super) struct Raid5 {
    disks: Vec<Hdd>,
    /// The request of each request to a disk.
    parts: HashMap<u64, u64>,
    requests: HashMap<u64, Progress>,
    next_part: u64,
    over: Vec<(Nanos, u64)>,
}

/// A request and its outstanding parts.
struct Progress {
    left: usize,
    /// The writes after all reads.
    then: Vec<Part>,
    fua: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    disk: u64,
    offset: u64,
    len: u64,
}

/// Returns the parts of `from..to` within one row with their chunks, and the row.
fn row_parts(row: u64, from: u64, to: u64) -> Vec<(u64, Part)> {
    (0..DATA_DISKS)
        .filter_map(|chunk| {
            let start = row * ROW_BYTES + chunk * CHUNK_BYTES;
            let (from, to) = (from.max(start), to.min(start + CHUNK_BYTES));
            let disk = (parity_disk(row) + 1 + chunk) % DISKS;
            let offset = row * CHUNK_BYTES + from.saturating_sub(start);
            (from < to).then(|| (chunk, Part { disk, offset, len: to - from }))
        })
        .collect()
}

fn parity_disk(row: u64) -> u64 {
    DISKS - 1 - row % DISKS
}

fn rows(offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
    offset / ROW_BYTES..=(offset + len.max(1) - 1) / ROW_BYTES
}

fn parts_of_read(offset: u64, len: u64) -> Vec<Part> {
    rows(offset, len).flat_map(|row| row_parts(row, offset, offset + len)).map(|(_, part)| part).collect()
}

/// Returns the first reads of a write, and its writes after them.
fn parts_of_write(offset: u64, len: u64) -> (Vec<Part>, Vec<Part>) {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for row in rows(offset, len) {
        let data = row_parts(row, offset, offset + len);
        let from = data.iter().map(|(_, part)| part.offset).min().unwrap_or(0);
        let to = data.iter().map(|(_, part)| part.offset + part.len).max().unwrap_or(0);
        let parity = Part { disk: parity_disk(row), offset: from, len: to - from };
        let whole = |chunk| data.iter().any(|(held, part)| *held == chunk && part.len == CHUNK_BYTES);
        let others: Vec<Part> = (0..DATA_DISKS)
            .filter(|&chunk| !whole(chunk))
            .map(|chunk| Part { disk: (parity.disk + 1 + chunk) % DISKS, ..parity })
            .collect();
        if others.len() <= data.len() {
            reads.extend(others);
        } else {
            reads.extend(data.iter().map(|(_, part)| *part));
            reads.push(parity);
        }
        writes.extend(data.iter().map(|(_, part)| *part));
        writes.push(parity);
    }
    (reads, writes)
}

impl Raid5 {
    pub(super) fn new(figures: HddFigures, size_bytes: u64) -> Raid5 {
        let disk_bytes = size_bytes.div_ceil(ROW_BYTES) * CHUNK_BYTES;
        Raid5 {
            disks: (0..DISKS).map(|_| Hdd::new(figures, disk_bytes)).collect(),
            parts: HashMap::new(),
            requests: HashMap::new(),
            next_part: 0,
            over: Vec::new(),
        }
    }

    fn submit_parts(&mut self, now: Nanos, id: u64, kind: RequestKind, parts: &[Part]) {
        for part in parts {
            self.next_part += 1;
            self.parts.insert(self.next_part, id);
            let request = TimedRequest { id: self.next_part, kind, offset: part.offset, len: part.len };
            self.disks[part.disk as usize].submit(now, request);
        }
    }

    fn part_over(&mut self, now: Nanos, part: u64) {
        let Some(id) = self.parts.remove(&part) else { return };
        let Some(progress) = self.requests.get_mut(&id) else { return };
        progress.left -= 1;
        if progress.left > 0 {
            return;
        }
        if progress.then.is_empty() {
            self.requests.remove(&id);
            return self.over.push((now, id));
        }
        let (then, fua) = (std::mem::take(&mut progress.then), progress.fua);
        progress.left = then.len();
        self.submit_parts(now, id, RequestKind::Write { fua }, &then);
    }
}

impl Model for Raid5 {
    fn submit(&mut self, now: Nanos, request: TimedRequest) {
        let every_disk = || (0..DISKS).map(|disk| Part { disk, offset: 0, len: 0 }).collect();
        let (kind, parts, then, fua) = match request.kind {
            RequestKind::Read => (RequestKind::Read, parts_of_read(request.offset, request.len), Vec::new(), false),
            RequestKind::Write { fua } => match parts_of_write(request.offset, request.len) {
                (reads, writes) if reads.is_empty() => (RequestKind::Write { fua }, writes, Vec::new(), fua),
                (reads, writes) => (RequestKind::Read, reads, writes, fua),
            },
            kind @ (RequestKind::Flush | RequestKind::Discard) => (kind, every_disk(), Vec::new(), false),
        };
        self.requests.insert(request.id, Progress { left: parts.len(), then, fua });
        self.submit_parts(now, request.id, kind, &parts);
    }

    fn next_due(&self) -> Option<Nanos> {
        self.disks.iter().filter_map(Model::next_due).min()
    }

    fn advance(&mut self, now: Nanos, over: &mut Vec<(Nanos, u64)>) {
        // Moment by moment: an end on one disk begins work on another.
        let mut ended = Vec::new();
        while let Some(due) = self.next_due().filter(|&due| due <= now) {
            self.disks.iter_mut().for_each(|disk| disk.advance(due, &mut ended));
            for (at, part) in ended.drain(..) {
                self.part_over(at, part);
            }
        }
        over.append(&mut self.over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_on_all_disks_and_small_writes_read_first() {
        let (reads, writes) = parts_of_write(0, 4096);
        assert_eq!((reads.len(), writes.len()), (2, 2));
        assert_eq!(reads, writes);
        let (reads, writes) = parts_of_write(ROW_BYTES, 2 * ROW_BYTES);
        assert_eq!((reads.len(), writes.len()), (0, 10));
        // Three chunks of four: reading the fourth is cheaper.
        let (reads, writes) = parts_of_write(0, 3 * CHUNK_BYTES);
        assert_eq!((reads.len(), writes.len()), (1, 4));
        let read = parts_of_read(CHUNK_BYTES - 512, 1024);
        assert_eq!(read.iter().map(|part| part.len).collect::<Vec<_>>(), [512, 512]);
        assert_ne!(read[0].disk, read[1].disk);
    }
}
