//! The place where a log may go on after a repair.
//!
//! Invariants: no frame that is or was on the flash can be taken for a part of the new log.
//!
//! It does not write.

use super::{frames, window::Window};
use larder_device::BlockDevice;
use larder_format::{LogStart, Superblock};

/// Returns a start for a new log that no frame in the log now can be taken for a part of.
///
/// `named_frame` is the newest frame that the superblock or a slot names.
pub async fn fresh_log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    end: (LogStart, u64),
    named_frame: u64,
) -> (LogStart, u64) {
    let layout = &superblock.layout;
    let mut window = Window::new(flash, layout.log_offset, layout.log_offset + layout.log_bytes);
    let lying = frames::scan(&mut window, superblock).await;
    let lying_frames = lying.whole.iter().map(|frame| frame.header.start.frame_seq);
    let newest = lying_frames.chain([end.0.frame_seq, named_frame]).max().unwrap_or(0);
    let last_entry = lying.whole.iter().map(|frame| frame.header.entry_seq_next()).max().unwrap_or(0).max(end.1);
    // Unreadable frames may be readable later: the start is beyond the most that may lie there.
    let frames_max = layout.log_bytes / u64::from(layout.sector_bytes.max(1)) + 1;
    let start = LogStart { offset_in_log: end.0.offset_in_log, frame_seq: newest.saturating_add(frames_max) };
    (start, last_entry.saturating_add(layout.log_bytes))
}
