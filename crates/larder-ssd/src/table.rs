//! Memory for a drive's large tables, in huge pages if the system has some, and prefetches.
//!
//! Role: a drive's tables have hundreds of megabytes and are looked at anywhere. In pages of 4 KiB
//! most looks miss the processor's translation cache, too. [`filled`] and [`zeroed`] ask the kernel
//! to back a vector's memory with huge pages (`madvise(2)`, `MADV_HUGEPAGE`) before it is filled.
//! If `/sys/kernel/mm/transparent_hugepage/enabled` says `never`, the request has no effect. A look
//! at such a table still waits for memory, a tenth of a microsecond each. [`prefetch`] lets the
//! processor begin a look during other work, so that looks wait beside each other and not one after
//! the other.
//!
//! Invariants: nothing depends on the kernel's answer. The requests change the mapping of memory
//! and the time of its fetch, never its content.
//!
//! It does not help tables that grow, which lie elsewhere each time.

/// Bytes of a huge page, the smallest of today's processors.
///
/// Tables below two of them ask for nothing: they may hold none whole.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Makes a vector of so many equal entries.
pub fn filled<T: Clone>(entry: T, entries: usize) -> Vec<T> {
    let mut table = Vec::with_capacity(entries);
    ask_for_huge_pages(table.spare_capacity_mut());
    table.resize(entries, entry);
    table
}

/// Makes a vector of so many zeros. Memory of unwritten ones is not taken as yet.
pub fn zeroed<T: Clone + Default>(entries: usize) -> Vec<T> {
    // The allocator has zeroed memory from the kernel, which is not there before it is touched.
    let mut table = vec![T::default(); entries];
    ask_for_huge_pages(&mut table);
    table
}

/// Prefetches the entry at `at`, if there is one.
#[inline]
pub fn prefetch<T>(table: &[T], at: usize) {
    if let Some(entry) = table.get(at) {
        prefetch_entry(entry);
    }
}

/// Prefetches this entry: the processor begins to fetch it, and goes on.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch_entry<T>(entry: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint, changes nothing that a program sees and faults nowhere; the
    // entry is borrowed besides.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
}

/// Does nothing: elsewhere stable Rust has no such hint.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch_entry<T>(_: &T) {}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages<T>(memory: &mut [T]) {
    // The kernel's range begins and ends at one of its pages, of which 64 KiB are a multiple on all
    // architectures.
    const ALIGNED: usize = 64 << 10;
    let bytes = size_of_val(memory);
    if bytes < 2 * HUGE_PAGE_BYTES {
        return;
    }
    let memory = memory.as_mut_ptr().cast::<u8>();
    let before = memory.align_offset(ALIGNED);
    if before >= bytes {
        return;
    }
    let within = (bytes - before) / ALIGNED * ALIGNED;
    // SAFETY: the range lies within memory that is borrowed here alone, and MADV_HUGEPAGE changes
    // no byte of it. A refusal is ignored: pages are as small as before.
    unsafe { libc::madvise(memory.add(before).cast(), within, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages<T>(_: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small tables, one that is no multiple of anything, and some with whole huge pages within.
    #[test]
    fn a_table_has_what_was_asked_for() {
        for entries in [0, 1, 1000, HUGE_PAGE_BYTES / 4 - 1, (9 << 20) / 4 + 3] {
            assert!(filled(7_u32, entries).into_iter().eq(std::iter::repeat_n(7, entries)), "{entries} entries");
            let mut zeros = zeroed::<u32>(entries);
            assert!(zeros.iter().all(|zero| *zero == 0) && zeros.len() == entries, "{entries} zeros");
            zeros.iter_mut().for_each(|zero| *zero = 1);
            assert_eq!(zeros.iter().sum::<u32>() as usize, entries);
        }
    }
}
