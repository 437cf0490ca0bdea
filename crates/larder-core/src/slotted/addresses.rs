//! Addresses on LRU lists: a slab of nodes, a hash table of their numbers, and lists through the
//! nodes.
//!
//! Each node is on exactly one of the lists, which the node names, and carries a payload of the
//! design.
//!
//! Invariants: at most `nodes_max` nodes, and at most one for each address. A node's number stays
//! while it lives; the last freed number is used next. Slab and table grow as they fill, so a large
//! cache with little use costs little.
//!
//! It leaves evictions to the design.

use crate::{
    design::Use,
    lba_index::GONE_THROUGH,
    recency::{Linked, NONE, Neighbours, Recency},
    slotted::ram::table_bytes_max,
    types::{Fingerprint, Lba, mix},
    walk::Walk,
};
use hashbrown::HashTable;

/// The address in [`Node::tagged`].
const LBA_MASK: u64 = (1 << 56) - 1;
const LIST_SHIFT: u32 = 56;
const LIST_MASK: u64 = 7;
const DIRTY: u64 = 1 << 63;
/// Nodes of the slab at the beginning.
const NODES_FIRST: usize = 64;

struct Node<P> {
    /// Address (56 bits), list (3 bits from there), dirty (the top one).
    tagged: u64,
    /// For a free node, the older one is the next free one.
    neighbours: Neighbours,
    payload: P,
}

impl<P> Linked for Node<P> {
    #[inline]
    fn neighbours(&self) -> Neighbours {
        self.neighbours
    }

    #[inline]
    fn neighbours_mut(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }
}

#[derive(Clone, Copy, Default)]
struct List {
    nodes: Recency,
    len: u32,
}

/// See the module.
pub struct Addresses<P, const LISTS: usize> {
    table: HashTable<u32>,
    nodes: Vec<Node<P>>,
    free: u32,
    lists: [List; LISTS],
    nodes_max: usize,
    /// Number of dirty nodes.
    dirty: u64,
    /// A walk along one of the lists.
    walk: Walk,
}

impl<P: Copy, const LISTS: usize> Addresses<P, LISTS> {
    /// Maximum bytes of RAM for each of many nodes: itself, and the entries of a table just
    /// doubled.
    pub(crate) const NODE_BYTES_MAX: usize = size_of::<Node<P>>() + 24;

    /// Creates empty lists with room for `nodes_max` (less than 2^32).
    pub fn new(nodes_max: usize) -> Self {
        debug_assert!(nodes_max < NONE as usize && LISTS as u64 <= LIST_MASK + 1);
        Addresses {
            table: HashTable::new(),
            nodes: Vec::new(),
            free: NONE,
            lists: [List::default(); LISTS],
            nodes_max,
            dirty: 0,
            walk: Walk::default(),
        }
    }

    /// Counts the addresses on `list`.
    #[inline]
    pub fn len(&self, list: usize) -> usize {
        self.lists[list].len as usize
    }

    /// Returns the least recent node of `list`.
    #[inline]
    pub fn oldest(&self, list: usize) -> Option<u32> {
        let oldest = self.lists[list].nodes.oldest();
        (oldest != NONE).then_some(oldest)
    }

    /// Returns the node of `lba`.
    #[inline]
    pub fn find(&self, lba: Lba) -> Option<u32> {
        let is_it = |&i: &u32| self.nodes[i as usize].tagged & LBA_MASK == lba.0;
        self.table.find(mix(lba.0), is_it).copied()
    }

    #[inline]
    pub(crate) fn lba(&self, i: u32) -> Lba {
        Lba(self.nodes[i as usize].tagged & LBA_MASK)
    }

    #[inline]
    pub(crate) fn list(&self, i: u32) -> usize {
        (self.nodes[i as usize].tagged >> LIST_SHIFT & LIST_MASK) as usize
    }

    #[inline]
    pub(crate) fn is_dirty(&self, i: u32) -> bool {
        self.nodes[i as usize].tagged & DIRTY != 0
    }

