//! The table of condition names, each with its advice for the operator.
//!
//! Invariants: a name does not change. Each is in `docs/OPERATING.md`, where a test looks for it.
//!
//! It does not describe the event; the condition itself does.

/// The conditions by name, each with the operator's next step.
pub const ADVICE: &[(&str, &str)] = &[
    ("checkpoint_failing", "see the sentence: the flash, or in write-through the origin, must take writes again"),
    ("corrupt_records", "check the flash: larder verify, once it is not served"),
    ("detached", "make a new cache with larder create --force"),
    (
        "dirty_data_lost",
        "write these chunks anew, or restore them from a backup; then check the flash with larder verify",
    ),
    ("emptied_behind_fence", "nothing: the cache fills again"),
    ("fence_refused", "serve with --state DIR, a folder on another disk that can be written"),
    ("fence_up", "mend or replace the flash, then serve anew"),
    ("flash_failed", "keep it running, run larder flush, then end it and mend or replace the flash"),
    ("flash_failing", "nothing yet: see whether it heals; the kernel's log says more about the device"),
    ("flash_full", "make room on the flash's file system, or raise its quota"),
    ("flash_gone", "bring the flash back, then serve anew"),
    (
        "flash_hangs",
        "see to the flash: the kernel's log, its driver, file system or network; requests that wait go on by themselves",
    ),
    ("flash_read_errors", "look at the device: the kernel's log, its SMART data"),
    ("flash_renamed", "name its new place to each command, or rename it back"),
    ("flash_unlinked", "end the server in order, and make a new cache"),
    ("full_of_dirty_data", "wait for destaging, or see why the origin takes nothing"),
    ("full_of_trimmed_runs", "wait for destaging, or see why the origin takes no zeroes"),
    ("origin_changed", "nothing, if the action in the sentence was right"),
    ("origin_discard_keeps_data", "nothing: trims cost writes of zeroes"),
    ("origin_doubtful", "repeat the last writes, or check the data with its users' own means"),
    (
        "origin_failing",
        "mend the origin: it is asked again by itself, and writes are tried again by destaging or by clients",
    ),
    ("origin_full", "make room where the origin is, or raise its quota: it is tried again by itself"),
    ("origin_gone", "bring the origin back: it is connected to again by itself"),
    ("origin_hangs", "see to the origin's server, disk or network: requests that wait go on by themselves"),
    ("origin_refused", "do as the sentence says, then serve"),
    ("origin_renamed", "rename it back, or name its new place with --origin at the next start"),
    ("origin_truncated", "bring back the data behind its end, from a backup"),
    ("origin_unlinked", "copy the volume to another place before the server ends"),
    ("origin_unmarked", "keep other programs from the origin until the next opening"),
    ("read_only_features", "use the program that wrote to this flash last, or a newer one"),
    ("state_unknown", "do as the sentence says: bring the state file back, or name its directory with --state"),
    ("superblock_repaired", "nothing: both are whole"),
    ("superblock_unnoted", "see the sentence: the state directory must take writes again"),
    ("switching_mode", "nothing: larder set is under way"),
    ("too_many_files", "raise the limit of open files (ulimit -n, LimitNOFILE=), or end other processes"),
    ("undurable_data", "run larder flush; overwrite the data that it cannot save"),
    ("wear_budget_spent", "wait, or raise the budget with --wear at the next start"),
    ("wear_saving", "nothing: it ends by itself; or raise the budget with --wear at the next start"),
];

/// Returns the advice for the condition of this name.
pub fn advice(name: &str) -> &'static str {
    ADVICE.iter().find(|(known, _)| *known == name).map_or("see larder status", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_in_the_manual_and_in_order() {
        let manual = include_str!("../../../docs/OPERATING.md");
        let untold: Vec<&str> =
            ADVICE.iter().map(|&(name, _)| name).filter(|name| !manual.contains(&format!("`{name}`"))).collect();
        assert!(untold.is_empty(), "docs/OPERATING.md does not tell what these are: {untold:?}");
        assert!(ADVICE.is_sorted_by_key(|&(name, _)| name));
        assert_eq!(advice("flash_full"), "make room on the flash's file system, or raise its quota");
    }
}
