//! The words of an end that was cut off: the device or step that hangs, and the fate of data.
//!
//! Role: devices under watch tell their unanswered requests. All else that may hang on a file
//! system (a socket, a trace, the opening of a device) is one of the [`Steps`].
//!
//! Invariants: its words on data hold for the moment of the question. It waits for no device and
//! for no lock that is held across a wait.
//!
//! It leaves the decision to cut an end off to `ending`.

use crate::{
    ending::Ending,
    error::Failure,
    lasting::flash_standing,
    origin::shown,
    steps::{Steps, UNTOUCHED, WAITED_MIN},
};
use larder_device::{IoOp, Standing, driver::block_on, watched::Watch};
use larder_engine::{Cache, WriteMode};
use parking_lot::Mutex;
use std::sync::Arc;

/// The devices under watch, the steps, and the state of data.
pub struct Account {
    /// The name and the watch of flash and origin, or of the origin alone.
    devices: Vec<(String, Arc<Watch>)>,
    steps: Steps,
    data: Mutex<Data>,
}

/// The durable part of the clients' data.
#[derive(Clone, Copy)]
enum Data {
    /// No client was let in.
    Untouched,
    /// Flushed data is durable.
    Flushed,
    /// All acknowledged data is durable, here.
    Durable(&'static str),
}

impl Account {
    /// Returns the account of a cache, or without a flash of an origin alone, with these steps.
    pub fn of(steps: &Steps, flash: Option<(String, Arc<Watch>)>, origin: (&str, Arc<Watch>)) -> Arc<Account> {
        let flash = flash.map(|(path, watch)| (format!("the flash {path}"), watch));
        let origin = (format!("the origin {}", shown(origin.0)), origin.1);
        let devices = flash.into_iter().chain([origin]).collect();
        Arc::new(Account { devices, steps: steps.clone(), data: Mutex::new(Data::Untouched) })
    }

    /// Notes that all acknowledged data is durable in this place.
    pub fn is_durable(&self, place: &'static str) {
        *self.data.lock() = Data::Durable(place);
    }

    /// Notes that clients are let in.
    pub fn begin(&self) {
        *self.data.lock() = Data::Flushed;
    }

    /// Flushes acknowledged data, and notes the place where it is durable then.
    pub fn flush(&self, cache: &Cache) {
        // If it fails, the close that follows gives the reason.
        if block_on(cache.flush()).is_ok() {
            self.is_durable_by(cache);
        }
    }

    /// Notes that acknowledged data is durable in the place where this cache keeps it.
    pub fn is_durable_by(&self, cache: &Cache) {
        // A flush takes all to the origin past a flash that failed, and if the flash has no name.
        let is_kept = matches!(flash_standing(cache), Standing::Sound | Standing::Renamed) && !cache.status().degraded;
        let in_flash = cache.mode() == WriteMode::Back && is_kept && !cache.superblock().detached;
        self.is_durable(if in_flash { "flash" } else { "origin" });
    }

    /// Names the devices that do not answer, and the steps that take long.
    pub fn hung(&self) -> String {
        let waiting = self.devices.iter().filter_map(|(name, watch)| {
            let oldest = watch.oldest().filter(|oldest| oldest.age >= WAITED_MIN)?;
            Some(format!("{name} has not answered {} for {:.1} s", name_of(oldest.op), oldest.age.as_secs_f64()))
        });
        let waiting: Vec<String> = waiting.chain(self.steps.long()).collect();
        match waiting.is_empty() {
            true => "no device is known to owe an answer, and this takes longer".to_owned(),
            false => waiting.join(", and "),
        }
    }

    /// Tells the fate of data.
    pub fn data(&self) -> String {
        match *self.data.lock() {
            Data::Untouched => UNTOUCHED.to_owned(),
            Data::Flushed => "flushed data of clients is kept, and later writes may be lost".to_owned(),
            Data::Durable(place) => format!("acknowledged writes are durable on the {place}"),
        }
    }

    /// Makes an end that is cut off use this account from here on; `stage` is its first stage.
    pub fn serves(self: &Arc<Self>, ending: &Ending, stage: &'static str) {
        let account = self.clone();
        ending.set_account(Box::new(move || account.tell()));
        ending.now(stage);
    }

    /// Returns the failure of requests that were cut off; `hung`: the time they took, and the
    /// reason.
    pub fn requests_cut(&self, hung: &str) -> Failure {
        Failure::failed(format_args!("some requests did not finish and were cut off after {hung}; {}", self.data()))
    }

    /// Names the hung devices and the fate of data.
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
        IoOp::Standing => "a query of name and size",
        _ => "a request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_take_long_are_named_until_they_are_over() {
        let steps = Steps::default();
        let first = steps.begin("writing the trace /a");
        let second = steps.begin("removing the socket /b");
        assert!(steps.long().is_empty(), "they have just begun");
        std::thread::sleep(WAITED_MIN);
        let third = steps.begin("ending the trace /a");
        let long = steps.long();
        assert!(long.len() == 2 && long[0].starts_with("writing the trace /a has taken 0."), "{long:?}");
        drop((first, third));
        assert_eq!(steps.long().len(), 1);
        drop(second);
        assert!(steps.long().is_empty());
    }
}
