//! Measures in turns: both sides of a comparison run alternately, and medians count.
//!
//! Invariants: each round runs both sides, the first of them in turn. A first round warms up and is
//! not counted. The ratio of a comparison is the median of its rounds' ratios, not the ratio of
//! medians. So a disturbance that outlasts a round disturbs both sides of it.
//!
//! It does not choose the length of a round.

use larder_device::{IoFuture, IoResult, driver::spawn_local};
use std::{error::Error, future::Future, io, mem, time::Duration, time::Instant};

/// Result of a measurement.
pub type Res<T> = Result<T, Box<dyn Error>>;

/// The side of a comparison that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The cache.
    Ours,
    /// The base of the comparison.
    Base,
}

/// One turn of one side.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Work done, in the unit of the comparison.
    pub units: f64,
    /// Elapsed time.
    pub wall: Duration,
    /// Processor time of the whole process meanwhile; zero if another process did the work.
    pub cpu: Duration,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.units / self.wall.as_secs_f64()
    }

    fn cpu_rate(&self) -> f64 {
        self.units / self.cpu.as_secs_f64()
    }
}

/// Medians of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The cache's rate, in units a second.
    pub ours: f64,
    /// The base's rate, in units a second.
    pub base: f64,
    /// The cache's rate over the base's.
    pub ratio: f64,
    /// The same by processor time in place of elapsed time: less disturbed, but blind to waiting.
    pub cpu_ratio: f64,
    /// The cache's units for each second of processor time.
    pub ours_cpu: f64,
}

/// Runs and times `work`, which returns its units.
pub fn time(work: impl FnOnce() -> Res<f64>) -> Res<Sample> {
    let (began, cpu) = (Instant::now(), cpu_time());
    let units = work()?;
    Ok(Sample { units, wall: began.elapsed(), cpu: cpu_time().saturating_sub(cpu) })
}

/// Compares in `rounds` rounds and one to warm up, which has number 0.
pub fn compare(rounds: usize, mut run: impl FnMut(usize, Side) -> Res<Sample>) -> Res<Comparison> {
    let (mut ours, mut base, mut ours_cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ratios, mut cpu_ratios) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (a, b) = if round % 2 == 0 {
            let a = run(round, Side::Ours)?;
            (a, run(round, Side::Base)?)
        } else {
            let b = run(round, Side::Base)?;
            (run(round, Side::Ours)?, b)
        };
        if round > 0 {
            ours.push(a.rate());
            base.push(b.rate());
            ours_cpu.push(a.cpu_rate());
            ratios.push(a.rate() / b.rate());
            cpu_ratios.push(a.cpu_rate() / b.cpu_rate());
        }
    }
    Ok(Comparison {
        ours: median(ours),
        base: median(base),
        ratio: median(ratios),
        cpu_ratio: median(cpu_ratios),
        ours_cpu: median(ours_cpu),
    })
}

/// Returns the median; 0 of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the processor time of this process.
pub fn cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the processor time of this thread.
pub fn thread_cpu_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a live value of the type asked for. The clocks exist on every
    // Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps this thread, and the threads that it starts, on one core until it is dropped.
pub struct OneCore {
    before: libc::cpu_set_t,
}

impl OneCore {
    /// Pins the thread to the last core that it may use.
    pub fn pin() -> Res<OneCore> {
        // SAFETY: a CPU set is plain bits, and zero of them are set in it.
        let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: the pointer and size are those of a live set.
        if unsafe { libc::sched_getaffinity(0, bytes, &mut before) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the numbers are below the size of the set.
        let cpu = (0..libc::CPU_SETSIZE as usize).rev().find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &before) });
        // SAFETY: as above.
        unsafe { libc::CPU_SET(cpu.unwrap_or(0), &mut one) };
        set_affinity(&one)?;
        Ok(OneCore { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // This set was allowed before.
        let _ = set_affinity(&self.before);
    }
}

fn set_affinity(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the pointer and size are those of a live set.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `depth` lanes side by side on this thread, inside `block_on`, and adds up their results.
/// One lane runs without a task of its own.
pub async fn lanes<F>(depth: usize, mut lane: impl FnMut(u64) -> F) -> IoResult<u64>
where
    F: Future<Output = IoResult<u64>> + 'static,
{
    if depth == 1 {
        return lane(0).await;
    }
    let mut ends = Vec::new();
    for number in 0..depth as u64 {
        let (completer, end) = IoFuture::pending();
        let lane = lane(number);
        spawn_local(async move { completer.complete(lane.await) });
        ends.push(end);
    }
    let mut sum = 0;
    for end in ends {
        sum += end.await?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_ratios_counts_and_the_first_round_does_not() {
        let mut calls = Vec::new();
        let comparison = compare(3, |round, side| {
            calls.push((round, side));
            let units = if side == Side::Ours { [100.0, 1.0, 2.0, 9.0][round] } else { 1.0 };
            Ok(Sample { units, wall: Duration::from_secs(1), cpu: Duration::from_secs(2) })
        })
        .unwrap();
        assert_eq!((comparison.ratio, comparison.cpu_ratio, comparison.ours), (2.0, 2.0, 2.0));
        assert_eq!(calls.len(), 8);
        assert_eq!((calls[0].1, calls[2].1), (Side::Ours, Side::Base), "the sides take turns at being first");
    }
}
