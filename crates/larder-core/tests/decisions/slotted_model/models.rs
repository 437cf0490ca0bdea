//! The designs with equal slots as plain lists, written from the papers' pseudo-code.
//!
//! Lists are least recent first, searched from end to end, and changed by taking out and putting
//! in.
//!
//! It does not number slots: a model knows the contents on flash, not their places.

use std::collections::BTreeSet;

use larder_core::slotted::Orphans;

/// An address with its content and dirty state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub lba: u64,
    pub content: u8,
    pub is_dirty: bool,
}

/// The data part of an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    #[default]
    Nothing,
    Map,
    Store {
        evicts: bool,
    },
}

/// A model's result of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub was_cached: bool,
    pub step: Step,
    pub freed: usize,
    pub destaged: BTreeSet<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub mapped: u64,
    pub dirty: u64,
    pub live: u64,
    pub stale: u64,
    pub ghosts: u64,
}

pub trait Model {
    /// Returns the content of `lba`, if it is on flash.
    fn cached(&self, lba: u64) -> Option<u8>;
    fn read(&mut self, lba: u64) -> Option<Outcome>;
    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) -> Outcome;
    fn forget(&mut self, lba: u64) -> Outcome;
    fn clean(&mut self, lba: u64);
    fn counts(&self) -> Counts;
}

fn position(list: &[Entry], lba: u64) -> Option<usize> {
    list.iter().position(|entry| entry.lba == lba)
}

fn take(list: &mut Vec<Entry>, lba: u64) -> Option<Entry> {
    position(list, lba).map(|at| list.remove(at))
}

fn note(entry: Entry, outcome: &mut Outcome) {
    if entry.is_dirty {
        assert!(outcome.destaged.insert(entry.lba), "{} is destaged twice", entry.lba);
    }
}

pub struct LruModel {
    pub chunks: usize,
    pub list: Vec<Entry>,
}

impl Model for LruModel {
    fn cached(&self, lba: u64) -> Option<u8> {
        position(&self.list, lba).map(|at| self.list[at].content)
    }

    fn read(&mut self, lba: u64) -> Option<Outcome> {
        let entry = take(&mut self.list, lba)?;
        self.list.push(entry);
        Some(Outcome { was_cached: true, step: Step::Map, ..Outcome::default() })
    }

    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) -> Outcome {
        let mut outcome = Outcome { was_cached: take(&mut self.list, lba).is_some(), ..Outcome::default() };
        let evicts = self.list.len() == self.chunks;
        if evicts {
            note(self.list.remove(0), &mut outcome);
        }
        self.list.push(Entry { lba, content, is_dirty });
        outcome.step = Step::Store { evicts };
        outcome
    }

    fn forget(&mut self, lba: u64) -> Outcome {
        match take(&mut self.list, lba) {
            Some(_) => Outcome { was_cached: true, freed: 1, ..Outcome::default() },
            None => Outcome::default(),
        }
    }

    fn clean(&mut self, lba: u64) {
        self.list.iter_mut().filter(|entry| entry.lba == lba).for_each(|entry| entry.is_dirty = false);
    }

    fn counts(&self) -> Counts {
        let mapped = self.list.len() as u64;
        let dirty = self.list.iter().filter(|entry| entry.is_dirty).count() as u64;
        Counts { mapped, dirty, live: mapped, stale: 0, ghosts: 0 }
    }
}

/// Megiddo and Modha's Figure 4.
pub struct ArcModel {
    pub chunks: usize,
    pub p: f64,
    pub t1: Vec<Entry>,
    pub t2: Vec<Entry>,
    pub b1: Vec<u64>,
    pub b2: Vec<u64>,
}

impl ArcModel {
    pub fn new(chunks: usize) -> Self {
        ArcModel { chunks, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] }
    }

    fn replace(&mut self, lba: u64, outcome: &mut Outcome) {
        if self.t1.len() + self.t2.len() < self.chunks {
            return;
        }
        let size = self.t1.len() as f64;
        if size >= 1.0 && ((self.b2.contains(&lba) && size == self.p) || size > self.p) {
            let left = self.t1.remove(0);
            self.b1.push(left.lba);
            note(left, outcome);
        } else {
            let left = self.t2.remove(0);
            self.b2.push(left.lba);
            note(left, outcome);
        }
    }
}

impl Model for ArcModel {
    fn cached(&self, lba: u64) -> Option<u8> {
        self.t1.iter().chain(&self.t2).find(|entry| entry.lba == lba).map(|entry| entry.content)
    }

