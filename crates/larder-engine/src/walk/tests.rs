//! The walk through a log against one that reads a frame at a time. The logs have random frames,
//! which wrap, tear and lose.

use super::*;
use crate::{CreateOptions, create};
use larder_device::{BlockDevice, IoBuf, WriteFlags, driver::block_on, ram::RamDevice, rng::Rng};
use larder_format::{
    FrameStart, decode_frame,
    log::{encode_frame, entries_that_fit},
    peek_frame,
};

/// A log of random frames on a flash of its own.
struct Log {
    flash: RamDevice,
    superblock: Superblock,
    /// Offset and size of each frame, in the order of writing.
    frames: Vec<(u64, u64)>,
}

const ENTRY_SEQ: u64 = 1000;

/// Returns a log whose frames, of up to `entries_max` entries, begin anywhere and fill a share of
/// it.
fn log(rng: &mut Rng, percent: std::ops::RangeInclusive<u64>, entries_max: usize) -> Log {
    let (start, percent) = (rng.below(1001), percent.start() + rng.below(percent.end() - percent.start() + 1));
    // A large flash, whose metadata alone is in use.
    let flash = RamDevice::new("flash", 2 << 30, 4096);
    let options = CreateOptions { flash_uuid: [7; 16], hash_key: [9; 32], ..CreateOptions::default() };
    block_on(create(&flash, 8 << 30, &options)).expect("created");
    let (mut superblock, _) = block_on(crate::superblock::read(&flash)).expect("a superblock");
    superblock.clean_shutdown = false;
    let layout = superblock.layout;
    assert!(layout.log_bytes > 9 * READ_BYTES, "more than is read ahead: {}", layout.log_bytes);
    superblock.log_start = LogStart { offset_in_log: layout.log_bytes * start / 1000 / 4096 * 4096, frame_seq: 50 };
    superblock.entry_seq_next = ENTRY_SEQ;
    let mut area = crate::log_area::LogArea::new(layout.log_bytes, superblock.log_start.offset_in_log, 0, 50);
    let (mut entry_seq, mut previous_crc, mut frames) = (ENTRY_SEQ, 0, Vec::new());
    loop {
        let count = 1 + rng.index(entries_max.min(entries_that_fit(1 << 20)));
        let entries: Vec<LogEntry> =
            (0..count).map(|i| LogEntry::MapZero { lba: entry_seq + i as u64, dirty: rng.chance(1, 2) }).collect();
        let position = area.position();
        let start = FrameStart {
            flash_tag: superblock.flash_tag(),
            frame_seq: position.frame_seq,
            first_entry_seq: entry_seq,
            durable_frame_seq: position.frame_seq - 1,
            previous_crc,
        };
        let frame = encode_frame(&start, &entries, layout.sector_bytes).expect("it fits");
        let Some(at) = area.place(frame.len() as u64).filter(|_| area.used_percent() < percent) else { break };
        block_on(flash.write(layout.log_offset + at, IoBuf::copy_of(&frame).freeze(), WriteFlags::default()))
            .expect("written");
        area.advance(frame.len() as u64);
        previous_crc = larder_format::log::frame_crc(&frame);
        entry_seq += count as u64;
        frames.push((at, frame.len() as u64));
    }
    Log { flash, superblock, frames }
}

impl Log {
    fn break_frame(&self, number: usize) {
        let (at, bytes) = self.frames[number];
        self.break_bytes(at, bytes);
    }

    fn break_bytes(&self, at: u64, bytes: u64) {
        let broken = IoBuf::copy_of(&vec![0x5a; bytes as usize]).freeze();
        block_on(self.flash.write(self.superblock.layout.log_offset + at, broken, WriteFlags::default()))
            .expect("written");
    }

    fn start(&self) -> (LogStart, u64) {
        (self.superblock.log_start, self.superblock.entry_seq_next)
    }

