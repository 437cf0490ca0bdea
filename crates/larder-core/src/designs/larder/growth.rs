//! Lists that grow by a part of their length.
//!
//! A vector that doubles has up to half of its RAM unused. A longer list is copied more often here,
//! at eight moves an element in the mean.

/// The part by which a full list grows: one in so many, and some.
const GROWTH_SHARE: usize = 8;
const GROWTH_MIN: usize = 64;

/// Adds an element. Returns its position.
pub fn push<T>(list: &mut Vec<T>, element: T) -> usize {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / GROWTH_SHARE + GROWTH_MIN);
    }
    list.push(element);
    list.len() - 1
}
