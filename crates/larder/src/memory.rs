//! The memory that this process may still take.
//!
//! Three limits bound it: the memory of the machine, the limit of its control group, and its own
//! limit.
//!
//! It does not reserve any: another process may take it a moment later.

use crate::{
    error::{Failure, Outcome},
    flash::Flash,
    size::human,
};
use larder_engine::recover::tables_bytes;
use std::{fs, path::Path};

/// Largest tables of an unserved flash, bytes of RAM, for which a status counts the content.
///
/// A larger count takes seconds.
const COUNTED_TABLES_BYTES_MAX: u64 = 1 << 30;

/// Refuses a flash whose tables need more memory than is available.
///
/// The caller asks before it opens anything: an allocation that fails ends the process.
///
/// # Errors
/// A sentence with both sizes.
pub fn refuse_too_large(flash: &Flash) -> Outcome {
    let Flash { path, superblock, device, .. } = flash;
    // Any other fault of the flash has a sentence of its own, before any table is made.
    let is_whole = device.info().size_bytes >= superblock.layout.end();
    let Some(needed) = tables_bytes(superblock).ok().filter(|_| is_whole) else { return Ok(()) };
    match available_bytes() {
        Some(available) if needed > available => Err(Failure::failed(format_args!(
            "{} has {} slots, whose tables take {} of memory, and {} are available: open it on a machine with more, or free some",
            path.display(),
            superblock.layout.slot_count,
            human(needed),
            human(available)
        ))),
        _ => Ok(()),
    }
}

/// Returns the reason why a status does not count an unserved flash's content; `None` if it counts.
pub fn why_not_counted(flash: &Flash) -> Option<String> {
    let needed = tables_bytes(&flash.superblock).ok()?;
    let is_affordable = needed <= COUNTED_TABLES_BYTES_MAX && available_bytes().is_none_or(|bytes| needed <= bytes / 2);
    (!is_affordable).then(|| {
        format!(
            "the content of this flash is not counted, for its tables take {} of memory: ask while it is served, or see `larder verify`",
            human(needed)
        )
    })
}

/// Returns the bytes of memory that are available; `None` if the system does not say.
pub fn available_bytes() -> Option<u64> {
    [of_machine(), of_control_groups(), of_limit()].into_iter().flatten().min()
}

fn of_machine() -> Option<u64> {
    available_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the memory that the control group of this process, and those above it, leave.
fn of_control_groups() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let groups = root.join(group);
    let left = |group: &Path| {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        left_of(&read("memory.max")?, &read("memory.current")?, &read("memory.stat").unwrap_or_default())
    };
    groups.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

/// Returns the rest of a limit.
///
/// The system gives pages of inactive files back on demand, so they count as free.
fn left_of(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let unused = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(unused)))
}

/// Returns the rest of the limit on this process's address space (`ulimit -v`).
fn of_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().next()?.parse().ok()?;
    // SAFETY: a plain call.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(limit.rlim_cur.saturating_sub(pages.saturating_mul(page_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(available_of("MemTotal: 10 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_of("MemAvailable: much\n"), None);
        assert_eq!(left_of("max\n", "5\n", ""), None);
        assert_eq!(left_of("1000\n", "700\n", "anon 1\ninactive_file 200\n"), Some(500));
        assert_eq!(left_of("1000\n", "1700\n", ""), Some(0));
        assert!(available_bytes().is_some_and(|bytes| bytes > 0), "on Linux one of them tells");
    }
}
