//! The metadata log as a ring of frames: the next frame's place, and the room until a checkpoint.
//!
//! Invariants: a frame never straddles the end of the region. `used_bytes` counts from the log
//! start of the newest durable checkpoint, skipped ends included, and never passes the size of the
//! region.
//!
//! It does not write: [`flush`](crate::flush) does.

/// Positions in the log region.
#[derive(Clone, Copy, Debug)]
pub struct LogArea {
    region_bytes: u64,
    head: u64,
    used_bytes: u64,
    frame_seq: u64,
}

/// A position to which a checkpoint can refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Byte offset in the region.
    pub offset: u64,
    /// Sequence number of the frame there.
    pub frame_seq: u64,
    /// Bytes in use at that moment, from which a checkpoint's freed bytes are computed.
    pub used_bytes: u64,
}

impl LogArea {
    /// Returns a log whose next frame is `frame_seq` at `head`, with `used_bytes` in use.
    pub fn new(region_bytes: u64, head: u64, used_bytes: u64, frame_seq: u64) -> Self {
        LogArea { region_bytes, head, used_bytes, frame_seq }
    }

    /// Returns the newest frame that is durable; 0 for none.
    pub fn durable_frame(&self) -> u64 {
        self.frame_seq.saturating_sub(1)
    }

    /// Returns the place of the next frame.
    pub fn position(&self) -> LogPosition {
        LogPosition { offset: self.head, frame_seq: self.frame_seq, used_bytes: self.used_bytes }
    }

    /// Returns the offset for a frame of `bytes`, if there is room. It does not take the room yet.
    pub fn place(&self, bytes: u64) -> Option<u64> {
        let (offset, skipped) = self.fit(bytes);
        (self.used_bytes + skipped + bytes <= self.region_bytes).then_some(offset)
    }

    /// Moves the next frame to the next multiple of `sector_bytes`. So no sector with a frame is
    /// written again. The bytes in between stay unused until a checkpoint frees them.
    pub fn continue_in_sectors_of(&mut self, sector_bytes: u64) {
        let boundary = self.head.next_multiple_of(sector_bytes.max(1)).min(self.region_bytes);
        self.used_bytes += boundary - self.head;
        self.head = boundary;
    }

    /// Returns the bytes from the place of the next frame to the end of the region.
    pub fn before_end(&self) -> u64 {
        self.region_bytes - self.head
    }

    /// Moves on after a frame of `bytes` that is durable.
    pub fn advance(&mut self, bytes: u64) {
        let (offset, skipped) = self.fit(bytes);
        self.head = offset + bytes;
        self.used_bytes += skipped + bytes;
        self.frame_seq += 1;
    }

    fn fit(&self, bytes: u64) -> (u64, u64) {
        if self.head + bytes <= self.region_bytes { (self.head, 0) } else { (0, self.region_bytes - self.head) }
    }

    /// Frees the room before `position`, which a checkpoint covers.
    pub fn free_before(&mut self, position: &LogPosition) {
        self.used_bytes -= position.used_bytes;
    }

    /// Returns the share of the log in use, in percent.
    pub fn used_percent(&self) -> u64 {
        self.used_bytes * 100 / self.region_bytes.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_goes_on_at_the_boundary_of_a_coarser_sector() {
        let mut log = LogArea::new(3 * 4096, 0, 0, 1);
        log.advance(512);
        log.continue_in_sectors_of(4096);
        assert_eq!((log.position().offset, log.position().used_bytes, log.position().frame_seq), (4096, 4096, 2));
        log.continue_in_sectors_of(4096);
        assert_eq!(log.position().offset, 4096, "a boundary is one already");
        log.advance(4096 + 512);
        log.continue_in_sectors_of(4096);
        assert_eq!((log.before_end(), log.place(4096)), (0, None), "the end of the region is a boundary");
        let position = log.position();
        log.free_before(&position);
        assert_eq!(log.place(4096), Some(0));
    }

    #[test]
    fn frames_wrap_and_room_is_counted() {
        let mut log = LogArea::new(10_000, 0, 0, 1);
        for _ in 0..2 {
            assert_eq!(log.place(4000), Some(log.position().offset));
            log.advance(4000);
        }
        assert_eq!(log.place(4000), None, "2,000 bytes are left at the end");
        let position = log.position();
        log.free_before(&position);
        assert_eq!(log.place(4000), Some(0));
        log.advance(4000);
        assert_eq!((log.position().offset, log.position().frame_seq, log.used_percent()), (4000, 4, 60));
    }
}
