//! Work of several threads at once, against that of one of them.
//!
//! Invariants: a time begins when all threads are ready and ends when the last is done. There are
//! at most as many threads as the machine can run at once.
//!
//! It does not pin threads to cores.

use crate::measure::{Res, median};
use std::{error::Error, sync::Barrier, thread, time::Instant};

const THREADS_MAX: usize = 256;

/// Returns 1, 2, 4 and so on, and the number that can run at once.
pub fn thread_counts() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get()).min(THREADS_MAX);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

/// Returns the median ratio of the rate of many threads to that of one, round by round.
pub fn times(many: &[f64], one: &[f64]) -> f64 {
    median(many.iter().zip(one).map(|(many, one)| many / one).collect())
}

/// Returns the seconds of `count` threads at work, each with its number.
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
