//! A list by last use: doubly linked through a slab of nodes, with its two ends here.
//!
//! The owner of the slab keeps the nodes, and gives them to each verb. A slab may have its nodes in
//! pieces, or their links in bits beside others ([`Nodes`]).
//!
//! Invariants: a node is on one list at most. Each operation costs a constant.
//!
//! It does not know the content of a node.

/// No node.
pub const NONE: u32 = u32::MAX;

/// The neighbours of a node on its list, or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The node that was used next.
    pub newer: u32,
    /// The node that was used before.
    pub older: u32,
}

impl Neighbours {
    /// A node without neighbours.
    pub const ALONE: Neighbours = Neighbours { newer: NONE, older: NONE };
}

/// A node of a slab.
pub trait Linked {
    /// Returns the node's neighbours.
    fn neighbours(&self) -> Neighbours;

    /// Returns the node's neighbours, to change them.
    fn neighbours_mut(&mut self) -> &mut Neighbours;
}

impl Linked for Neighbours {
    #[inline]
    fn neighbours(&self) -> Neighbours {
        *self
    }

    #[inline]
    fn neighbours_mut(&mut self) -> &mut Neighbours {
        self
    }
}

/// A slab of nodes. A number beyond it, as [`NONE`] is, names no node.
pub trait Nodes {
    /// Returns the neighbours of node `i`, which is there.
    fn neighbours(&self, i: u32) -> Neighbours;

    /// Sets the neighbours of node `i`, which is there.
    fn set(&mut self, i: u32, to: Neighbours);

    /// Sets the newer neighbour of node `i`. Returns false if there is no such node.
    fn set_newer(&mut self, i: u32, newer: u32) -> bool;

    /// Sets the older neighbour of node `i`. Returns false if there is no such node.
    fn set_older(&mut self, i: u32, older: u32) -> bool;
}

impl<N: Linked> Nodes for [N] {
    #[inline]
    fn neighbours(&self, i: u32) -> Neighbours {
        self[i as usize].neighbours()
    }

    #[inline]
    fn set(&mut self, i: u32, to: Neighbours) {
        *self[i as usize].neighbours_mut() = to;
    }

    #[inline]
    fn set_newer(&mut self, i: u32, newer: u32) -> bool {
        self.get_mut(i as usize).map(|node| node.neighbours_mut().newer = newer).is_some()
    }

    #[inline]
    fn set_older(&mut self, i: u32, older: u32) -> bool {
        self.get_mut(i as usize).map(|node| node.neighbours_mut().older = older).is_some()
    }
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub struct Recency {
    newest: u32,
    oldest: u32,
}

impl Default for Recency {
    fn default() -> Self {
        Recency { newest: NONE, oldest: NONE }
    }
}

impl Recency {
    /// Returns the number of the node used last, or [`NONE`].
    #[inline]
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Returns the number of the node used least recently, or [`NONE`].
    #[inline]
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Puts node `i`, which is on no list, on this one as the newest.
    #[inline]
    pub fn link(&mut self, nodes: &mut (impl Nodes + ?Sized), i: u32) {
        let before = std::mem::replace(&mut self.newest, i);
        nodes.set(i, Neighbours { newer: NONE, older: before });
        if !nodes.set_newer(before, i) {
            self.oldest = i;
        }
    }

    /// Takes node `i` off the list, and returns its former neighbours.
    #[inline]
    pub fn unlink(&mut self, nodes: &mut (impl Nodes + ?Sized), i: u32) -> Neighbours {
        let left = nodes.neighbours(i);
        if !nodes.set_older(left.newer, left.older) {
            self.newest = left.older;
        }
        if !nodes.set_newer(left.older, left.newer) {
            self.oldest = left.newer;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers on the list, the oldest first, and checks both directions.
    fn order(list: &Recency, nodes: &[Neighbours]) -> Vec<u32> {
        let known = |i: u32| (i != NONE).then_some(i);
        let along = std::iter::successors(known(list.oldest()), |&i| known(nodes[i as usize].newer));
        let back = std::iter::successors(known(list.newest()), |&i| known(nodes[i as usize].older));
        let (along, mut back): (Vec<u32>, Vec<u32>) = (along.collect(), back.collect());
        back.reverse();
        assert_eq!(along, back);
        along
    }

    #[test]
    fn the_least_recent_comes_first() {
        let (mut list, mut nodes) = (Recency::default(), [Neighbours::ALONE; 5]);
        assert_eq!(order(&list, &nodes), []);
        [2, 0, 3, 4].into_iter().for_each(|i| list.link(&mut nodes[..], i));
        assert_eq!(order(&list, &nodes), [2, 0, 3, 4]);
        assert_eq!(list.unlink(&mut nodes[..], 0), Neighbours { newer: 3, older: 2 });
        list.unlink(&mut nodes[..], 2);
        list.link(&mut nodes[..], 2);
        list.unlink(&mut nodes[..], 2);
        list.link(&mut nodes[..], 0);
        assert_eq!(order(&list, &nodes), [3, 4, 0]);
        for i in [3, 4, 0] {
            list.unlink(&mut nodes[..], i);
        }
        assert_eq!(order(&list, &nodes), []);
    }
}
