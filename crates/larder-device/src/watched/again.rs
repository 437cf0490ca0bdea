//! Asking a failing device again, so that an error ends when its cause is gone.
//!
//! A read that failed may be the last one for a long time: a cache that serves hits alone needs no
//! other. So one block is read at the place of the failure, and dropped. Such a read also shows
//! that a lost device is back.
//!
//! Invariants: a question changes nothing on the device, and counts as any other operation. A
//! device that owes an answer is not asked.
//!
//! It leaves writes to their users, who repeat them. It leaves flushes to the owner of the device:
//! a device may report lost data once, to the next flush.

use super::{
    Watch,
    health::{FLUSH, READ},
};
use crate::{IoBuf, IoErrorKind, IoOp, Runtime};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

/// The pause before the first question. A device that owes an answer for so long is not asked.
pub const ASK_AFTER: Duration = Duration::from_secs(1);

/// Longest pause between two questions.
const ASK_AFTER_MAX: Duration = Duration::from_secs(30);

/// Returns the pause that follows a pause, after a question.
pub fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(ASK_AFTER_MAX)
}

/// The operations that show whether a failing device works again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// The offset of a read.
    pub read: Option<u64>,
    /// A flush.
    pub flush: bool,
}

impl Questions {
    /// Returns whether no question is due.
    pub fn is_empty(self) -> bool {
        self == Questions::default()
    }
}

impl Watch {
    /// Returns the questions for the device; none while it works, or if its writes alone fail.
    pub fn questions(&self) -> Questions {
        if self.is_well() {
            return Questions::default();
        }
        let failing = &self.health.errors.lock().failing;
        // A device that answers any operation is back.
        let gone = failing.iter().flatten().find(|error| error.kind == IoErrorKind::Gone);
        let read = failing[READ].as_ref().or(gone).map(|error| error.offset);
        Questions { read, flush: failing[FLUSH].as_ref().is_some_and(|error| error.kind != IoErrorKind::Gone) }
    }

    /// Returns whether an operation has waited for its answer so long that no question is asked.
    pub fn owes_answer(&self) -> bool {
        self.oldest().is_some_and(|oldest| oldest.age >= ASK_AFTER)
    }

    /// Reads the block at `offset`, and drops it.
    pub async fn ask_to_read(self: &Arc<Self>, offset: u64) {
        let Some(device) = self.device.upgrade() else { return };
        let block = u64::from(device.info().sector_bytes);
        let pending = self.begin(IoOp::Read);
        let result = device.read(offset / block * block, IoBuf::new(block as usize)).await;
        pending.end(&result);
    }
}

/// Asks a device for reads whenever it fails, until the watch is gone or `has_ended`.
///
/// The first question comes within [`ASK_AFTER`], and pauses grow while the device fails.
pub async fn ask_again_and_again(watch: Weak<Watch>, runtime: Arc<dyn Runtime>, has_ended: impl Fn() -> bool) {
    let mut pause = ASK_AFTER;
    while runtime.delay(pause).await.is_ok() {
        let Some(watch) = watch.upgrade().filter(|_| !has_ended()) else { return };
        match watch.questions().read {
            None => pause = ASK_AFTER,
            Some(_) if watch.owes_answer() => {}
            Some(offset) => {
                watch.ask_to_read(offset).await;
                pause = next_pause(pause);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockDevice, WriteFlags,
        faulty::{FOR_EVER, Fault, Faulty},
        ram::RamDevice,
        sim::SimRuntime,
        watched::WatchedDevice,
    };
    use std::sync::atomic::{AtomicBool, Ordering::*};

    #[test]
    fn a_failing_device_is_asked_for_reads_alone_at_growing_pauses() {
        let runtime = SimRuntime::new(1);
        let faulty = Arc::new(Faulty::new(RamDevice::new("ram", 1 << 20, 4096)));
        let device = WatchedDevice::new(faulty.clone(), runtime.clone());
        let (watch, ended) = (device.watch(), Arc::new(AtomicBool::new(false)));
        let has_ended = ended.clone();
        let asking = ask_again_and_again(Arc::downgrade(&watch), runtime.clone(), move || has_ended.load(Acquire));
        runtime.spawn(Box::pin(asking));
        let wait = |time: u64| drop(runtime.block_on(runtime.delay(Duration::from_secs(time))));
        let reads = || faulty.counters().reads;
        wait(60);
        assert_eq!(reads(), 0, "it works");
        faulty.plan().add(Fault { op: None, range: None, kind: IoErrorKind::Io, times: FOR_EVER });
        drop(device.write(8192, IoBuf::zeroed(4096).freeze(), WriteFlags::default()));
        drop(device.flush());
        assert_eq!(watch.questions(), Questions { read: None, flush: true });
        wait(60);
        assert_eq!(reads(), 0, "its owner asks for a flush, and its users repeat their writes");
        drop(device.read(8192, IoBuf::new(8192)));
        assert_eq!(watch.questions(), Questions { read: Some(8192), flush: true });
        wait(120);
        // After 1, 2, 4, 8, 16, 30, 30 and 30 seconds.
        assert!((6..=9).contains(&(reads() - 1)), "{} questions", reads() - 1);
        faulty.plan().clear();
        wait(30);
        assert_eq!(watch.questions(), Questions { read: None, flush: true }, "it reads again");
        let before = reads();
        wait(60);
        assert_eq!(reads(), before);
        faulty.plan().set_gone(true);
        drop(device.write(0, IoBuf::zeroed(4096).freeze(), WriteFlags::default()));
        faulty.plan().set_gone(false);
        wait(2);
        assert!(watch.error().is_some_and(|error| error.op == IoOp::Flush), "a read shows that it is back");
        ended.store(true, Release);
        faulty.plan().fail_next(IoOp::Read, IoErrorKind::Io);
        drop(device.read(0, IoBuf::new(4096)));
        let before = reads();
        wait(60);
        assert_eq!(reads(), before, "the end began");
    }
}
