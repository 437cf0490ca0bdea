//! What an end that was cut off says: which device does not answer, and what that means for data.
//!
//! Invariants: what it says of data is what was durable when it is asked. It waits for no device and for no lock that is held
//! across a wait.
//!
//! What it does not do: decide that an end is cut off; `ending` does.

use crate::{ending::Ending, error::Failure, volume::shown};
use larder_device::{IoOp, driver::block_on, watched::Watch};
use larder_engine::{Cache, WriteMode};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

/// A request that has waited for less is not called one that hangs.
const WAITED_MIN: Duration = Duration::from_millis(400);

/// What is watched, and what is known of data.
pub struct Account {
    /// The name and the watch of flash and origin, or of the origin alone.
    devices: Vec<(String, Arc<Watch>)>,
    data: Mutex<Data>,
}

/// What is known of what clients were told.
#[derive(Clone, Copy)]
enum Data {
    /// They were told nothing.
    Untouched,
    /// What they flushed is durable.
    Flushed,
    /// All of it is, here.
    Durable(&'static str),
}

impl Account {
    /// Of a cache, or without a flash of an origin alone.
    pub fn of(flash: Option<(String, Arc<Watch>)>, origin: (&str, Arc<Watch>)) -> Arc<Account> {
        let flash = flash.map(|(path, watch)| (format!("the flash {path}"), watch));
        let origin = (format!("the origin {}", shown(origin.0)), origin.1);
        Arc::new(Account { devices: flash.into_iter().chain([origin]).collect(), data: Mutex::new(Data::Untouched) })
    }

    /// All that clients were told of is durable here.
    pub fn is_durable(&self, place: &'static str) {
        *self.data.lock() = Data::Durable(place);
    }

    /// Clients are let in.
    pub fn begin(&self) {
        *self.data.lock() = Data::Flushed;
    }

    /// Flushes what clients were told of, and knows then where it is durable.
    pub fn flush(&self, cache: &Cache) {
        // Where it fails, the close that follows says why.
        if block_on(cache.flush()).is_ok() {
            self.is_durable_by(cache);
        }
    }

    /// All that clients were told of is durable where this cache keeps it.
    pub fn is_durable_by(&self, cache: &Cache) {
        // Past a flash that failed, a flush is one of the origin.
        let in_flash = cache.mode() == WriteMode::Back && !cache.status().degraded && !cache.superblock().detached;
        self.is_durable(if in_flash { "flash" } else { "origin" });
    }

    /// The devices that do not answer, in words.
    pub fn hung(&self) -> String {
        let waiting = self.devices.iter().filter_map(|(name, watch)| {
            let oldest = watch.oldest().filter(|oldest| oldest.age >= WAITED_MIN)?;
            Some(format!("{name} has not answered {} for {:.1} s", name_of(oldest.op), oldest.age.as_secs_f64()))
        });
        let waiting: Vec<String> = waiting.collect();
        match waiting.is_empty() {
            true => "all devices answer, and this takes longer".to_owned(),
            false => waiting.join(", and "),
        }
    }

    /// What became of data, in words.
    pub fn data(&self) -> String {
        match *self.data.lock() {
            Data::Untouched => "no client had been let in".to_owned(),
            Data::Flushed => "what clients flushed is kept, and what they wrote since then may be lost".to_owned(),
            Data::Durable(place) => format!("what clients were told is written is durable on the {place}"),
        }
    }

    /// From here on an end that is cut off says this, and that it was `stage`.
    pub fn serves(self: &Arc<Self>, ending: &Ending, stage: &'static str) {
        let account = self.clone();
        ending.set_account(Box::new(move || account.tell()));
        ending.now(stage);
    }

    /// That requests were cut off; `hung`: after which time, and why.
    pub fn requests_cut(&self, hung: &str) -> Failure {
        Failure::failed(format_args!("some requests did not finish and were cut off after {hung}; {}", self.data()))
    }

    /// Both.
    pub fn tell(&self) -> String {
        format!("{}; {}", self.hung(), self.data())
    }
}

fn name_of(op: IoOp) -> &'static str {
    match op {
        IoOp::Read => "a read",
        IoOp::Write => "a write",
        IoOp::Flush => "a flush",
        IoOp::Discard => "a discard",
        IoOp::WriteZeroes => "zeroes",
        _ => "a request",
    }
}
