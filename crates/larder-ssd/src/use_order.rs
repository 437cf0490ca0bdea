//! Numbers by the time of their last use, the least recent first.
//!
//! Role: [`UseOrder`] is the eviction order of drives that drop pages by themselves.
//!
//! Invariant: a number is in the list at most once; each operation costs a constant.
//!
//! It does not know the meaning of the numbers.

use larder_types::recency::{NONE, Neighbours, Recency};

/// The numbers; see the module.
#[derive(Debug)]
pub struct UseOrder {
    /// By number; a number that is not on the list is its own neighbour.
    numbers: Vec<Neighbours>,
    list: Recency,
}

impl UseOrder {
    /// Makes an empty list of numbers below `count`.
    pub fn new(count: u32) -> Self {
        let outside = |number| Neighbours { newer: number, older: number };
        UseOrder { numbers: (0..count).map(outside).collect(), list: Recency::default() }
    }

    /// Returns true if `number` is in the list.
    pub fn has(&self, number: u32) -> bool {
        self.numbers[number as usize].newer != number
    }

    /// Notes a use of `number`, and adds it if it is not in the list.
    pub fn put(&mut self, number: u32) {
        self.remove(number);
        self.list.link(&mut self.numbers[..], number);
    }

    /// Notes a use of `number`, if it is in the list.
    pub fn touch(&mut self, number: u32) {
        if self.has(number) {
            self.put(number);
        }
    }

    /// Takes `number` out, if it is in the list.
    pub fn remove(&mut self, number: u32) {
        if self.has(number) {
            self.list.unlink(&mut self.numbers[..], number);
            self.numbers[number as usize] = Neighbours { newer: number, older: number };
        }
    }

    /// Returns the number used least recently.
    pub fn least_recent(&self) -> Option<u32> {
        let oldest = self.list.oldest();
        (oldest != NONE).then_some(oldest)
    }

    /// Counts the numbers in the list.
    pub fn count(&self) -> u32 {
        (0..self.numbers.len() as u32).filter(|&number| self.has(number)).count() as u32
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        (self.numbers.capacity() * size_of::<Neighbours>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_comes_first() {
        let mut recency = UseOrder::new(4);
        assert_eq!(recency.least_recent(), None);
        [2, 0, 3].into_iter().for_each(|number| recency.put(number));
        recency.touch(2);
        recency.touch(1);
        assert_eq!((recency.least_recent(), recency.has(1), recency.count()), (Some(0), false, 3));
        recency.remove(0);
        recency.remove(1);
        assert_eq!(recency.least_recent(), Some(3));
        recency.put(3);
        assert_eq!(recency.least_recent(), Some(2));
        recency.remove(2);
        recency.remove(3);
        assert_eq!((recency.least_recent(), recency.count()), (None, 0));
    }
}
