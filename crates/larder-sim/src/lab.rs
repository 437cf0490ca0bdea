//! One pass over a trace for many caches: each [`LabListener`] hears all of its requests, in order.
//!
//! Invariants: the requests of a listener do not depend on the number of other listeners or
//! threads. Memory beside the listeners' own is `QUEUE_BATCHES` batches for each thread.
//!
//! It does not read a file, or choose the replays.

use std::sync::{Arc, mpsc};

use larder_trace::{ChunkRequest, TraceResult};

use crate::{
    bound::{BoundCollector, BoundTraces, Zeroes},
    cache::{CacheRequest, Content},
    known_contents::{KnownContents, Seen},
    replay::Batches,
};

/// Batches that wait for a thread at most.
const QUEUE_BATCHES: usize = 16;

/// A listener to the requests of a trace.
pub trait LabListener: Send {
    /// Takes the next requests.
    fn take(&mut self, requests: &[CacheRequest]);
}

/// Reads all of `batches`, on this thread, for `listeners`, on `threads` others.
///
/// A single listener gets no other thread.
///
/// # Errors
/// The trace's first error. Listeners may have heard the requests before it.
pub fn broadcast<I: Iterator<Item = TraceResult<ChunkRequest>>>(
    batches: &mut Batches<I>,
    listeners: &mut [&mut dyn LabListener],
    threads: usize,
) -> TraceResult<()> {
    if let [listener] = listeners {
        return each(batches, |batch| listener.take(batch));
    }
    let threads = threads.clamp(1, listeners.len().max(1));
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        // Neighbours in the list go to different threads: they are often of one design, and so
        // equally slow.
        let mut shares: Vec<Vec<&mut &mut dyn LabListener>> = (0..threads).map(|_| Vec::new()).collect();
        for (at, listener) in listeners.iter_mut().enumerate() {
            if let Some(share) = shares.get_mut(at % threads) {
                share.push(listener);
            }
        }
        for mut share in shares {
            let (sender, receiver) = mpsc::sync_channel::<Arc<[CacheRequest]>>(QUEUE_BATCHES);
            senders.push(sender);
            scope.spawn(move || {
                for batch in receiver {
                    share.iter_mut().for_each(|listener| listener.take(&batch));
                }
            });
        }
        each(batches, |batch| {
            let batch: Arc<[CacheRequest]> = batch.into();
            // A thread that is gone has panicked, and the scope passes that on.
            senders.iter().for_each(|sender| drop(sender.send(batch.clone())));
        })
    })
}

fn each<I: Iterator<Item = TraceResult<ChunkRequest>>>(
    batches: &mut Batches<I>,
    mut take: impl FnMut(&[CacheRequest]),
) -> TraceResult<()> {
    loop {
        let batch = batches.next_batch()?;
        if batch.is_empty() {
            return Ok(());
        }
        take(batch);
    }
}

/// The result of collecting a trace for the bound.
pub enum Collected {
    /// The trace, for bounds of any capacity.
    Trace(BoundTraces),
    /// The trace was too long.
    TooLong,
    /// The trace contradicts itself: so many of its reads found another content than their chunk's.
    ///
    /// Designs hit by address and the bound goes by content, so the trace has no bound.
    Contradicted(u64),
}

/// Collects the requests for the offline bound, up to a number of them.
///
/// Requests of the warm-up bring their content and are not counted, so that the bound is of the
/// caches' own reads. A contradiction in the warm-up counts, since caches take their contents from
/// there.
pub struct BoundListener {
    /// `None` once collecting has ended.
    collector: Option<BoundCollector>,
    held: KnownContents,
    contradictions: u64,
    is_too_long: bool,
    warming: u64,
    left: u64,
}

impl BoundListener {
    /// Makes a listener that gives up beyond `requests_max` requests.
    pub fn new(warmup_requests: u64, requests_max: u64) -> BoundListener {
        BoundListener {
            collector: Some(BoundCollector::new(Zeroes::Free)),
            held: KnownContents::default(),
            contradictions: 0,
            is_too_long: false,
            warming: warmup_requests,
            left: requests_max,
        }
    }

    /// Ends the collecting.
    pub fn finish(self) -> Collected {
        match self.collector {
            _ if self.is_too_long => Collected::TooLong,
            Some(collector) => Collected::Trace(collector.finish()),
            None => Collected::Contradicted(self.contradictions),
        }
    }

    fn give_up(&mut self) {
        self.is_too_long = true;
        self.collector = None;
        self.held = KnownContents::default();
    }

    /// Takes a read, with its beginning, or a write (`None`).
    fn data(&mut self, content: &Content, read: Option<Seen>) {
        let Some(left) = self.left.checked_sub(1) else { return self.give_up() };
        self.left = left;
        let is_counted = self.warming == 0;
        self.warming -= u64::from(!is_counted);
        let Some(collector) = &mut self.collector else { return };
        let is_zero = content.is_zero();
        let result = match read.filter(|_| is_counted) {
            Some(Seen::First) => collector.first_read(content, is_zero),
            Some(_) => collector.read(content, is_zero),
            None => collector.write(content, is_zero),
        };
        if result.is_err() {
            self.give_up();
        }
    }
}