    /// Returns the end of the log, found frame by frame.
    fn plainly(&self) -> (LogEnd, Vec<u64>) {
        let (mut expected, mut at) = (self.start(), self.superblock.log_start.offset_in_log);
        let mut end =
            LogEnd { next_frame_seq: 50, next_entry_seq: ENTRY_SEQ, next_offset_in_log: at, ..LogEnd::default() };
        let mut seen = Vec::new();
        let mut previous: Option<FrameHeader> = None;
        loop {
            let found = [at, 0].into_iter().find_map(|at| {
                let layout = &self.superblock.layout;
                let tag = self.superblock.flash_tag();
                let read = |bytes: u64| {
                    let fits = at + bytes <= layout.log_bytes;
                    fits.then(|| block_on(self.flash.read(layout.log_offset + at, IoBuf::new(bytes as usize))).unwrap())
                };
                let header = peek_frame(&read(4096)?, tag).ok()?;
                let (header, entries) = decode_frame(&read(header.frame_bytes.into())?, tag).ok()?;
                let is_next = header.start.frame_seq == expected.0.frame_seq
                    && header.start.first_entry_seq == expected.1
                    && previous.is_none_or(|previous| header.follows(&previous));
                is_next.then_some((at, header, entries))
            });
            let Some((found_at, header, entries)) = found else { return (end, seen) };
            seen.push(found_at);
            end.frames += 1;
            end.entries += entries.len() as u64;
            end.bytes += u64::from(header.frame_bytes);
            end.next_frame_seq += 1;
            end.next_entry_seq = header.entry_seq_next();
            at = found_at + u64::from(header.frame_bytes);
            end.next_offset_in_log = at;
            expected = (LogStart { frame_seq: expected.0.frame_seq + 1, ..expected.0 }, header.entry_seq_next());
            previous = Some(header);
        }
    }

    /// Walks, compares, and searches behind the end.
    fn check(&self) -> (LogEnd, Option<(u64, u64)>) {
        let mut seen = Vec::new();
        let mut next_entry = ENTRY_SEQ;
        let mut walk = LogWalk::new(Reader::alone(&self.flash), &self.superblock, self.start());
        let end = block_on(walk.to_the_end(&mut |at, header, entries| {
            assert_eq!(header.start.first_entry_seq, next_entry);
            assert!(
                (next_entry..)
                    .zip(entries)
                    .all(|(lba, entry)| matches!(*entry, LogEntry::MapZero { lba: found, .. } if found == lba))
            );
            next_entry += entries.len() as u64;
            seen.push(at);
        }))
        .expect("read");
        assert_eq!((end, seen), self.plainly());
        (end, block_on(walk.lost_frame()).expect("searched"))
    }
}

