//! A search for one order of a sector's operations that explains every read: the history of a
//! register.
//!
//! A sector is a register: a write sets it, a read returns it. A history is *linearizable* if each
//! operation gets an instant between its call and its return. In the order of these instants, each
//! read returns the value of the write before it. This is the exact form of the contract's "a read
//! returns the newest completed write". It forbids stale reads, reads from the future, and readers
//! that see concurrent writes in different orders.
//!
//! The search places operations one after another (Wing and Gong 1993, with the memory of failed
//! states that Lowe added in 2017). An operation may come next if it was called before any other
//! unplaced one has returned. Exactly those are not bound to come after an unplaced one. Three
//! rules keep the search short, and none loses an order:
//!
//! 1. A read that may come next and finds the current value is placed at once. Take any order that
//!    explains the rest, and move this read to its front: nothing unplaced must precede it, and the
//!    value is right there. A read changes nothing for the others.
//! 2. So the search tries only writes. A value other than zero is written once. While a read of the
//!    current value is left, no write may come: no later write would bring the value back for it.
//! 3. A state is the placed operations and the current value. A state that failed once fails the
//!    next time, too.
//!
//! Zeroes are written often: each trim writes them, and a sector begins with them. So this is a
//! search; unique values alone would allow a sort. A read of a value without a write (a torn
//! sector, say) fits into no order.
//!
//! It does not look at more than one sector. No block device promises more.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
};

/// The content of a sector: the number of a write, [`ZERO`], or [`TORN`].
pub type Value = u32;
/// A sector of zeroes: trimmed, or never written.
pub const ZERO: Value = 0;
/// A sector that mixes writes.
pub const TORN: Value = Value::MAX;

/// States that one search may remember; a history that needs more fails the test.
const STATES_MAX: usize = 4_000_000;
/// Operations printed before the place at which a search got stuck.
const PRINTED_BEFORE: usize = 30;

/// One operation on one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The instant of the call, on the clock of all operations; no two instants are equal.
    pub called: u64,
    /// The instant of the return.
    pub returned: u64,
    /// The value that it wrote or found.
    pub value: Value,
    /// True for a write.
    pub is_write: bool,
    /// The client: printed if a history fails.
    pub client: u32,
}

/// A point of the search.
#[derive(Clone)]
struct Point {
    /// The first operation that is not placed.
    base: usize,
    /// One bit for each placed operation from `base / 64 * 64` on. Ends with the last placed one.
    placed: Vec<u64>,
    value: Value,
    /// Reads of `value` that are not placed; not counted for [`ZERO`].
    reads_left: usize,
}

/// Looks for an order of `ops` that explains every read of a register that began with `first`.
///
/// # Errors
/// The history around the operation that fits nowhere, in words.
pub fn check(first: Value, ops: &mut [Op]) -> Result<(), String> {
    ops.sort_unstable_by_key(|op| op.called);
    let mut reads: HashMap<Value, usize> = HashMap::new();
    for op in ops.iter().filter(|op| !op.is_write) {
        *reads.entry(op.value).or_default() += 1;
    }
    let written: Vec<Value> = ops.iter().filter(|op| op.is_write && op.value != ZERO).map(|op| op.value).collect();
    let unique: HashSet<Value> = written.iter().copied().chain([first]).collect();
    assert_eq!(unique.len(), written.len() + 1, "a value was written twice: the search relies on it");

    let mut point = Point::new(first, &reads);
    point.place_reads(ops);
    let mut stack = vec![point];
    let mut seen: HashSet<(usize, Vec<u64>, Value)> = HashSet::new();
    let mut furthest = 0;
    while let Some(point) = stack.pop() {
        if point.base == ops.len() {
            return Ok(());
        }
        furthest = furthest.max(point.base);
        if point.value != ZERO && point.reads_left > 0 {
            continue;
        }
        // The search tries the earliest call first: it is on top of the stack.
        for index in point.next(ops).into_iter().rev() {
            if !ops[index].is_write {
                continue;
            }
            let mut after = point.clone();
            after.place(index);
            after.value = ops[index].value;
            after.reads_left = reads.get(&after.value).copied().unwrap_or(0);
            after.place_reads(ops);
            if seen.insert((after.base, after.placed.clone(), after.value)) {
                stack.push(after);
            }
        }
        if seen.len() > STATES_MAX {
            return Err(format!("too many states: the history is too wide to judge\n{}", describe(ops, furthest)));
        }
    }
    Err(describe(ops, furthest))
}

impl Point {
    fn new(value: Value, reads: &HashMap<Value, usize>) -> Point {
        Point { base: 0, placed: Vec::new(), value, reads_left: reads.get(&value).copied().unwrap_or(0) }
    }

    fn is_placed(&self, index: usize) -> bool {
        let word = index / 64 - self.base / 64;
        self.placed.get(word).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
    }

