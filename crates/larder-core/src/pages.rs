//! An ordered map in sorted pages of a fixed size, which counts its allocated bytes.
//!
//! "Index RAM" must be the real size of the structures, which a `BTreeMap` does not tell.
//!
//! Keys lie in pages. Pages, each with a bound below its keys, lie in groups, and the groups are
//! one short list. A search is three binary searches. An insertion moves the keys of a page, at
//! times those of a group, and never more.
//!
//! Invariants: no page and no group is empty. Two neighbouring pages of a group have more than
//! [`MERGED_MAX`] of [`PAGE_KEYS`] keys together. Two neighbouring groups have more than
//! [`GROUP_MERGED_MAX`] of [`GROUP_PAGES`] pages. The RAM for a key is therefore bounded
//! ([`key_bytes_max`]). Bounds ascend.
//!
//! It does not give references to values; they are copied.

/// Keys of a page at most.
const PAGE_KEYS: usize = 32;
/// Keys up to which two pages become one: few enough that a further key rarely splits it.
const MERGED_MAX: usize = 28;
/// Pages of a group at most.
const GROUP_PAGES: usize = 128;
/// Pages up to which two groups become one.
const GROUP_MERGED_MAX: usize = 96;
/// Factor by which the capacity of the list of groups may exceed its length.
const LIST_SLACK: usize = 4;

/// Returns the maximum bytes for each key in a map of many, with values of `value_bytes`.
///
/// Each page and each group is then as empty as it may be.
pub const fn key_bytes_max(value_bytes: usize) -> usize {
    let page = size_of::<usize>() + PAGE_KEYS * (size_of::<u64>() + value_bytes);
    let group = GROUP_PAGES * size_of::<PageSlot<()>>() + LIST_SLACK * size_of::<Group<()>>();
    let pages_min = GROUP_MERGED_MAX / 2;
    let keys_min = MERGED_MAX / 2;
    (page + group.div_ceil(pages_min)).div_ceil(keys_min)
}

struct Page<V> {
    len: usize,
    keys: [u64; PAGE_KEYS],
    values: [V; PAGE_KEYS],
}

struct PageSlot<V> {
    /// Lower bound of the page's keys, and above all keys of the pages before.
    from: u64,
    page: Box<Page<V>>,
}

struct Group<V> {
    /// Bound of the first page.
    from: u64,
    /// Never empty, and never grown beyond its first capacity.
    pages: Vec<PageSlot<V>>,
}

/// The position of a key, present or not.
#[derive(Clone, Copy)]
struct KeyPlace {
    group: usize,
    page: usize,
    /// The first key of the page that is not less.
    key: usize,
}

/// The map.
pub struct PageMap<V> {
    groups: Vec<Group<V>>,
    len: usize,
    pages: usize,
}

impl<V> Default for PageMap<V> {
    fn default() -> Self {
        PageMap { groups: Vec::new(), len: 0, pages: 0 }
    }
}

impl<V: Copy + Default> Page<V> {
    fn new() -> Box<Self> {
        Box::new(Page { len: 0, keys: [0; PAGE_KEYS], values: [V::default(); PAGE_KEYS] })
    }

    fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    fn insert(&mut self, at: usize, key: u64, value: V) {
        self.keys.copy_within(at..self.len, at + 1);
        self.values.copy_within(at..self.len, at + 1);
        (self.keys[at], self.values[at]) = (key, value);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> V {
        let value = self.values[at];
        self.keys.copy_within(at + 1..self.len, at);
        self.values.copy_within(at + 1..self.len, at);
        self.len -= 1;
        value
    }

    /// Moves the entries of `other` from `first` on to the end of this page.
    fn take_from(&mut self, other: &mut Self, first: usize) {
        let count = other.len - first;
        self.keys[self.len..self.len + count].copy_from_slice(&other.keys[first..other.len]);
        self.values[self.len..self.len + count].copy_from_slice(&other.values[first..other.len]);
        self.len += count;
        other.len = first;
    }
}

impl<V: Copy + Default> Group<V> {
    fn new(pages: impl Iterator<Item = PageSlot<V>>) -> Self {
        let mut group = Group { from: 0, pages: Vec::with_capacity(GROUP_PAGES) };
        group.pages.extend(pages);
        group.note_from();
        group
    }

    fn note_from(&mut self) {
        self.from = self.pages.first().map_or(0, |slot| slot.from);
    }
}

impl<V: Copy + Default> PageMap<V> {
    /// Counts the keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that the map has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group<V>>()
            + self.groups.len() * GROUP_PAGES * size_of::<PageSlot<V>>()
            + self.pages * size_of::<Page<V>>()
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: u64) -> Option<V> {
        let at = self.locate(key)?;
        let page = self.page(at);
        (page.keys().get(at.key) == Some(&key)).then(|| page.values[at.key])
    }