fn each_seed(count: u64, test: impl Fn(&mut Rng)) {
    for seed in 1..=count {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut Rng::new(seed))));
        if let Err(panic) = told {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_whole_log_is_read_to_its_end_wherever_it_begins() {
    each_seed(24, |rng| {
        let entries_max = [60, 900, 17_000][rng.index(3)];
        let log = log(rng, 1..=100, entries_max);
        let (end, lost) = log.check();
        assert_eq!((end.frames, lost), (log.frames.len() as u64, None));
    });
}

#[test]
fn a_torn_frame_ends_the_log_and_a_lost_one_is_noticed() {
    each_seed(24, |rng| {
        let entries_max = [900, 17_000][rng.index(2)];
        let log = log(rng, 30..=100, entries_max);
        let last = log.frames.len() - 1;
        log.break_frame(last);
        assert_eq!(log.check(), (log.plainly().0, None), "what a crash leaves");
        let lost = rng.index(last - 1);
        log.break_frame(lost);
        let (end, found) = log.check();
        assert_eq!(end.frames, lost as u64);
        let (seq, at) = found.expect("later frames say that it was durable");
        assert!(seq > 50 + lost as u64, "{seq}");
        assert!(log.frames.iter().any(|frame| frame.0 == at));
    });
}

/// A frame that the log does not need has damage in one number of its header or in two neighbours.
/// It neither shows a false loss nor hides a real one.
#[test]
fn an_odd_frame_that_is_not_needed_shows_nothing_and_hides_nothing() {
    each_seed(12, |rng| {
        let log = log(rng, 40..=60, 900);
        let last = log.frames[log.frames.len() - 1];
        // Behind the end, as the rest of an earlier round.
        let at = (last.0 + last.1 + (1 << 20)).next_multiple_of(4096) % log.superblock.layout.log_bytes;
        let tag = log.superblock.flash_tag();
        let dead =
            FrameStart { flash_tag: tag, frame_seq: 20, first_entry_seq: 300, durable_frame_seq: 19, previous_crc: 5 };
        let put = |at: u64, start: &FrameStart| {
            let frame = encode_frame(start, &[LogEntry::MapZero { lba: 1, dirty: false }], 4096).expect("it fits");
            let at = log.superblock.layout.log_offset + at;
            block_on(log.flash.write(at, IoBuf::copy_of(&frame).freeze(), WriteFlags::default())).expect("written");
        };
        let rot = rng.next_u64() >> 8;
        for odd in [
            FrameStart { frame_seq: rot, ..dead },
            FrameStart { durable_frame_seq: rot, ..dead },
            FrameStart { first_entry_seq: rot, ..dead },
            FrameStart { frame_seq: rot, first_entry_seq: rot ^ 0xff, ..dead },
        ] {
            put(at, &odd);
            assert_eq!(log.check(), (log.plainly().0, None), "{odd:?}");
        }
        // Consistent numbers show a loss at any distance: the walk began at an old start.
        let far = 52 + log.superblock.layout.log_bytes / 512 + rng.below(1000);
        put(at, &FrameStart { frame_seq: far, durable_frame_seq: far - 1, first_entry_seq: far * 70, ..dead });
        assert_eq!(log.check().1, Some((far, at)));
        put(at, &FrameStart { frame_seq: rot, ..dead });
        // The last two frames: one has damage in its entries, one in the number that it names.
        let (frames, flash) = (&log.frames, &log.flash);
        let damage = |number: usize, byte: u64| {
            let sector = log.superblock.layout.log_offset + frames[number].0;
            let mut bytes = block_on(flash.read(sector, IoBuf::new(4096))).expect("read");
            bytes[byte as usize] ^= 0x40;
            block_on(flash.write(sector, bytes.freeze(), WriteFlags::default())).expect("written");
        };
        damage(frames.len() - 2, 70);
        damage(frames.len() - 1, 48);
        let (end, found) = log.check();
        assert_eq!(end.frames, frames.len() as u64 - 2);
        assert_eq!(found.map(|(_, at)| at), Some(frames[frames.len() - 1].0));
    });
}

#[test]
fn a_long_loss_is_noticed() {
    each_seed(6, |rng| {
        let log = log(rng, 95..=95, 900);
        let first = log.frames[0].0;
        // Longer than the read-ahead.
        let long = (READS_IN_FLIGHT as u64 + 3) * READ_BYTES;
        let region = log.superblock.layout.log_bytes;
        log.break_bytes(first, long.min(region - first));
        log.break_bytes(0, long.saturating_sub(region - first));
        let (end, found) = log.check();
        assert_eq!(end.frames, 0);
        assert!(found.is_some_and(|(seq, _)| seq > 50), "{found:?}");
    });
}

#[test]
fn a_start_that_is_no_place_is_an_empty_log() {
    let log = log(&mut Rng::new(3), 10..=10, 60);
    for offset_in_log in [log.superblock.layout.log_bytes, log.superblock.layout.log_bytes + 4096, u64::MAX] {
        let start = LogStart { offset_in_log, frame_seq: 7 };
        let mut walk = LogWalk::new(Reader::alone(&log.flash), &log.superblock, (start, 7));
        let end = block_on(walk.to_the_end(&mut |_, _, _| panic!("there is no such frame"))).expect("read");
        assert_eq!((end.frames, end.next_frame_seq), (0, 7));
        assert!(block_on(walk.lost_frame()).expect("searched").is_some(), "those there are count higher");
    }
}

#[test]
fn progress_is_never_behind_what_was_read() {
    let progress = Progress::default();
    assert_eq!((progress.bytes_read(), progress.bytes_to_read()), (0, 0));
    progress.expect(10);
    progress.advance(4);
    assert_eq!((progress.bytes_read(), progress.bytes_to_read()), (4, 10));
    progress.advance(8);
    assert_eq!(progress.bytes_to_read(), 12, "the log was longer than was foreseen");
    progress.finish();
    assert_eq!(progress.bytes_to_read(), progress.bytes_read());
}
