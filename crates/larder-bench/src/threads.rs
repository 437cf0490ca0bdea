//! Work of several threads at once, against that of one of them.
//!
//! Invariants: a time is from when all threads are ready to when the last is done. As many threads as the machine can run at once, at
//! most.
//!
//! What it does not do: pin threads to cores.

use crate::measure::{Res, median};
use std::{error::Error, sync::Barrier, thread, time::Instant};

const THREADS_MAX: usize = 256;

/// 1, 2, 4 and so on, and as many as can run at once.
pub fn thread_counts() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get()).min(THREADS_MAX);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

/// The median of how many times the rate of one thread that of many is, round by round.
pub fn times(many: &[f64], one: &[f64]) -> f64 {
    median(many.iter().zip(one).map(|(many, one)| many / one).collect())
}

/// Seconds that so many threads take, each of which has its number.
pub fn seconds_of<E: Error + Send + 'static>(
    count: usize,
    work: &(impl Fn(usize) -> Result<(), E> + Sync),
) -> Res<f64> {
    let ready = Barrier::new(count + 1);
    let ready = &ready;
    thread::scope(|scope| {
        let thread_of = |number: usize| {
            scope.spawn(move || {
                ready.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..count).map(thread_of).collect();
        ready.wait();
        let began = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(began.elapsed().as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_comes_first_and_as_many_as_there_are_cores_last() {
        let counts = thread_counts();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        assert_eq!((counts[0], counts.last().copied()), (1, Some(cores.min(THREADS_MAX))));
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]), "{counts:?}");
    }
}