    fn place(&mut self, index: usize) {
        let word = index / 64 - self.base / 64;
        if self.placed.len() <= word {
            self.placed.resize(word + 1, 0);
        }
        self.placed[word] |= 1 << (index % 64);
        while self.is_placed(self.base) {
            self.base += 1;
            if self.base.is_multiple_of(64) {
                self.placed.remove(0);
            }
        }
    }

    /// Returns the unplaced operations that may come next, in the order of their calls.
    fn next(&self, ops: &[Op]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut first_return = u64::MAX;
        let mut index = self.base;
        while index < ops.len() {
            if index.is_multiple_of(64) && self.placed.get(index / 64 - self.base / 64) == Some(&u64::MAX) {
                index += 64;
                continue;
            }
            if !self.is_placed(index) {
                if ops[index].called > first_return {
                    break;
                }
                first_return = first_return.min(ops[index].returned);
                found.push(index);
            }
            index += 1;
        }
        // A later call may have returned first.
        found.retain(|&index| ops[index].called < first_return);
        found
    }

    /// Places reads by rule 1.
    fn place_reads(&mut self, ops: &[Op]) {
        loop {
            let fitting: Vec<usize> = self
                .next(ops)
                .into_iter()
                .filter(|&index| !ops[index].is_write && ops[index].value == self.value)
                .collect();
            if fitting.is_empty() {
                return;
            }
            for index in fitting {
                self.place(index);
                self.reads_left = self.reads_left.saturating_sub(1);
            }
        }
    }
}

