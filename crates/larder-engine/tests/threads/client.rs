//! A client of the stress: it draws requests, sends them, and notes the results. It uses the
//! blocking interface or a [`BlockDevice`].
//!
//! Invariants: the seed determines the requests of a client; an instant is drawn before each call
//! and after its return.
//!
//! It does not judge its reads.

use crate::{
    common::SECTOR,
    history::{Clock, Record, What, fill, values_of},
    register::{Value, ZERO},
};
use larder_device::{BlockDevice, IoBuf, WriteFlags, ZeroFlags, driver::block_on, rng::Rng};
use larder_engine::Cache;
use std::{future::Future, ops::Range, pin::Pin, sync::atomic::AtomicBool, sync::atomic::Ordering::SeqCst};

/// Longest request, in sectors: two and a half chunks of 8 KiB.
const REQUEST_SECTORS_MAX: usize = 40;
/// Requests that one client has in flight when it does not use the blocking interface.
const DEPTH: u64 = 8;

/// The sectors of the clients.
#[derive(Clone, Copy)]
pub struct Area {
    /// The whole volume.
    pub sectors: usize,
    /// The part at the volume's start that gets every other request, so that requests overlap.
    pub hot_sectors: usize,
}

/// A request.
enum Request {
    Write { first: usize, value: Value, data: Vec<u8>, fua: bool },
    Read { first: usize, sectors: usize },
    Zero { first: usize, sectors: usize },
    Flush,
}

/// The state of a client.
pub struct Client<'a> {
    pub cache: &'a Cache,
    pub clock: &'a Clock,
    pub area: Area,
    pub number: u32,
    pub rng: Rng,
    /// Ends the client before its requests are through.
    pub stop: &'a AtomicBool,
    pub records: Vec<Record>,
    /// The newest value, and its sectors.
    reused: Option<(Value, Vec<Range<usize>>)>,
}

impl<'a> Client<'a> {
    pub fn new(cache: &'a Cache, clock: &'a Clock, area: Area, number: u32, rng: Rng, stop: &'a AtomicBool) -> Self {
        Client { cache, clock, area, number, rng, stop, records: Vec::new(), reused: None }
    }

    /// Makes `count` requests, one after another, through the blocking interface.
    pub fn run_blocking(mut self, count: u64) -> Vec<Record> {
        for _ in 0..count {
            if self.stop.load(SeqCst) {
                break;
            }
            let request = self.draw();
            let called = self.clock.now();
            let outcome = match &request {
                Request::Write { first, data, fua: false, .. } => {
                    self.cache.write_at(offset(*first), data).map(|()| None)
                }
                Request::Write { first, data, fua: true, .. } => {
                    let flags = WriteFlags { fua: true };
                    block_on(self.cache.write(offset(*first), IoBuf::copy_of(data).freeze(), flags)).map(|()| None)
                }
                Request::Read { first, sectors } => {
                    let mut data = vec![0; sectors * SECTOR];
                    self.cache.read_at(offset(*first), &mut data).map(|()| Some(data))
                }
                Request::Zero { first, sectors } => {
                    let trimmed = self.cache.trim(offset(*first), offset(*sectors));
                    trimmed.unwrap_or_else(|error| panic!("trim: {error}"));
                    Ok(None)
                }
                Request::Flush => {
                    self.cache.flush_blocking().unwrap_or_else(|error| panic!("flush: {error}"));
                    Ok(None)
                }
            };
            let returned = self.clock.now();
            let found = outcome.unwrap_or_else(|error| panic!("client {}: {error}", self.number));
            self.note(&request, called, returned, found.as_deref());
        }
        self.records
    }

