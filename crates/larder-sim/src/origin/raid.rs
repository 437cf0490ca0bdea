//! Disks as RAID 5 or RAID 6: splits a request into parts on the disks, in their order.
//!
//! Data lies in *stripe units* on one disk after the other. A *row* (stripe) is one unit of each
//! disk. One or two of these are parity, on other disks in each row (left-symmetric, as Linux md
//! has it).
//!
//! A write of a whole row writes its data and its parity. Any other write first reads the smaller
//! of two sets: the old data and parity (read-modify-write), or the rest of the row
//! (reconstruct-write). When all of that is read, it writes data and parity. So a small write is 4
//! requests of RAID 5 and 6 of RAID 6. Sources: Patterson, Gibson and Katz, "A Case for Redundant
//! Arrays of Inexpensive Disks", SIGMOD 1988, section 9; Chen et al., "RAID: High-Performance,
//! Reliable Secondary Storage", ACM Computing Surveys 26(2), 1994, section 3.2.
//!
//! Invariants: a request is over when all its parts are. The second half begins when the first half
//! is over.
//!
//! It does not keep a cache of its own, gather small writes to a row, run degraded, or rebuild. The
//! small writes of one row do not wait for each other.

use hashbrown::HashMap;

use super::{
    disk::DiskModel,
    medium::Medium,
    profile::RaidFigures,
    request::{OriginRequest, RequestKind, Work},
};
use larder_ssd::time::Nanos;

/// A part of a request: bytes of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidPart {
    /// The disk.
    pub disk: u32,
    /// Its first byte on the disk.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The layout of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The number of disks.
    pub disks: u32,
    /// The disks with parity in a row: 1 or 2.
    pub parity: u32,
    /// Bytes of one disk in a row.
    pub unit_bytes: u64,
}

impl Rows {
    /// Returns the number of disks with data in a row.
    pub fn data_disks(&self) -> u32 {
        self.disks - self.parity
    }

    /// Returns the bytes of data in a row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.data_disks()) * self.unit_bytes
    }

    /// Returns the disk with the first parity of a row; the second is on the next one.
    fn parity_disk(&self, row: u64) -> u32 {
        self.disks - 1 - (row % u64::from(self.disks)) as u32
    }

    /// Returns the disk with a unit of a row.
    fn disk_of(&self, row: u64, unit: u32) -> u32 {
        (self.parity_disk(row) + self.parity + unit) % self.disks
    }

    /// Returns the parts of `from..to` in one row, each with its unit.
    fn in_row(self, row: u64, from: u64, to: u64) -> impl Iterator<Item = (u32, RaidPart)> {
        (0..self.data_disks()).filter_map(move |unit| {
            let start = row * self.row_bytes() + u64::from(unit) * self.unit_bytes;
            let (from, to) = (from.max(start), to.min(start + self.unit_bytes));
            let offset = row * self.unit_bytes + from.saturating_sub(start);
            (from < to).then(|| (unit, RaidPart { disk: self.disk_of(row, unit), offset, len: to - from }))
        })
    }

    fn rows(&self, offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
        offset / self.row_bytes()..=(offset + len - 1) / self.row_bytes()
    }

    /// Returns the parts that a read reads.
    pub fn of_read(&self, offset: u64, len: u64) -> Vec<RaidPart> {
        self.rows(offset, len).flat_map(|row| self.in_row(row, offset, offset + len)).map(|(_, part)| part).collect()
    }

    /// Returns the parts that a write reads first, and those that it writes then.
    pub fn of_write(&self, offset: u64, len: u64) -> (Vec<RaidPart>, Vec<RaidPart>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for row in self.rows(offset, len) {
            let data: Vec<(u32, RaidPart)> = self.in_row(row, offset, offset + len).collect();
            let from = data.iter().map(|(_, part)| part.offset).min().unwrap_or(0);
            let to = data.iter().map(|(_, part)| part.offset + part.len).max().unwrap_or(0);
            let on = |disk| RaidPart { disk, offset: from, len: to - from };
            let first = self.parity_disk(row);
            let parities = (0..self.parity).map(|nth| on((first + nth) % self.disks));
            // A unit is known if all of its bytes under the parity are written.
            let is_known = |unit: &u32| data.iter().any(|(held, part)| held == unit && part.len == to - from);
            let others: Vec<RaidPart> =
                (0..self.data_disks()).filter(|unit| !is_known(unit)).map(|unit| on(self.disk_of(row, unit))).collect();
            if others.len() < data.len() + self.parity as usize {
                reads.extend(others);
            } else {
                reads.extend(data.iter().map(|(_, part)| *part).chain(parities.clone()));
            }
            writes.extend(data.iter().map(|(_, part)| *part).chain(parities));
        }
        (reads, writes)
    }
}