/// Returns the history around the `stuck`th call.
fn describe(ops: &[Op], stuck: usize) -> String {
    let mut text = String::from("no order of these operations explains every read (clock: called..returned)\n");
    let Some(stuck_op) = ops.get(stuck) else { return text };
    let from = stuck.saturating_sub(PRINTED_BEFORE);
    if from > 0 {
        let _ = writeln!(text, "  ... {from} before these");
    }
    for (index, op) in ops.iter().enumerate().skip(from) {
        if op.called > stuck_op.returned && index > stuck + PRINTED_BEFORE {
            let _ = writeln!(text, "  ... {} after these", ops.len() - index);
            break;
        }
        let mark = if index == stuck { ">" } else { " " };
        let verb = if op.is_write { "wrote" } else { "read " };
        let value = match op.value {
            ZERO => "zeroes".to_string(),
            TORN => "a mix".to_string(),
            value => value.to_string(),
        };
        let _ = writeln!(text, "{mark} {:>9}..{:<9} client {:<3} {verb} {value}", op.called, op.returned, op.client);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::rng::Rng;

    fn write(called: u64, returned: u64, value: Value) -> Op {
        Op { called, returned, value, is_write: true, client: 0 }
    }
    fn read(called: u64, returned: u64, value: Value) -> Op {
        Op { called, returned, value, is_write: false, client: 1 }
    }
    fn holds(ops: &[Op]) -> bool {
        check(ZERO, &mut ops.to_vec()).is_ok()
    }

    #[test]
    fn histories_of_a_register_pass() {
        assert!(holds(&[]));
        assert!(holds(&[read(1, 2, ZERO), write(3, 4, 1), read(5, 6, 1)]));
        // A read that overlaps a write may see either; later ones go on from there.
        assert!(holds(&[write(1, 10, 1), read(2, 3, ZERO), read(4, 5, 1), read(6, 7, 1)]));
        // Concurrent writes in either order.
        for last in [1, 2] {
            assert!(holds(&[write(1, 10, 1), write(2, 11, 2), read(12, 13, last)]));
        }
        // Both orders of the calls, seen one after another while both are under way.
        assert!(holds(&[write(1, 10, 1), write(2, 11, 2), read(3, 4, 2), read(5, 6, 1)]));
        // Zeroes come back with each trim.
        assert!(holds(&[write(1, 2, 1), write(3, 9, ZERO), read(4, 5, 1), read(6, 7, ZERO), write(10, 11, 2)]));
        assert!(holds(&[write(1, 20, ZERO), write(2, 21, 1), write(3, 22, ZERO), read(4, 5, 1), read(6, 7, ZERO)]));
    }

    #[test]
    fn a_stale_read_is_caught() {
        assert!(!holds(&[write(1, 2, 1), read(3, 4, ZERO)]));
        assert!(!holds(&[write(1, 2, 1), write(3, 4, 2), read(5, 6, 1)]));
        // Zeroes were overwritten before the read began, though they are trimmed again later.
        assert!(!holds(&[write(1, 2, 1), read(3, 4, ZERO), write(5, 6, ZERO)]));
        // Seen, and then gone: the write has not returned, but it was read.
        assert!(!holds(&[write(1, 10, 1), read(2, 3, 1), read(4, 5, ZERO)]));
    }

    #[test]
    fn a_read_from_the_future_is_caught() {
        assert!(!holds(&[read(1, 2, 1), write(3, 4, 1)]));
    }

    #[test]
    fn readers_who_disagree_on_the_order_of_writes_are_caught() {
        let writes = [write(1, 20, 1), write(2, 21, 2)];
        let one = [read(3, 4, 1), read(5, 6, 2)];
        let other = [read(7, 8, 1)];
        assert!(holds(&[&writes[..], &one].concat()));
        assert!(!holds(&[&writes[..], &one, &other].concat()));
        // The same reads at the same time: each reader by itself may be right.
        let one = [read(3, 6, 1), read(7, 12, 2)];
        let other = [read(4, 5, 2), read(8, 9, 1)];
        assert!(holds(&[&writes[..], &one].concat()) && holds(&[&writes[..], &other].concat()));
        assert!(!holds(&[&writes[..], &one, &other, &[read(13, 14, 2), read(15, 16, 1)]].concat()));
    }

    #[test]
    fn a_torn_sector_and_an_invented_one_are_caught() {
        assert!(!holds(&[write(1, 10, 1), write(2, 11, 2), read(3, 4, TORN)]));
        assert!(!holds(&[write(1, 2, 1), read(3, 4, 7)]));
    }

    #[test]
    fn a_lost_write_is_caught_whatever_overlaps_it() {
        // A completed write that no read sees, between two reads of the value before it.
        assert!(!holds(&[write(1, 2, 1), write(3, 6, 2), write(4, 30, 3), read(7, 8, 1)]));
        assert!(holds(&[write(1, 2, 1), write(3, 6, 2), write(4, 30, 3), read(7, 8, 2)]));
        // A trim that left the old content.
        assert!(!holds(&[write(1, 2, 1), write(3, 4, ZERO), read(5, 6, 1)]));
    }

    #[test]
    fn a_failure_shows_where() {
        let mut ops: Vec<Op> = (0..100).map(|i| write(i * 10 + 1, i * 10 + 2, i as u32 + 1)).collect();
        ops.push(read(505, 506, 40));
        let text = check(ZERO, &mut ops).expect_err("stale");
        assert!(text.contains("> ") && text.contains("505..506"), "{text}");
    }

    /// Tries every order of a short history.
    fn by_every_order(first: Value, ops: &[Op]) -> bool {
        fn go(value: Value, left: &mut Vec<Op>) -> bool {
            if left.is_empty() {
                return true;
            }
            let first_return = left.iter().map(|op| op.returned).min().unwrap_or(0);
            (0..left.len()).any(|i| {
                let op = left[i];
                if op.called > first_return || (!op.is_write && op.value != value) {
                    return false;
                }
                left.remove(i);
                let found = go(if op.is_write { op.value } else { value }, left);
                left.insert(i, op);
                found
            })
        }
        go(first, &mut ops.to_vec())
    }

    #[test]
    fn the_search_agrees_with_the_definition() {
        let (mut yes, mut no) = (0, 0);
        for seed in 1..=20_000 {
            let mut rng = Rng::new(seed);
            let count = 2 + rng.index(6);
            let mut instants: Vec<u64> = (1..=2 * count as u64).collect();
            // Mostly short operations: neighbours swap places.
            for _ in 0..count * 2 {
                let at = rng.index(instants.len() - 1);
                instants.swap(at, at + 1);
            }
            let mut ops: Vec<Op> = Vec::new();
            for (i, pair) in instants.chunks(2).enumerate() {
                let is_write = rng.chance(1, 2);
                let value = match (is_write, rng.chance(1, 4)) {
                    (_, true) => ZERO,
                    (true, _) => i as u32 + 1,
                    (false, _) => rng.below(count as u64) as u32,
                };
                let (called, returned) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                ops.push(Op { called, returned, value, is_write, client: 0 });
            }
            let expected = by_every_order(ZERO, &ops);
            assert_eq!(check(ZERO, &mut ops.clone()).is_ok(), expected, "seed {seed}: {ops:#?}");
            *if expected { &mut yes } else { &mut no } += 1;
        }
        assert!(yes > 2_000 && no > 2_000, "{yes} histories hold, {no} do not: too few of one kind");
    }

    #[test]
    fn a_long_history_with_a_slow_write_is_judged_quickly() {
        // One write that takes as long as everything else, beside thousands of short operations.
        let mut ops = vec![write(1, 100_001, 1)];
        for i in 0..10_000u64 {
            let at = 2 + i * 6;
            ops.push(write(at, at + 2, i as u32 + 2));
            ops.push(write(at + 1, at + 3, if i.is_multiple_of(3) { ZERO } else { i as u32 + 100_000 }));
            ops.push(read(at + 4, at + 5, i as u32 + 2));
        }
        assert!(holds(&ops));
        ops.push(read(90_000, 90_001, 5));
        assert!(!holds(&ops));
    }
}
