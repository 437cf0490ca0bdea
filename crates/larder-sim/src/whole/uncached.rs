//! No cache: every request goes to the origin. Caches are compared with it.

use std::ops::Range;

use larder_core::Lba;

use crate::{
    cache::{CacheFigures, Content, ReplayCache},
    devices::{Device, DeviceAction, Gathering, Requests, Waits},
    traffic::Traffic,
};

/// See the module.
pub struct Uncached {
    chunk_bytes: u64,
    gathering: Gathering,
    traffic: Traffic,
}

impl Uncached {
    /// Makes one for a volume in chunks of so many bytes.
    pub fn new(chunk_bytes: u32) -> Uncached {
        let (gathering, traffic) = (Gathering::default(), Traffic::default());
        Uncached { chunk_bytes: u64::from(chunk_bytes), gathering, traffic }
    }

    fn ask(&mut self, action: DeviceAction, first: Lba, count: u64) {
        if self.gathering.is_on() {
            self.gathering.for_whom(Waits::Client);
            self.gathering.add(Device::Origin, action, first.0 * self.chunk_bytes, count * self.chunk_bytes);
        }
    }
}

impl ReplayCache for Uncached {
    fn read(&mut self, lba: Lba, _: &Content) -> bool {
        self.traffic.origin_chunks_read += 1;
        self.ask(DeviceAction::Read, lba, 1);
        false
    }

    fn write(&mut self, lba: Lba, _: &Content) -> bool {
        self.traffic.origin_chunks_written += 1;
        self.ask(DeviceAction::Write, lba, 1);
        false
    }

    fn trim(&mut self, lba: Lba) {
        self.ask(DeviceAction::Trim, lba, 1);
    }

    fn trim_run(&mut self, first: Lba, count: u64) {
        self.ask(DeviceAction::Trim, first, count);
    }

    fn trim_part(&mut self, lba: Lba) {
        self.ask(DeviceAction::Trim, lba, 1);
    }

    fn flush(&mut self) {
        if self.gathering.is_on() {
            self.gathering.for_whom(Waits::Flush);
            self.gathering.add(Device::Origin, DeviceAction::Flush, 0, 0);
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> CacheFigures {
        CacheFigures::default()
    }

    fn gather(&mut self, on: bool) {
        self.gathering.turn(on);
    }

    fn take_requests(&mut self, into: &mut Requests) {
        self.gathering.take(into);
    }

    fn flash_span_bytes(&self) -> u64 {
        0
    }

    fn flash_data_range(&self) -> Range<u64> {
        0..0
    }
}
