//! The bytes that the chosen intervals take at each moment.
//!
//! It adds to a range, and finds the most in a range, each in O(log n).
//!
//! Moments are the starts of intervals. The bytes taken grow only there. So the most over a range
//! of gaps that begins at a start is the most over the starts in it.
//!
//! Invariants: a node's `most` is that of its moments, without the additions to whole ranges of its
//! ancestors. Memory: 16 bytes a node, and as many nodes as twice the moments.
//!
//! It does not take bytes away.

/// A node of the tree: a range of moments.
#[derive(Clone, Copy, Default)]
struct Node {
    /// The most bytes at one of its moments.
    most: u64,
    /// The bytes added to all of its moments at once; `most` includes them.
    added: u64,
}

/// The tree; see the head of this file.
pub(super) struct Occupancy {
    /// The root is 1; the children of `p` are `2p` and `2p + 1`; the moments are the last half.
    nodes: Vec<Node>,
}

impl Occupancy {
    /// Makes a tree in which no bytes are taken at any of `moments`.
    pub fn new(moments: usize) -> Occupancy {
        Occupancy { nodes: vec![Node::default(); 2 * moments.next_power_of_two()] }
    }

    /// Adds `bytes` at the moments `first..=last`, if the most there then is at most `capacity`.
    ///
    /// Returns true if it added them.
    pub fn add_if_fits(&mut self, first: usize, last: usize, bytes: u64, capacity: u64) -> bool {
        let fits = capacity.checked_sub(bytes).is_some_and(|left| self.most(first, last) <= left);
        if fits {
            self.add(first, last, bytes);
        }
        fits
    }

    fn leaf(&self, moment: usize) -> usize {
        self.nodes.len() / 2 + moment
    }

    fn most(&self, first: usize, last: usize) -> u64 {
        let (mut left, mut right) = (self.leaf(first), self.leaf(last));
        let (mut left_most, mut right_most) = (self.nodes[left].most, self.nodes[right].most);
        // Up on both edges; the nodes between them lie in the range whole.
        while left / 2 != right / 2 {
            if left % 2 == 0 {
                left_most = left_most.max(self.nodes[left + 1].most);
            }
            if right % 2 == 1 {
                right_most = right_most.max(self.nodes[right - 1].most);
            }
            (left, right) = (left / 2, right / 2);
            left_most += self.nodes[left].added;
            right_most += self.nodes[right].added;
        }
        let mut most = left_most.max(right_most);
        let mut above = left / 2;
        while above > 0 {
            most += self.nodes[above].added;
            above /= 2;
        }
        most
    }

    fn add_whole(&mut self, node: usize, bytes: u64) {
        let node = &mut self.nodes[node];
        node.most += bytes;
        node.added += bytes;
    }

    /// Takes the most from the children anew. Returns true if it changed.
    fn refresh(&mut self, at: usize) -> bool {
        let below = self.nodes[2 * at].most.max(self.nodes[2 * at + 1].most);
        let node = &mut self.nodes[at];
        let before = std::mem::replace(&mut node.most, below + node.added);
        before != node.most
    }

    /// Adds `bytes` at the moments `first..=last`.
    pub fn add(&mut self, first: usize, last: usize, bytes: u64) {
        let (mut left, mut right) = (self.leaf(first), self.leaf(last));
        self.add_whole(left, bytes);
        if left != right {
            self.add_whole(right, bytes);
        }
        while left / 2 != right / 2 {
            if left % 2 == 0 {
                self.add_whole(left + 1, bytes);
            }
            if right % 2 == 1 {
                self.add_whole(right - 1, bytes);
            }
            (left, right) = (left / 2, right / 2);
            self.refresh(left);
            self.refresh(right);
        }
        let mut above = left / 2;
        while above > 0 && self.refresh(above) {
            above /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_trace::rng::TraceRng;

    use super::*;

    #[test]
    fn does_as_a_plain_array_does() {
        for (seed, moments) in [(1, 1usize), (2, 2), (3, 3), (4, 64), (5, 100)] {
            let mut rng = TraceRng::new(seed);
            let mut occupancy = Occupancy::new(moments);
            let mut model = vec![0; moments];
            let mut fitted = 0;
            for step in 0..3000 {
                let first = rng.below(moments as u64) as usize;
                let last = first + rng.below((moments - first) as u64) as usize;
                let bytes = rng.below(20);
                let range = &mut model[first..=last];
                let expected = range.iter().max().expect("not empty") + bytes <= 500;
                if expected {
                    range.iter_mut().for_each(|taken| *taken += bytes);
                }
                assert_eq!(occupancy.add_if_fits(first, last, bytes, 500), expected, "seed {seed}, step {step}");
                fitted += u32::from(expected);
            }
            assert!((10..2990).contains(&fitted), "seed {seed}: {fitted} fitted");
        }
        assert!(!Occupancy::new(4).add_if_fits(0, 3, 2, 1));
    }
}
