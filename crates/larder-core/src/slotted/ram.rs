//! Maximum RAM of the structures of a design with equal slots, for any use of it.
//!
//! Invariants: a structure never allocates more than its maximum here for its number of elements.
//!
//! It does not count the present allocation.

/// Bytes of a control group of hashbrown, behind each table.
const GROUP_BYTES: usize = 16;

/// Returns the bytes of a hash table of `T` with at most `len` elements at a time. A full table
/// grows while more than half of its room is taken, and is otherwise cleaned of removed elements.
/// An eighth of it stays free.
pub(crate) fn table_bytes_max<T>(len: usize) -> usize {
    let mut buckets = 4;
    while len > room_of(buckets) / 2 {
        buckets *= 2;
    }
    (buckets * size_of::<T>()).next_multiple_of(GROUP_BYTES) + buckets + GROUP_BYTES
}

fn room_of(buckets: usize) -> usize {
    if buckets < 8 { buckets - 1 } else { buckets / 8 * 7 }
}

/// Returns the bytes of a vector of `T`, of 2 to 1024 bytes each, that grows to `len` one by one.
pub fn vec_bytes_max<T>(len: usize) -> usize {
    if len == 0 { 0 } else { len.next_power_of_two().max(4) * size_of::<T>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashTable;

    #[test]
    fn no_table_and_no_vector_takes_more() {
        for len in [1usize, 2, 3, 7, 8, 14, 28, 29, 100, 448, 449, 1000] {
            let mut table: HashTable<u32> = HashTable::new();
            let mut vector: Vec<u32> = Vec::new();
            let hash = |value: &u32| crate::types::mix(u64::from(*value));
            for value in 0..20 * len as u32 + 100 {
                if table.len() == len {
                    let oldest = value - len as u32;
                    table.find_entry(hash(&oldest), |other| *other == oldest).expect("is there").remove();
                }
                table.insert_unique(hash(&value), value, hash);
                if vector.len() < len {
                    vector.push(value);
                }
                assert!(table.allocation_size() <= table_bytes_max::<u32>(len), "a table of {len}");
                assert!(vector.capacity() * 4 <= vec_bytes_max::<u32>(len), "a vector of {len}");
            }
        }
    }
}