/// A request, and the parts that it still waits for.
struct Progress {
    left: usize,
    /// The parts to write when everything was read.
    then: Vec<RaidPart>,
}

/// See the module.
pub struct Raid {
    rows: Rows,
    disks: Vec<DiskModel>,
    /// The request of each part.
    parts: HashMap<u64, u64>,
    requests: HashMap<u64, Progress>,
    next_part: u64,
}

impl Raid {
    /// Makes an array of so many bytes of data, on idle disks.
    pub fn new(figures: RaidFigures, size_bytes: u64) -> Raid {
        let RaidFigures { disks, parity_disks, stripe_unit_bytes, disk } = figures;
        let rows = Rows { disks, parity: parity_disks, unit_bytes: stripe_unit_bytes };
        let disk_bytes = size_bytes.div_ceil(rows.row_bytes()) * stripe_unit_bytes;
        let make = |_| DiskModel::new(disk, disk_bytes);
        Raid {
            rows,
            disks: (0..disks).map(make).collect(),
            parts: HashMap::new(),
            requests: HashMap::new(),
            next_part: 0,
        }
    }

    fn submit_parts(&mut self, now: Nanos, id: u64, kind: RequestKind, parts: &[RaidPart]) {
        for &RaidPart { disk, offset, len } in parts {
            self.parts.insert(self.next_part, id);
            self.disks[disk as usize].submit(now, self.next_part, OriginRequest { kind, offset, len });
            self.next_part += 1;
        }
    }

    fn part_is_over(&mut self, now: Nanos, part: u64, over: &mut Vec<u64>) {
        let Some(id) = self.parts.remove(&part) else { return };
        let Some(progress) = self.requests.get_mut(&id) else { return };
        progress.left -= 1;
        if progress.left > 0 {
            return;
        }
        let then = std::mem::take(&mut progress.then);
        if then.is_empty() {
            self.requests.remove(&id);
            return over.push(id);
        }
        progress.left = then.len();
        self.submit_parts(now, id, RequestKind::Write, &then);
    }
}

impl Medium for Raid {
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        let OriginRequest { kind, offset, len } = request;
        let on_all = || (0..self.rows.disks).map(|disk| RaidPart { disk, offset: 0, len: 0 }).collect();
        let (kind, parts, then) = match kind {
            RequestKind::Read => (kind, self.rows.of_read(offset, len), Vec::new()),
            RequestKind::Write => match self.rows.of_write(offset, len) {
                (reads, writes) if reads.is_empty() => (RequestKind::Write, writes, Vec::new()),
                (reads, writes) => (RequestKind::Read, reads, writes),
            },
            RequestKind::Trim | RequestKind::Flush => (kind, on_all(), Vec::new()),
        };
        self.requests.insert(id, Progress { left: parts.len(), then });
        self.submit_parts(now, id, kind, &parts);
    }

    fn next_at(&self) -> Option<Nanos> {
        self.disks.iter().filter_map(Medium::next_at).min()
    }

    fn step(&mut self, now: Nanos, over: &mut Vec<u64>) {
        let mut ended = Vec::new();
        for disk in self.disks.iter_mut().filter(|disk| disk.next_at().is_some_and(|at| at <= now)) {
            disk.step(now, &mut ended);
        }
        ended.into_iter().for_each(|part| self.part_is_over(now, part, over));
    }

    fn work(&self, now: Nanos) -> Work {
        self.disks.iter().map(|disk| disk.work(now)).fold(Work::default(), Work::and)
    }
}
