//! Numbers by the time of their last use, the least recent first.
//!
//! Role: [`Recency`] is a doubly linked list in two arrays: the eviction order of drives that drop
//! pages by themselves.
//!
//! Invariant: a number is in the list at most once; each operation costs a constant.
//!
//! It does not know the meaning of the numbers.

/// Not in the list.
const NONE: u32 = u32::MAX;

/// The list; see the module.
#[derive(Debug)]
pub struct Recency {
    /// By number, toward the numbers used longer ago.
    ///
    /// The last entry is the list's own: the number after it was used last.
    older: Vec<u32>,
    newer: Vec<u32>,
}

impl Recency {
    /// Makes an empty list of numbers below `count`.
    pub fn new(count: u32) -> Self {
        let mut links = vec![NONE; count as usize + 1];
        links[count as usize] = count;
        Recency { older: links.clone(), newer: links }
    }

    /// Returns true if `number` is in the list.
    pub fn has(&self, number: u32) -> bool {
        self.older[number as usize] != NONE
    }

    /// Notes a use of `number`, and adds it if it is not in the list.
    pub fn put(&mut self, number: u32) {
        self.remove(number);
        let own = self.own();
        let last = self.older[own as usize];
        (self.older[number as usize], self.newer[number as usize]) = (last, own);
        self.newer[last as usize] = number;
        self.older[own as usize] = number;
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
            let (older, newer) = (self.older[number as usize], self.newer[number as usize]);
            self.newer[older as usize] = newer;
            self.older[newer as usize] = older;
            self.older[number as usize] = NONE;
        }
    }

    /// Returns the number used least recently.
    pub fn least_recent(&self) -> Option<u32> {
        let first = self.newer[self.own() as usize];
        (first != self.own()).then_some(first)
    }

    /// Counts the numbers in the list.
    pub fn count(&self) -> u32 {
        (0..self.own()).filter(|&number| self.has(number)).count() as u32
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        ((self.older.capacity() + self.newer.capacity()) * size_of::<u32>()) as u64
    }

    fn own(&self) -> u32 {
        self.older.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_comes_first() {
        let mut recency = Recency::new(4);
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