    /// Makes `count` requests, several in flight at once, driven by this thread.
    pub fn run_in_flight(mut self, count: u64) -> Vec<Record> {
        let lanes: Vec<Client<'a>> = (0..DEPTH)
            .map(|lane| {
                let number = self.number * 100 + lane as u32;
                Client::new(self.cache, self.clock, self.area, number, self.rng.fork(), self.stop)
            })
            .collect();
        let mut results: Vec<Vec<Record>> = Vec::new();
        let mut running: Vec<Pin<Box<dyn Future<Output = Vec<Record>> + 'a>>> = Vec::new();
        for lane in lanes {
            running.push(Box::pin(lane.run(count / DEPTH)));
        }
        block_on(std::future::poll_fn(|cx| {
            running.retain_mut(|lane| match lane.as_mut().poll(cx) {
                std::task::Poll::Ready(records) => {
                    results.push(records);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        }));
        results.into_iter().flatten().collect()
    }

    /// Makes `count` requests, one after another, for any executor.
    async fn run(mut self, count: u64) -> Vec<Record> {
        for _ in 0..count {
            if self.stop.load(SeqCst) {
                break;
            }
            let request = self.draw();
            let called = self.clock.now();
            let device: &dyn BlockDevice = self.cache;
            let outcome = match &request {
                Request::Write { first, data, fua, .. } => {
                    let flags = WriteFlags { fua: *fua };
                    device.write(offset(*first), IoBuf::copy_of(data).freeze(), flags).await.map(|()| None)
                }
                Request::Read { first, sectors } => {
                    device.read(offset(*first), IoBuf::new(sectors * SECTOR)).await.map(Some)
                }
                Request::Zero { first, sectors } if sectors % 2 == 0 => {
                    device.discard(offset(*first), offset(*sectors)).await.map(|()| None)
                }
                Request::Zero { first, sectors } => {
                    let zeroed = device.write_zeroes(offset(*first), offset(*sectors), ZeroFlags::default());
                    zeroed.await.map(|()| None)
                }
                Request::Flush => device.flush().await.map(|()| None),
            };
            let returned = self.clock.now();
            let found = outcome.unwrap_or_else(|error| panic!("client {}: {error}", self.number));
            self.note(&request, called, returned, found.as_deref());
        }
        self.records
    }

    fn note(&mut self, request: &Request, called: u64, returned: u64, found: Option<&[u8]>) {
        let (first_sector, what) = match (request, found) {
            (Request::Write { first, value, data, .. }, _) => {
                (*first, What::Wrote { value: *value, sectors: data.len() / SECTOR })
            }
            (Request::Zero { first, sectors }, _) => (*first, What::Wrote { value: ZERO, sectors: *sectors }),
            (Request::Read { first, .. }, Some(data)) => (*first, What::Found(values_of(*first, data))),
            (Request::Read { .. } | Request::Flush, _) => return,
        };
        self.records.push(Record { called, returned, client: self.number, first_sector, what });
    }

    fn draw(&mut self) -> Request {
        let (first, sectors) = self.draw_place();
        match self.rng.below(100) {
            0..38 => {
                let value = self.draw_value(first..first + sectors);
                let mut data = vec![0; sectors * SECTOR];
                fill(value, first, &mut data);
                Request::Write { first, value, data, fua: self.rng.chance(1, 20) }
            }
            38..90 => Request::Read { first, sectors },
            90..97 => Request::Zero { first, sectors },
            _ => Request::Flush,
        }
    }

    fn draw_place(&mut self) -> (usize, usize) {
        let area = if self.rng.chance(1, 2) { self.area.hot_sectors } else { self.area.sectors };
        let longest = [1, 8, 16, REQUEST_SECTORS_MAX][self.rng.index(4)].min(area);
        let sectors = 1 + self.rng.index(longest);
        let mut first = self.rng.index(area - sectors + 1);
        if self.rng.chance(1, 2) {
            first = (first / 16 * 16).min(area - sectors);
        }
        (first, sectors)
    }

    /// Returns a new value, or the newest again for other sectors: a duplicate.
    fn draw_value(&mut self, place: Range<usize>) -> Value {
        let again = self.rng.chance(1, 3);
        if let Some((value, places)) = &mut self.reused
            && again
            && places.iter().all(|other| other.end <= place.start || place.end <= other.start)
        {
            places.push(place);
            return *value;
        }
        let value = self.clock.new_value();
        self.reused = Some((value, vec![place]));
        value
    }
}

/// Returns the length of these sectors in bytes.
fn offset(sectors: usize) -> u64 {
    (sectors * SECTOR) as u64
}