    /// Returns the last key that is not greater than `key`, with its value.
    pub fn at_or_before(&self, key: u64) -> Option<(u64, V)> {
        let mut at = self.locate(key)?;
        let page = self.page(at);
        if page.keys().get(at.key) == Some(&key) {
            return Some((key, page.values[at.key]));
        }
        if at.key == 0 {
            // Pages are never empty, so the previous page has it.
            at = match (at.group, at.page) {
                (0, 0) => return None,
                (group, 0) => KeyPlace { group: group - 1, page: self.groups[group - 1].pages.len() - 1, ..at },
                (_, page) => KeyPlace { page: page - 1, ..at },
            };
            at.key = self.page(at).len;
        }
        let page = self.page(at);
        Some((page.keys[at.key - 1], page.values[at.key - 1]))
    }

    /// Returns the first key that is not less than `key`, with its value.
    pub fn at_or_after(&self, key: u64) -> Option<(u64, V)> {
        self.iter_from(key).next()
    }

    /// Returns the keys from `key` on, ascending, with their values.
    pub fn iter_from(&self, key: u64) -> impl Iterator<Item = (u64, V)> + '_ {
        let at = self.locate(key).unwrap_or(KeyPlace { group: 0, page: 0, key: 0 });
        let (pages, groups) = match self.groups.get(at.group..) {
            Some([group, groups @ ..]) => (&group.pages[at.page..], groups),
            _ => Default::default(),
        };
        From { keys: &[], values: &[], skip: at.key, pages: pages.iter(), groups: groups.iter() }
    }

    /// Sets the value of `key`; returns the old one.
    pub fn insert(&mut self, key: u64, value: V) -> Option<V> {
        let Some(at) = self.locate(key) else {
            self.groups.push(Group::new(std::iter::once(PageSlot { from: key, page: Page::new() })));
            self.pages += 1;
            self.insert_at(KeyPlace { group: 0, page: 0, key: 0 }, key, value);
            return None;
        };
        let page = &mut self.groups[at.group].pages[at.page].page;
        if page.keys().get(at.key) == Some(&key) {
            return Some(std::mem::replace(&mut page.values[at.key], value));
        }
        if page.len < PAGE_KEYS {
            self.insert_at(at, key, value);
            return None;
        }
        let halves = self.split(at, key);
        if let Some(at) = self.locate(key) {
            self.insert_at(at, key, value);
        }
        for from in halves {
            if let Some(at) = self.locate(from) {
                self.tidy(at.group, at.page);
            }
        }
        None
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let at = self.locate(key)?;
        let page = &mut self.groups[at.group].pages[at.page].page;
        if page.keys().get(at.key) != Some(&key) {
            return None;
        }
        let value = page.remove(at.key);
        let left = page.len;
        self.len -= 1;
        if left == 0 {
            self.remove_page(at.group, at.page);
        } else if left <= MERGED_MAX {
            self.tidy(at.group, at.page);
        }
        Some(value)
    }

    fn page(&self, at: KeyPlace) -> &Page<V> {
        &self.groups[at.group].pages[at.page].page
    }

    /// Returns the position of `key`, present or not; `None` in a map without pages.
    fn locate(&self, key: u64) -> Option<KeyPlace> {
        let (last_group, last_page) = self.groups.last().and_then(|group| Some((group, group.pages.last()?)))?;
        // Keys in ascending order need no search.
        let (group, page) = if last_page.from <= key {
            (self.groups.len() - 1, last_group.pages.len() - 1)
        } else {
            let group = self.groups.partition_point(|group| group.from <= key).saturating_sub(1);
            (group, self.groups[group].pages.partition_point(|slot| slot.from <= key).saturating_sub(1))
        };
        let pages = &self.groups[group].pages;
        let key = pages[page].page.keys().partition_point(|&k| k < key);
        Some(KeyPlace { group, page, key })
    }

    fn insert_at(&mut self, at: KeyPlace, key: u64, value: V) {
        let group = &mut self.groups[at.group];
        let slot = &mut group.pages[at.page];
        slot.page.insert(at.key, key, value);
        slot.from = slot.from.min(key);
        group.from = group.from.min(key);
        self.len += 1;
    }

    /// Splits the full page at `at` for `key`; returns both bounds.
    ///
    /// An appended key begins a new page, so that ascending keys fill their pages.
    fn split(&mut self, mut at: KeyPlace, key: u64) -> [u64; 2] {
        if self.groups[at.group].pages.len() == GROUP_PAGES {
            let behind = Group::new(self.groups[at.group].pages.drain(GROUP_PAGES / 2..));
            self.groups.insert(at.group + 1, behind);
            self.tidy_groups(at.group + 1);
            self.tidy_groups(at.group);
            at = self.locate(key).unwrap_or(at);
        }
        let pages = &mut self.groups[at.group].pages;
        let mut new = Page::new();
        let from = if at.key == PAGE_KEYS {
            key
        } else {
            new.take_from(&mut pages[at.page].page, PAGE_KEYS / 2);
            new.keys[0]
        };
        let halves = [pages[at.page].from.min(key), from];
        pages.insert(at.page + 1, PageSlot { from, page: new });
        self.pages += 1;
        halves
    }

    /// Joins a page with a neighbour if both are small.
    fn tidy(&mut self, group: usize, page: usize) {
        let pages = &mut self.groups[group].pages;
        let len = |i: usize| pages.get(i).map_or(PAGE_KEYS, |slot| slot.page.len);
        let Some(left) = small_pair(page, len, MERGED_MAX) else { return };
        let (before, after) = pages.split_at_mut(left + 1);
        before[left].page.take_from(&mut after[0].page, 0);
        self.remove_page(group, left + 1);
    }

    /// Joins groups as [`PageMap::tidy`] joins pages; the pages that then meet may be small, too.
    fn tidy_groups(&mut self, group: usize) {
        let len = |i: usize| self.groups.get(i).map_or(GROUP_PAGES, |group| group.pages.len());
        if let Some(left) = small_pair(group, len, GROUP_MERGED_MAX) {
            let behind = self.remove_group(left + 1);
            let meet = self.groups[left].pages.len();
            self.groups[left].pages.extend(behind.pages);
            self.tidy(left, meet);
        }
    }

    /// Removes a page without keys.
    fn remove_page(&mut self, group: usize, page: usize) {
        self.groups[group].pages.remove(page);
        self.groups[group].note_from();
        self.pages -= 1;
        match self.groups[group].pages.len() {
            0 => drop(self.remove_group(group)),
            1..=GROUP_MERGED_MAX => self.tidy_groups(group),
            _ => {}
        }
    }

    fn remove_group(&mut self, group: usize) -> Group<V> {
        let removed = self.groups.remove(group);
        if self.groups.len() * LIST_SLACK < self.groups.capacity() {
            self.groups.shrink_to(self.groups.len() * 2);
        }
        removed
    }

    /// Panics if an invariant does not hold. For tests.
    pub fn check(&self) {
        let slots: Vec<_> = self.groups.iter().flat_map(|group| &group.pages).collect();
        assert_eq!(slots.len(), self.pages);
        assert_eq!(slots.iter().map(|slot| slot.page.len).sum::<usize>(), self.len);
        assert!(slots.is_sorted_by(|a, b| a.page.keys().last() < Some(&b.from)));
        assert!(slots.iter().all(|slot| slot.page.keys().first().is_some_and(|&first| slot.from <= first)));
        assert!(slots.iter().all(|slot| slot.page.keys().is_sorted_by(|a, b| a < b)));
        for group in &self.groups {
            assert_eq!((group.pages.capacity(), group.from), (GROUP_PAGES, group.pages[0].from));
            assert!(group.pages.windows(2).all(|two| two[0].page.len + two[1].page.len > MERGED_MAX));
        }
        assert!(self.groups.windows(2).all(|two| two[0].pages.len() + two[1].pages.len() > GROUP_MERGED_MAX));
        if self.groups.len() > 16 {
            let most = key_bytes_max(size_of::<V>()) * self.len;
            assert!(self.ram_bytes() <= most, "{} keys take {} of {most} bytes", self.len, self.ram_bytes());
        }
    }
}