    /// Marks `i` dirty or clean; returns whether that changed.
    #[inline]
    pub(crate) fn set_dirty(&mut self, i: u32, is_dirty: bool) -> bool {
        if self.is_dirty(i) == is_dirty {
            return false;
        }
        self.nodes[i as usize].tagged ^= DIRTY;
        self.dirty = if is_dirty { self.dirty + 1 } else { self.dirty - 1 };
        true
    }

    /// Returns whether `lba` is there and dirty.
    pub(crate) fn is_dirty_at(&self, lba: Lba) -> bool {
        self.find(lba).is_some_and(|i| self.is_dirty(i))
    }

    /// Marks `lba` clean; returns whether it was dirty.
    pub(crate) fn clean(&mut self, lba: Lba) -> bool {
        self.find(lba).is_some_and(|i| self.set_dirty(i, false))
    }

    /// Counts the dirty nodes.
    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty
    }

    #[inline]
    pub(crate) fn payload(&self, i: u32) -> P {
        self.nodes[i as usize].payload
    }

    #[inline]
    pub(crate) fn payload_mut(&mut self, i: u32) -> &mut P {
        &mut self.nodes[i as usize].payload
    }

    /// Puts a new `lba` on `list`, as the most recent, and clean; returns its node.
    pub fn insert(&mut self, lba: Lba, list: usize, payload: P) -> u32 {
        debug_assert!(lba.0 <= LBA_MASK);
        let tagged = lba.0 & LBA_MASK | (list as u64) << LIST_SHIFT;
        let node = Node { tagged, neighbours: Neighbours::ALONE, payload };
        let i = self.free;
        let i = match self.nodes.get_mut(i as usize) {
            Some(unused) => {
                self.free = unused.neighbours.older;
                *unused = node;
                i
            }
            None => self.push(node),
        };
        let nodes = &self.nodes;
        self.table.insert_unique(mix(lba.0), i, |&j| mix(nodes[j as usize].tagged & LBA_MASK));
        self.link(i, list);
        i
    }

    fn push(&mut self, node: Node<P>) -> u32 {
        let len = self.nodes.len();
        debug_assert!(len < self.nodes_max);
        if len == self.nodes.capacity() {
            // Twice as many, but never more than the maximum.
            self.nodes.reserve_exact(len.max(NODES_FIRST).min(self.nodes_max.saturating_sub(len)).max(1));
        }
        self.nodes.push(node);
        len as u32
    }

    /// Makes `i` the most recent of `list`.
    #[inline]
    pub fn move_to(&mut self, i: u32, list: usize) {
        if self.lists[list].nodes.newest() == i {
            return;
        }
        self.unlink(i);
        let tagged = &mut self.nodes[i as usize].tagged;
        *tagged = *tagged & !(LIST_MASK << LIST_SHIFT) | (list as u64) << LIST_SHIFT;
        self.link(i, list);
    }

    /// Reads the memory of moves of these nodes ahead, so that many waits for memory become one.
    pub(crate) fn warm(&self, uses: &[Use]) {
        let node = |i: u32| self.nodes.get(i as usize);
        let neighbours = |hit: &Use| node(hit.number).map_or(Neighbours::ALONE, |node| node.neighbours);
        let read = uses.iter().map(neighbours).fold(0, |sum, it| sum ^ it.newer ^ it.older);
        std::hint::black_box(read);
        let beside = uses.iter().map(neighbours).flat_map(|it| [node(it.newer), node(it.older)]);
        std::hint::black_box(beside.flatten().fold(0, |sum, node| sum ^ node.neighbours.newer));
    }

    /// Removes `i`.
    pub fn remove(&mut self, i: u32) {
        self.set_dirty(i, false);
        if let Ok(found) = self.table.find_entry(mix(self.lba(i).0), |&other| other == i) {
            found.remove();
        }
        self.unlink(i);
        self.nodes[i as usize].neighbours.older = std::mem::replace(&mut self.free, i);
    }

    #[inline]
    fn unlink(&mut self, i: u32) {
        let list = self.list(i);
        let left = self.lists[list].nodes.unlink(&mut self.nodes[..], i);
        self.walk.unlinks(i, left.newer);
        self.lists[list].len -= 1;
    }

    #[inline]
    fn link(&mut self, i: u32, list: usize) {
        self.lists[list].nodes.link(&mut self.nodes[..], i);
        self.lists[list].len += 1;
    }

    /// Returns the nodes of `list`, least recent first.
    pub(crate) fn on_list(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let known = |i: u32| (i != NONE).then_some(i);
        std::iter::successors(known(self.lists[list].nodes.oldest()), move |&i| {
            known(self.nodes[i as usize].neighbours.newer)
        })
    }

    /// Begins a walk along `list`, least recent first. At most one walk runs.
    pub(crate) fn begin_walk(&mut self, list: usize) {
        self.walk.begin(self.lists[list].nodes.oldest(), self.len(list));
    }

    /// Returns the next nodes of the walk; `None` at its end.
    pub(crate) fn walk(&mut self) -> Option<Vec<u32>> {
        let nodes = &self.nodes;
        self.walk.next(|i| nodes[i as usize].neighbours.newer)
    }

    /// Shows the next addresses of the walk, without content; returns whether it goes on.
    pub(crate) fn show_some(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool {
        let seen = self.walk();
        seen.iter().flatten().for_each(|&i| see(self.lba(i), &Fingerprint([0; 16])));
        seen.is_some()
    }

    /// Returns the numbers of all nodes, in no useful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().copied()
    }

    /// Returns the addresses in a run, ascending.
    pub(crate) fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        let end = Lba(first.0.saturating_add(count));
        if count <= self.table.len() as u64 / GONE_THROUGH {
            return (first.0..end.0).map(Lba).filter(|&lba| self.find(lba).is_some()).collect();
        }
        let all = self.iter().map(|i| self.lba(i));
        let mut inside: Vec<Lba> = all.filter(|lba| (first..end).contains(lba)).collect();
        inside.sort_unstable();
        inside
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.table.allocation_size() + self.nodes.capacity() * size_of::<Node<P>>() + self.walk.ram_bytes()
    }

    /// Returns its maximum bytes.
    pub fn ram_bytes_max(&self) -> usize {
        let walk = Walk::ram_bytes_max(self.nodes_max);
        table_bytes_max::<u32>(self.nodes_max) + self.nodes_max * size_of::<Node<P>>() + walk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<P: Copy, const LISTS: usize>(addresses: &Addresses<P, LISTS>, list: usize) -> Vec<u64> {
        let mut found = Vec::new();
        for i in addresses.on_list(list) {
            assert_eq!(addresses.list(i), list);
            found.push(addresses.lba(i).0);
        }
        assert_eq!(found.len(), addresses.len(list));
        found
    }

    #[test]
    fn lists_keep_their_order_and_tags_do_not_touch_addresses() {
        let mut addresses: Addresses<u8, 2> = Addresses::new(5);
        for lba in [1, 2, 3, LBA_MASK] {
            let i = addresses.insert(Lba(lba), 0, lba as u8);
            addresses.set_dirty(i, lba == 2);
        }
        let find = |addresses: &Addresses<u8, 2>, lba| addresses.find(Lba(lba)).unwrap();
        addresses.move_to(find(&addresses, 2), 1);
        addresses.move_to(find(&addresses, 1), 0);
        assert_eq!((order(&addresses, 0), order(&addresses, 1)), (vec![3, LBA_MASK, 1], vec![2]));
        assert!(addresses.is_dirty(find(&addresses, 2)) && !addresses.is_dirty(find(&addresses, LBA_MASK)));
        let three = find(&addresses, 3);
        addresses.remove(three);
        assert_eq!(addresses.find(Lba(3)), None);
        assert_eq!(addresses.insert(Lba(9), 1, 9), three, "the freed number is used next");
        addresses.insert(Lba(10), 1, 10);
        assert_eq!(order(&addresses, 1), [2, 9, 10]);
        for count in [2, 1 << 50] {
            assert_eq!(addresses.in_run(Lba(9), count), [Lba(9), Lba(10)]);
        }
        assert_eq!(addresses.nodes.capacity(), 5, "no more than there can be");
        assert_eq!(addresses.payload(find(&addresses, LBA_MASK)), 255);
    }

    #[test]
    fn nodes_are_small() {
        assert_eq!(size_of::<Node<()>>(), 16);
        assert_eq!(size_of::<Node<u32>>(), 24);
    }
}
