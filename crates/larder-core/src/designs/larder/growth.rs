//! Lists that grow by a part of their length.
//!
//! A vector that doubles has up to half of its RAM unused. A longer list is copied more often here,
//! at eight moves an element in the mean.

/// The part by which a full list grows: one in so many, and some.
const GROWTH_SHARE: usize = 8;
const GROWTH_MIN: usize = 64;

/// Makes room for `more` elements.
pub fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.len() + more > list.capacity() {
        list.reserve_exact(more.max(list.len() / GROWTH_SHARE + GROWTH_MIN));
    }
}

/// Adds an element. Returns its position.
pub fn push<T>(list: &mut Vec<T>, element: T) -> usize {
    reserve(list, 1);
    list.push(element);
    list.len() - 1
}
