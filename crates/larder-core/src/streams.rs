//! Sequential streams, found across interleaved requests, and the read-ahead of each.
//!
//! A stream is a run of reads in which each begins at the end of an earlier one. The measure is the
//! count of consecutive bytes accessed (Nitro §3, metric M11 of Li et al., HotStorage 2014). A
//! stream past a threshold is sequential, and its read-ahead doubles with each request up to a
//! maximum.
//!
//! Invariants: at most [`STREAMS_MAX`] streams; the one that was idle longest goes first.
//!
//! It does not read, or keep data.

/// Maximum number of streams.
pub const STREAMS_MAX: usize = 64;
/// Consecutive bytes after which a stream counts as sequential.
pub const SEQUENTIAL_BYTES_MIN: u64 = 32 << 10;
/// First read-ahead of a stream, in bytes.
pub const PREFETCH_BYTES_FIRST: u64 = 16 << 10;
/// Largest read-ahead, in bytes.
pub const PREFETCH_BYTES_MAX: u64 = 128 << 10;

#[derive(Clone, Copy)]
struct Stream {
    consecutive: u64,
    prefetched_to: u64,
    window: u64,
    used: u64,
}

/// A range to read ahead, in bytes of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Byte offset.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The streams.
#[derive(Default)]
pub struct Streams {
    /// The start of each stream's next read, apart from the rest for the search.
    next: Vec<u64>,
    streams: Vec<Stream>,
    clock: u64,
}

impl Streams {
    /// Returns whether a read at `offset` continues a stream.
    #[inline]
    pub fn go_on_at(&self, offset: u64) -> bool {
        self.next.contains(&offset)
    }

    /// Notes a read of `len` bytes at `offset`. Returns the range to read ahead now, and whether
    /// the read is part of a sequential stream.
    pub fn observe(&mut self, offset: u64, len: u64, device_bytes: u64) -> (Option<Prefetch>, bool) {
        self.clock += 1;
        let end = offset + len;
        let found = self.next.iter().position(|&next| next == offset);
        let Some((at, stream)) = found.and_then(|at| Some((at, self.streams.get_mut(at)?))) else {
            self.start(end, len);
            return (None, false);
        };
        self.next[at] = end;
        stream.consecutive += len;
        stream.used = self.clock;
        if stream.consecutive < SEQUENTIAL_BYTES_MIN {
            return (None, false);
        }
        stream.prefetched_to = stream.prefetched_to.max(end);
        // A top-up only when less than half of the window is left keeps requests to the origin
        // long.
        if stream.prefetched_to - end > stream.window / 2 {
            return (None, true);
        }
        stream.window = (stream.window * 2).clamp(PREFETCH_BYTES_FIRST, PREFETCH_BYTES_MAX);
        let from = stream.prefetched_to;
        let to = (end + stream.window).min(device_bytes);
        if to <= from {
            return (None, true);
        }
        stream.prefetched_to = to;
        (Some(Prefetch { offset: from, len: to - from }), true)
    }

    fn start(&mut self, next: u64, len: u64) {
        let stream = Stream { consecutive: len, prefetched_to: 0, window: 0, used: self.clock };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            self.next.push(next);
        } else if let Some((idle, place)) = self.streams.iter_mut().zip(&mut self.next).min_by_key(|(s, _)| s.used) {
            (*idle, *place) = (stream, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_found_and_grow() {
        let mut streams = Streams::default();
        let mut longest = [0; 3];
        for i in 0..64_u64 {
            for (lane, longest) in longest.iter_mut().enumerate() {
                let offset = ((lane as u64) << 30) | (i * 4096);
                if let (Some(p), sequential) = streams.observe(offset, 4096, 1 << 40) {
                    assert!(sequential && p.offset >= offset + 4096);
                    *longest = p.len.max(*longest);
                }
            }
            streams.observe(i * 7_777_777 * 4096 + (1 << 39), 4096, 1 << 40);
        }
        assert!(longest.iter().all(|&len| len > PREFETCH_BYTES_MAX / 2 && len <= PREFETCH_BYTES_MAX), "{longest:?}");
    }

    #[test]
    fn a_stream_goes_on_where_its_last_read_ended() {
        let mut streams = Streams::default();
        for i in 0..2 * STREAMS_MAX as u64 {
            streams.observe(i << 30, 4096, 1 << 40);
            streams.observe((i << 30) + 4096, 4096, 1 << 40);
            assert!(streams.go_on_at((i << 30) + 8192));
            assert!(!streams.go_on_at((i << 30) + 4096) && !streams.go_on_at(i << 30));
        }
        let followed = (0..2 * STREAMS_MAX as u64).filter(|i| streams.go_on_at((i << 30) + 8192)).count();
        assert_eq!(followed, STREAMS_MAX, "those that were idle longest went");
    }

    #[test]
    fn random_reads_prefetch_nothing_and_the_end_is_respected() {
        let mut streams = Streams::default();
        for i in 0..1000_u64 {
            assert_eq!(streams.observe(i * 7919 % 5000 * 65536, 4096, 1 << 40).0, None);
        }
        for i in 0..32_u64 {
            if let (Some(p), _) = streams.observe((1 << 40) + i * 4096, 4096, (1 << 40) + (128 << 10)) {
                assert!(p.offset + p.len <= (1 << 40) + (128 << 10));
            }
        }
    }
}