    fn read(&mut self, lba: u64) -> Option<Outcome> {
        let entry = take(&mut self.t1, lba).or_else(|| take(&mut self.t2, lba))?;
        self.t2.push(entry);
        Some(Outcome { was_cached: true, step: Step::Map, ..Outcome::default() })
    }

    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) -> Outcome {
        let mut outcome = Outcome::default();
        let entry = Entry { lba, content, is_dirty };
        if take(&mut self.t1, lba).or_else(|| take(&mut self.t2, lba)).is_some() {
            self.t2.push(entry);
            return Outcome { was_cached: true, step: Step::Store { evicts: false }, ..outcome };
        }
        outcome.step = Step::Store { evicts: self.t1.len() + self.t2.len() == self.chunks };
        if self.b1.contains(&lba) {
            let delta = (self.b2.len() as f64 / self.b1.len() as f64).max(1.0);
            self.p = (self.p + delta).min(self.chunks as f64);
            self.replace(lba, &mut outcome);
            self.b1.retain(|&other| other != lba);
            self.t2.push(entry);
        } else if self.b2.contains(&lba) {
            let delta = (self.b1.len() as f64 / self.b2.len() as f64).max(1.0);
            self.p = (self.p - delta).max(0.0);
            self.replace(lba, &mut outcome);
            self.b2.retain(|&other| other != lba);
            self.t2.push(entry);
        } else {
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == self.chunks {
                if self.t1.len() < self.chunks {
                    self.b1.remove(0);
                    self.replace(lba, &mut outcome);
                } else {
                    note(self.t1.remove(0), &mut outcome);
                }
            } else if all >= self.chunks {
                if all == 2 * self.chunks {
                    self.b2.remove(0);
                }
                self.replace(lba, &mut outcome);
            }
            self.t1.push(entry);
        }
        outcome
    }

    fn forget(&mut self, lba: u64) -> Outcome {
        self.b1.retain(|&other| other != lba);
        self.b2.retain(|&other| other != lba);
        match take(&mut self.t1, lba).or_else(|| take(&mut self.t2, lba)) {
            Some(_) => Outcome { was_cached: true, freed: 1, ..Outcome::default() },
            None => Outcome::default(),
        }
    }

    fn clean(&mut self, lba: u64) {
        let all = self.t1.iter_mut().chain(&mut self.t2);
        all.filter(|entry| entry.lba == lba).for_each(|entry| entry.is_dirty = false);
    }

    fn counts(&self) -> Counts {
        let all: Vec<_> = self.t1.iter().chain(&self.t2).collect();
        let mapped = all.len() as u64;
        let dirty = all.iter().filter(|entry| entry.is_dirty).count() as u64;
        Counts { mapped, dirty, live: mapped, stale: 0, ghosts: (self.b1.len() + self.b2.len()) as u64 }
    }
}

/// Destages every dirty address of `content`, which leaves.
fn displace<'a>(entries: impl Iterator<Item = &'a mut Entry>, content: u8, outcome: &mut Outcome) {
    for entry in entries.filter(|entry| entry.content == content) {
        note(*entry, outcome);
        entry.is_dirty = false;
    }
}

fn shared_counts(entries: &[Entry], data: &[u8]) -> Counts {
    let mapped = entries.iter().filter(|entry| data.contains(&entry.content)).count() as u64;
    let live = data.iter().filter(|&&content| entries.iter().any(|entry| entry.content == content)).count() as u64;
    Counts {
        mapped,
        dirty: entries.iter().filter(|entry| entry.is_dirty).count() as u64,
        live,
        stale: data.len() as u64 - live,
        ghosts: entries.len() as u64 - mapped,
    }
}

/// CacheDedup's Algorithm 1.
pub struct DLruModel {
    pub chunks: usize,
    pub addresses: usize,
    /// M.
    pub metadata: Vec<Entry>,
    /// D.
    pub data: Vec<u8>,
    pub orphans: Orphans,
}

/// Forgets contents without an entry, if the test asks for that.
fn drop_orphans<'a>(
    orphans: Orphans,
    data: &mut Vec<u8>,
    entries: impl Iterator<Item = &'a Entry> + Clone,
    outcome: &mut Outcome,
) {
    if orphans == Orphans::Forget {
        let before = data.len();
        data.retain(|&content| entries.clone().any(|entry| entry.content == content));
        outcome.freed += before - data.len();
    }
}