/// The rest of the map: of a page, of a group, of all groups.
struct From<'a, V> {
    keys: &'a [u64],
    values: &'a [V],
    /// Keys to skip in the next page.
    skip: usize,
    pages: std::slice::Iter<'a, PageSlot<V>>,
    groups: std::slice::Iter<'a, Group<V>>,
}

impl<V: Copy> Iterator for From<'_, V> {
    type Item = (u64, V);

    #[inline]
    fn next(&mut self) -> Option<(u64, V)> {
        loop {
            if let ([key, keys @ ..], [value, values @ ..]) = (self.keys, self.values) {
                (self.keys, self.values) = (keys, values);
                return Some((*key, *value));
            }
            if let Some(PageSlot { page, .. }) = self.pages.next() {
                let skip = std::mem::take(&mut self.skip);
                (self.keys, self.values) = (&page.keys[skip..page.len], &page.values[skip..page.len]);
            } else {
                self.pages = self.groups.next()?.pages.iter();
            }
        }
    }
}

/// Returns the left one of `i` and a neighbour with at most `merged_max` together. A missing
/// neighbour is full.
fn small_pair(i: usize, len: impl Fn(usize) -> usize, merged_max: usize) -> Option<usize> {
    if len(i) + len(i + 1) <= merged_max {
        Some(i)
    } else {
        i.checked_sub(1).filter(|&before| len(before) + len(i) <= merged_max)
    }
}
