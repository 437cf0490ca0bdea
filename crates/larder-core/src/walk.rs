//! A walk along a list through a slab, piece by piece while the list changes. A checkpoint locks
//! the list for one piece at a time.
//!
//! An unlinked node is told to the walk, which continues behind it. A node that moves to the list's
//! end before its turn has its turn there.
//!
//! Invariants: no number is seen twice. A node that stays on the list during the walk is seen,
//! unless more nodes moved to the end meanwhile than the list had. A walk ends, however the list
//! changes.
//!
//! It does not link or unlink.

use crate::recency::NONE;

/// Maximum numbers of one piece, so that no caller waits for long.
pub(crate) const PIECE: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct Walk {
    /// The next node, if there is one.
    at: Option<u32>,
    /// Turns that are left, including those of nodes that had a turn and moved to the end since.
    left: usize,
    seen: Numbers,
}

/// A set of numbers, a bit for each.
#[derive(Default)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    /// Adds a number; returns whether it is new.
    pub fn add(&mut self, i: u32) -> bool {
        let (word, bit) = (i as usize / 64, 1 << (i % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    /// Returns whether the set has a number.
    pub fn has(&self, i: u32) -> bool {
        self.0.get(i as usize / 64).is_some_and(|word| word & 1 << (i % 64) != 0)
    }

    /// Returns the bytes that the set has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

impl Walk {
    /// Begins a walk at `first`, along a list of so many nodes.
    pub fn begin(&mut self, first: u32, nodes: usize) {
        *self = Walk { at: known(first), left: 2 * nodes, seen: Numbers::default() };
    }

    /// Notes that node `i` is being unlinked, and that `newer` came after it.
    #[inline]
    pub fn unlinks(&mut self, i: u32, newer: u32) {
        if self.at == Some(i) {
            self.at = known(newer);
        }
    }

    /// Returns the next node.
    #[cfg(test)]
    pub fn at(&self) -> Option<u32> {
        self.at
    }

    /// Notes that node `i` is new: it has no turn in a running walk.
    #[inline]
    pub fn passes(&mut self, i: u32) {
        if self.at.is_some() {
            self.seen.add(i);
        }
    }

    /// Returns the next numbers, at most [`PIECE`]; empty if all of a piece were seen before.
    /// `None` at the end.
    pub fn next(&mut self, newer: impl Fn(u32) -> u32) -> Option<Vec<u32>> {
        let turns = self.left.min(PIECE);
        let mut piece = Vec::with_capacity(turns);
        let mut at = self.at.filter(|_| turns > 0);
        if at.is_none() {
            *self = Walk::default();
            return None;
        }
        for _ in 0..turns {
            let Some(i) = at else { break };
            if self.seen.add(i) {
                piece.push(i);
            }
            at = known(newer(i));
            self.left -= 1;
        }
        self.at = at;
        Some(piece)
    }

    /// Returns the maximum bytes of a walk along nodes of so many numbers.
    pub fn ram_bytes_max(numbers: usize) -> usize {
        // The set may have grown to twice its need.
        2 * numbers.div_ceil(64) * size_of::<u64>() + 64
    }

    /// Returns the bytes that the walk has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.seen.ram_bytes()
    }
}

fn known(i: u32) -> Option<u32> {
    (i != NONE).then_some(i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        recency::{Neighbours, Recency},
        types::mix,
    };

    /// A list as in designs, of so many nodes, least recent first.
    struct List {
        /// Neighbours by number.
        nodes: Vec<Neighbours>,
        list: Recency,
        walk: Walk,
    }

    impl List {
        fn new(nodes: u32) -> List {
            let nodes_of = vec![Neighbours::ALONE; nodes as usize];
            let mut list = List { nodes: nodes_of, list: Recency::default(), walk: Walk::default() };
            (0..nodes).for_each(|i| list.link(i));
            list
        }

        fn link(&mut self, i: u32) {
            self.list.link(&mut self.nodes[..], i);
        }

        fn unlink(&mut self, i: u32) {
            let left = self.list.unlink(&mut self.nodes[..], i);
            self.walk.unlinks(i, left.newer);
        }

        fn use_now(&mut self, i: u32) {
            if self.list.newest() != i {
                self.unlink(i);
                self.link(i);
            }
        }

        fn next(&mut self) -> Option<Vec<u32>> {
            let nodes = &self.nodes;
            self.walk.next(|i| nodes[i as usize].newer)
        }
    }

    #[test]
    fn a_list_that_rests_is_seen_in_its_order() {
        for nodes in [0, 1, PIECE as u32, PIECE as u32 + 1, 5000] {
            let mut list = List::new(nodes);
            list.walk.begin(list.list.oldest(), nodes as usize);
            let mut seen = Vec::new();
            while let Some(piece) = list.next() {
                assert!((1..=PIECE).contains(&piece.len()));
                seen.extend(piece);
            }
            assert!(seen.into_iter().eq(0..nodes), "{nodes} nodes");
            assert_eq!(list.walk.ram_bytes(), 0, "nothing is kept after it");
        }
    }

    #[test]
    fn whatever_moves_meanwhile_each_node_is_seen_once() {
        let nodes = 8000;
        for uses in [1, 100, 400, 700] {
            let mut list = List::new(nodes);
            list.walk.begin(list.list.oldest(), nodes as usize);
            let (mut state, mut seen) = (uses, Vec::new());
            while let Some(piece) = list.next() {
                seen.extend(piece);
                for _ in 0..uses {
                    state = mix(state);
                    list.use_now((state % u64::from(nodes)) as u32);
                    // The next node of the walk moves, too.
                    list.walk.at.into_iter().for_each(|i| list.use_now(i));
                }
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..nodes), "{uses} uses after each piece");
        }
    }

    #[test]
    fn a_walk_ends_though_more_moves_than_it_sees() {
        let nodes = 3000;
        let mut list = List::new(nodes);
        list.walk.begin(list.list.oldest(), nodes as usize);
        let mut pieces = 0;
        while list.next().is_some() {
            pieces += 1;
            for _ in 0..2 * PIECE {
                list.use_now(list.list.oldest());
            }
        }
        assert!(pieces <= 2 * nodes as usize / PIECE + 1, "{pieces} pieces");
    }

    #[test]
    fn what_leaves_before_its_turn_is_not_seen() {
        let mut list = List::new(3000);
        list.walk.begin(list.list.oldest(), 3000);
        assert_eq!(list.next().map(|piece| piece.len()), Some(PIECE));
        (1000..2990).for_each(|i| list.unlink(i));
        let rest: Vec<u32> = std::iter::from_fn(|| list.next()).flatten().collect();
        assert!(rest.into_iter().eq(2990..3000));
        list.walk.begin(list.list.oldest(), 1010);
        (0..3000).filter(|i| !(1000..2990).contains(i)).for_each(|i| list.unlink(i));
        assert_eq!(list.next(), None);
    }
}