impl DLruModel {
    fn request(&mut self, entry: Entry) -> Outcome {
        let mut outcome = Outcome { was_cached: self.cached(entry.lba).is_some(), ..Outcome::default() };
        // INSERT-USING-LRU(x, M, m)
        if take(&mut self.metadata, entry.lba).is_none() && self.metadata.len() == self.addresses {
            note(self.metadata.remove(0), &mut outcome);
        }
        self.metadata.push(entry);
        drop_orphans(self.orphans, &mut self.data, self.metadata.iter(), &mut outcome);
        // INSERT-USING-LRU(f(x), D, d)
        let known = self.data.iter().position(|&content| content == entry.content);
        outcome.step = match known {
            Some(at) => {
                self.data.remove(at);
                Step::Map
            }
            None => {
                let evicts = self.data.len() == self.chunks;
                if evicts {
                    let left = self.data.remove(0);
                    displace(self.metadata.iter_mut(), left, &mut outcome);
                }
                Step::Store { evicts }
            }
        };
        self.data.push(entry.content);
        outcome
    }
}

impl Model for DLruModel {
    fn cached(&self, lba: u64) -> Option<u8> {
        let content = self.metadata[position(&self.metadata, lba)?].content;
        self.data.contains(&content).then_some(content)
    }

    fn read(&mut self, lba: u64) -> Option<Outcome> {
        self.cached(lba)?;
        let entry = self.metadata[position(&self.metadata, lba)?];
        Some(self.request(entry))
    }

    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) -> Outcome {
        self.request(Entry { lba, content, is_dirty })
    }

    fn forget(&mut self, lba: u64) -> Outcome {
        let was_cached = self.cached(lba).is_some();
        let mut freed = 0;
        if let Some(left) = take(&mut self.metadata, lba)
            && was_cached
            && self.metadata.iter().all(|entry| entry.content != left.content)
        {
            self.data.retain(|&content| content != left.content);
            freed = 1;
        }
        Outcome { was_cached, freed, ..Outcome::default() }
    }

    fn clean(&mut self, lba: u64) {
        self.metadata.iter_mut().filter(|entry| entry.lba == lba).for_each(|entry| entry.is_dirty = false);
    }

    fn counts(&self) -> Counts {
        shared_counts(&self.metadata, &self.data)
    }
}

/// CacheDedup's Algorithms 2 and 3, with the departures that `d_arc.rs` lists.
pub struct DArcModel {
    pub chunks: usize,
    pub extra: usize,
    pub p: f64,
    /// T1, T2, B1, B2, B3.
    pub lists: [Vec<Entry>; 5],
    /// D, least recently used first.
    pub data: Vec<u8>,
    pub orphans: Orphans,
}

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;
const B3: usize = 4;

impl DArcModel {
    pub fn new(chunks: usize, extra: usize, orphans: Orphans) -> Self {
        DArcModel { chunks, extra, p: 0.0, lists: Default::default(), data: vec![], orphans }
    }

    fn list_of(&self, lba: u64) -> Option<usize> {
        (0..5).find(|&list| position(&self.lists[list], lba).is_some())
    }

    fn len(&self, list: usize) -> usize {
        self.lists[list].len()
    }

    fn move_lru(&mut self, from: usize, to: usize) {
        let entry = self.lists[from].remove(0);
        self.lists[to].push(entry);
    }

    fn request(&mut self, new: Entry) -> Outcome {
        let mut outcome = Outcome { was_cached: self.cached(new.lba).is_some(), ..Outcome::default() };
        let x = new.lba;
        let found = self.list_of(x);
        // f(x) comes from the request.
        for entry in self.lists.iter_mut().flatten().filter(|entry| entry.lba == x) {
            *entry = new;
        }
        self.drop_orphans(new, &mut outcome);
        let to = match found {
            Some(T1 | T2) => {
                self.move_mru(new, T2);
                self.insert_in_data_cache(new, &mut outcome);
                T2
            }
            Some(list @ (B1 | B2)) => {
                let (b1, b2) = (self.len(B1) as f64, self.len(B2) as f64);
                if list == B1 {
                    self.p = (self.p + (b2 / b1).max(1.0)).min(self.chunks as f64);
                } else {
                    self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                }
                self.insert_in_data_cache(new, &mut outcome);
                self.check_metadata_cache(new, &mut outcome);
                T2
            }
            Some(_) => {
                self.insert_in_data_cache(new, &mut outcome);
                T1
            }
            None => {
                self.insert_in_data_cache(new, &mut outcome);
                self.check_metadata_cache(new, &mut outcome);
                T1
            }
        };
        self.move_mru(new, to);
        self.data.retain(|&content| content != new.content);
        self.data.push(new.content);
        outcome
    }