impl LabListener for BoundListener {
    fn take(&mut self, requests: &[CacheRequest]) {
        for request in requests {
            if self.is_too_long {
                return;
            }
            match request {
                CacheRequest::Read(lba, content) => {
                    let seen = self.held.read(lba.0, content);
                    if seen == Seen::Contradicts {
                        self.contradictions += 1;
                        self.collector = None;
                    }
                    self.data(content, Some(seen));
                }
                CacheRequest::Write(lba, content) => {
                    self.held.write(lba.0, content);
                    self.data(content, None);
                }
                CacheRequest::Trim(first, count) => self.held.trim(first.0, *count),
                CacheRequest::Forget(first, count) => self.held.forget(first.0, *count),
                CacheRequest::Flush => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{BATCH_REQUESTS, own_content};
    use larder_core::Lba;
    use larder_trace::{Op, Record, TraceError, chunks};

    #[derive(Default)]
    struct Heard(Vec<CacheRequest>);

    impl LabListener for Heard {
        fn take(&mut self, requests: &[CacheRequest]) {
            self.0.extend(requests);
        }
    }

    fn records(count: u64) -> impl Iterator<Item = TraceResult<Record>> {
        (0..count).map(|n| {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            Ok(Record::new(n, op, n * n % 97 * 4096, 4096))
        })
    }

    #[test]
    fn everybody_hears_everything_in_order_on_any_number_of_threads() {
        let count = 40 * BATCH_REQUESTS as u64 + 3;
        let mut expected = Heard::default();
        let mut batches = Batches::new(chunks(records(count), 4096).unwrap(), 4096);
        broadcast(&mut batches, &mut [&mut expected], 1).unwrap();
        assert_eq!(expected.0.len() as u64, count);
        for threads in [0, 1, 2, 5, 9] {
            let mut heard: Vec<Heard> = (0..5).map(|_| Heard::default()).collect();
            let mut listeners: Vec<&mut dyn LabListener> =
                heard.iter_mut().map(|h| h as &mut dyn LabListener).collect();
            let mut batches = Batches::new(chunks(records(count), 4096).unwrap(), 4096);
            broadcast(&mut batches, &mut listeners, threads).unwrap();
            assert!(heard.iter().all(|heard| heard.0 == expected.0), "{threads} threads");
        }
        broadcast(&mut Batches::new(chunks(records(10), 4096).unwrap(), 4096), &mut [], 2).unwrap();
    }

    #[test]
    fn an_error_ends_it_for_all() {
        let records = records(5000).chain([Err(TraceError::parameter("no"))]);
        let mut batches = Batches::new(chunks(records, 4096).unwrap(), 4096);
        let (mut a, mut b) = (Heard::default(), Heard::default());
        assert!(broadcast(&mut batches, &mut [&mut a, &mut b], 2).is_err());
        assert_eq!(a.0, b.0);
    }

    #[test]
    fn the_bound_is_of_the_reads_after_the_warm_up() {
        let of = |warmup, requests_max| {
            let mut listener = BoundListener::new(warmup, requests_max);
            let reads = [1, 2, 1, 2].map(|n| Ok(Record::new(n, Op::Read, n * 4096, 4096)));
            let mut batches = Batches::new(chunks(reads, 4096).unwrap(), 4096);
            broadcast(&mut batches, &mut [&mut listener], 1).unwrap();
            match listener.finish() {
                Collected::Trace(traces) => {
                    Some((traces.addresses.reads(), traces.addresses.read_hit_ratio_in_chunks(2)))
                }
                Collected::TooLong => None,
                Collected::Contradicted(reads) => panic!("{reads} reads of what each chunk has of its own"),
            }
        };
        assert_eq!(of(0, 100), Some((4, 0.5)));
        assert_eq!(of(1, 4), Some((3, 2.0 / 3.0)));
        assert_eq!(of(3, 4), Some((1, 1.0)));
        assert_eq!(of(0, 3), None);
    }

    #[test]
    fn a_trace_that_contradicts_itself_has_no_bound() {
        let content = |number: u64| own_content(Lba(number), 4096);
        let of = |requests: &[CacheRequest], warmup, requests_max| {
            let mut listener = BoundListener::new(warmup, requests_max);
            listener.take(requests);
            listener.finish()
        };
        let requests = [
            CacheRequest::Write(Lba(1), content(1)),
            CacheRequest::Read(Lba(1), content(2)),
            CacheRequest::Read(Lba(1), content(1)),
            CacheRequest::Trim(Lba(1), 1),
            CacheRequest::Read(Lba(1), content(1)),
        ];
        for warmup in [0, 4] {
            assert!(matches!(of(&requests, warmup, 100), Collected::Contradicted(2)));
        }
        assert!(matches!(of(&requests, 0, 3), Collected::TooLong));
        assert!(matches!(of(&requests[..1], 0, 3), Collected::Trace(_)));
        let forgets = [requests[0], CacheRequest::Forget(Lba(1), 1), requests[1]];
        assert!(matches!(of(&forgets, 0, 3), Collected::Trace(_)));
    }
}
