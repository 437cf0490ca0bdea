//! `driver/pool.rs`: threads that start on demand, and end without work.

use crate::{driver::run_blocking, explore::explore};
use shuttle::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};
use std::sync::Arc;

const SCHEDULES: u64 = 2000;

/// Each call is made, and all threads end with the last one: the next schedule begins with empty
/// pools.
pub fn every_call_is_made_once() {
    explore(SCHEDULES, || {
        let made = Arc::new(AtomicU32::new(0));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let made = made.clone();
                thread::spawn(move || {
                    for lane in [0, 0, 1] {
                        let made = made.clone();
                        run_blocking(lane, move || {
                            made.fetch_add(1, SeqCst);
                        });
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().expect("called"));
        while made.load(SeqCst) < 6 {
            thread::yield_now();
        }
    });
}