    fn move_mru(&mut self, entry: Entry, to: usize) {
        self.lists.iter_mut().for_each(|list| list.retain(|other| other.lba != entry.lba));
        self.lists[to].push(entry);
    }

    fn insert_in_data_cache(&mut self, new: Entry, outcome: &mut Outcome) {
        if self.data.contains(&new.content) {
            outcome.step = Step::Map;
            return;
        }
        let evicts = self.data.len() == self.chunks;
        if evicts {
            let at = loop {
                let has_reference =
                    |content: u8| [T1, T2].iter().any(|&t| self.lists[t].iter().any(|e| e.content == content));
                match self.data.iter().position(|&content| !has_reference(content)) {
                    Some(at) => break at,
                    None => self.manage_metadata_cache(new.lba),
                }
            };
            let left = self.data.remove(at);
            displace(self.lists.iter_mut().flatten(), left, outcome);
        }
        self.data.push(new.content);
        outcome.step = Step::Store { evicts };
    }

    fn check_metadata_cache(&mut self, new: Entry, outcome: &mut Outcome) {
        let x = new.lba;
        if self.len(T1) + self.len(T2) + self.len(B3) == self.chunks + self.extra {
            if self.len(B3) == 0 {
                self.manage_metadata_cache(x);
            }
            if self.len(B3) > 0 && self.lists[B3][0].lba != x {
                note(self.lists[B3].remove(0), outcome);
            }
            self.drop_orphans(new, outcome);
        }
    }

    fn drop_orphans(&mut self, new: Entry, outcome: &mut Outcome) {
        let entries = self.lists.iter().flatten().chain(std::iter::once(&new));
        drop_orphans(self.orphans, &mut self.data, entries, outcome);
    }

    fn manage_metadata_cache(&mut self, x: u64) {
        if self.len(T1) + self.len(B1) >= self.chunks {
            if self.len(T1) < self.chunks {
                self.move_lru(B1, B3);
                self.replace_in_metadata_cache(x);
            } else if self.len(B1) > 0 {
                self.move_lru(B1, B3);
                self.move_lru(T1, B1);
            } else {
                self.move_lru(T1, B3);
            }
        } else {
            if self.len(B1) + self.len(B2) >= self.chunks {
                self.move_lru(B2, B3);
            }
            self.replace_in_metadata_cache(x);
        }
    }

    fn replace_in_metadata_cache(&mut self, x: u64) {
        let t1 = self.len(T1) as f64;
        let x_in_b2 = self.list_of(x) == Some(B2);
        if t1 > 0.0 && (t1 > self.p || (x_in_b2 && t1 == self.p)) {
            self.move_lru(T1, B1);
        } else {
            self.move_lru(T2, B2);
        }
    }
}

impl Model for DArcModel {
    fn cached(&self, lba: u64) -> Option<u8> {
        let content = self.lists.iter().flatten().find(|entry| entry.lba == lba)?.content;
        self.data.contains(&content).then_some(content)
    }

    fn read(&mut self, lba: u64) -> Option<Outcome> {
        self.cached(lba)?;
        let entry = *self.lists.iter().flatten().find(|entry| entry.lba == lba)?;
        Some(self.request(entry))
    }

    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) -> Outcome {
        self.request(Entry { lba, content, is_dirty })
    }

    fn forget(&mut self, lba: u64) -> Outcome {
        let cached = self.cached(lba);
        self.lists.iter_mut().for_each(|list| list.retain(|entry| entry.lba != lba));
        let is_gone = |content: u8| self.lists.iter().flatten().all(|entry| entry.content != content);
        let freed = usize::from(cached.is_some_and(is_gone));
        if freed > 0 {
            self.data.retain(|&content| Some(content) != cached);
        }
        Outcome { was_cached: cached.is_some(), freed, ..Outcome::default() }
    }

    fn clean(&mut self, lba: u64) {
        let all = self.lists.iter_mut().flatten();
        all.filter(|entry| entry.lba == lba).for_each(|entry| entry.is_dirty = false);
    }

    fn counts(&self) -> Counts {
        let all: Vec<Entry> = self.lists.iter().flatten().copied().collect();
        shared_counts(&all, &self.data)
    }
}
