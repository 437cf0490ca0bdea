//! The clients' operations on one clock, and their values, so that a sector names its write.
//!
//! Invariants: a clock's instants are unique and in the order in which they were drawn. So one
//! operation was over before another began exactly if its second instant is the smaller one. A
//! value belongs to one write, or to several that touch no common sector.
//!
//! It leaves the judgement of each sector to `register.rs`.

use crate::{
    common::SECTOR,
    register::{self, Op, TORN, Value, ZERO},
};
use larder_device::rng::mix64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Instants and values, drawn by all clients.
pub struct Clock {
    instant: AtomicU64,
    value: AtomicU32,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { instant: AtomicU64::new(1), value: AtomicU32::new(1) }
    }

    pub fn now(&self) -> u64 {
        self.instant.fetch_add(1, SeqCst)
    }

    /// Returns a value that no other write has.
    pub fn new_value(&self) -> Value {
        let value = self.value.fetch_add(1, SeqCst);
        assert!(value != ZERO && value != TORN, "values have run out");
        value
    }
}

/// One operation on a run of sectors.
pub struct Record {
    pub called: u64,
    pub returned: u64,
    pub client: u32,
    pub first_sector: usize,
    pub what: What,
}

pub enum What {
    /// All sectors got this value.
    Wrote { value: Value, sectors: usize },
    /// The values of the sectors.
    Found(Box<[Value]>),
}

/// Writes `value`'s content to the sectors of `out`, which begins at `first_sector` of the volume.
///
/// The cache treats values differently. One in two compresses. One in two is the same in each
/// sector, so that the chunks of a write, and of other writes of that value, are duplicates.
pub fn fill(value: Value, first_sector: usize, out: &mut [u8]) {
    for (i, sector) in out.chunks_mut(SECTOR).enumerate() {
        fill_sector(value, first_sector + i, sector);
    }
}

fn fill_sector(value: Value, sector: usize, out: &mut [u8]) {
    if value == ZERO {
        return out.fill(0);
    }
    let place = if value & 2 == 0 { 0 } else { sector as u64 };
    let seed = mix64(u64::from(value) ^ (place << 32));
    for (i, word) in out.chunks_mut(8).enumerate() {
        let bits = match i {
            0 => u64::from(value),
            _ if value & 1 == 0 => seed,
            _ => seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        word.copy_from_slice(&bits.to_le_bytes());
    }
}

/// Returns the value of a sector.
///
/// [`TORN`] marks a sector that mixes writes, or belongs elsewhere.
pub fn value_of(sector: usize, bytes: &[u8]) -> Value {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[..4]);
    let value = Value::from_le_bytes(value);
    let mut expected = [0; SECTOR];
    fill_sector(value, sector, &mut expected);
    if bytes == expected { value } else { TORN }
}

/// Returns the values of a run of sectors.
pub fn values_of(first_sector: usize, bytes: &[u8]) -> Box<[Value]> {
    bytes.chunks(SECTOR).enumerate().map(|(i, sector)| value_of(first_sector + i, sector)).collect()
}

/// Judges the history of each sector of a volume that began with zeroes.
///
/// Returns the number of judged sector reads.
///
/// # Panics
/// At the first sector without an order that explains it; the message is its history.
pub fn judge(sectors: usize, records: &[Record]) -> usize {
    let mut histories: Vec<Vec<Op>> = vec![Vec::new(); sectors];
    let mut reads = 0;
    for record in records {
        let &Record { called, returned, client, first_sector, .. } = record;
        let op = |value, is_write| Op { called, returned, value, is_write, client };
        match &record.what {
            What::Wrote { value, sectors } => {
                histories[first_sector..first_sector + sectors].iter_mut().for_each(|ops| ops.push(op(*value, true)));
            }
            What::Found(values) => {
                reads += values.len();
                for (ops, &value) in histories[first_sector..].iter_mut().zip(values) {
                    ops.push(op(value, false));
                }
            }
        }
    }
    for (sector, ops) in histories.iter_mut().enumerate() {
        if let Err(why) = register::check(ZERO, ops) {
            panic!("sector {sector} is no register: {why}");
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_says_whose_it_is() {
        for value in [ZERO, 1, 2, 3, 4, 77] {
            let mut bytes = vec![9; 3 * SECTOR];
            fill(value, 10, &mut bytes);
            assert_eq!(*values_of(10, &bytes), [value; 3]);
        }
    }

    #[test]
    fn a_mix_and_a_stray_are_seen() {
        let (mut one, mut other) = (vec![0; SECTOR], vec![0; SECTOR]);
        fill(3, 5, &mut one);
        fill(4, 5, &mut other);
        assert_eq!(value_of(6, &one), TORN, "a sector of another place");
        one[256..].copy_from_slice(&other[256..]);
        assert_eq!(value_of(5, &one), TORN);
        let mut half = vec![0; SECTOR];
        half[..256].copy_from_slice(&other[..256]);
        assert_eq!(value_of(5, &half), TORN);
    }

    #[test]
    #[should_panic(expected = "sector 2 is no register")]
    fn a_torn_sector_in_a_history_fails() {
        let wrote =
            Record { called: 1, returned: 2, client: 0, first_sector: 0, what: What::Wrote { value: 1, sectors: 4 } };
        let found =
            Record { called: 3, returned: 4, client: 1, first_sector: 1, what: What::Found(Box::new([1, TORN, 1])) };
        judge(4, &[wrote, found]);
    }
}
