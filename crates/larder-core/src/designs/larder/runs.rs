//! The numbers of the regions that have several runs, in lists of one length each.
//!
//! A list has as many numbers as the region has runs, or a few more: lengths come in classes. A
//! list that ended is used again before another one is added.
//!
//! It does not know the regions.

use super::growth;

/// The lengths of the lists.
const LENGTHS: [usize; 7] = [2, 3, 4, 6, 8, 12, 16];

#[derive(Default)]
struct RunLists {
    numbers: Vec<u32>,
    free: Vec<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Runs {
    by_length: [RunLists; LENGTHS.len()],
}

/// Returns the class of a list of so many numbers, 2 to 16.
fn class_of(count: usize) -> usize {
    LENGTHS.partition_point(|&length| length < count)
}

impl Runs {
    /// Returns the list at `place`, which has `count` numbers.
    #[inline]
    pub fn list(&self, count: usize, place: u32) -> &[u32] {
        let class = class_of(count);
        &self.by_length[class].numbers[place as usize * LENGTHS[class]..][..count]
    }

    /// Replaces a list of `before` numbers at `place` by another one. Returns the place of that.
    ///
    /// A list of less than two numbers is none.
    pub fn replace(&mut self, before: usize, place: u32, numbers: &[u32]) -> u32 {
        let (old, new) = (class_of(before), class_of(numbers.len()));
        let place = if before > 1 && numbers.len() > 1 && old == new {
            place
        } else {
            if before > 1 {
                growth::push(&mut self.by_length[old].free, place);
            }
            if numbers.len() < 2 {
                return 0;
            }
            self.add(new)
        };
        let from = place as usize * LENGTHS[new];
        self.by_length[new].numbers[from..from + numbers.len()].copy_from_slice(numbers);
        place
    }

    fn add(&mut self, class: usize) -> u32 {
        let (lists, length) = (&mut self.by_length[class], LENGTHS[class]);
        lists.free.pop().unwrap_or_else(|| {
            let place = lists.numbers.len() / length;
            growth::reserve(&mut lists.numbers, length);
            lists.numbers.resize(lists.numbers.len() + length, 0);
            place as u32
        })
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.by_length.iter().map(|lists| (lists.numbers.capacity() + lists.free.capacity()) * size_of::<u32>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_numbers_while_others_change_length() {
        let mut runs = Runs::default();
        let list = |seed: u32, count: usize| (0..count as u32).map(|i| seed * 100 + i).collect::<Vec<_>>();
        let mut held: Vec<(usize, u32, u32)> = vec![(0, 0, 0); 40];
        let mut draw = 7u32;
        for step in 0..4000u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (at, count) = ((draw >> 8) as usize % held.len(), (draw >> 20) as usize % 17);
            let (before, place, _) = held[at];
            held[at] = (count, runs.replace(before, place, &list(step, count)), step);
            for &(count, place, seed) in held.iter().filter(|(count, ..)| *count > 1) {
                assert_eq!(runs.list(count, place), list(seed, count));
            }
        }
        assert!(runs.ram_bytes() < 40 * 2 * 17 * 4 * 4, "ended lists are used again: {}", runs.ram_bytes());
    }
}
