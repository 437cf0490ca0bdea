//! Runs a fuzz target on its seeds and on seeded mutants of them.
//!
//! `make test` runs each target so, without any fuzzer.
//!
//! Invariants: one seed gives one input, on every machine. A failing input is named, with the
//! environment variable that replays it alone and its hexadecimal digits.
//!
//! It does not look at coverage. It leaves this to cargo-fuzz.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{available_parallelism, scope},
};

/// Longest input that is printed whole, in bytes.
const PRINTED_BYTES_MAX: usize = 4096;

/// A seeded stream of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Begins the stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Returns a mutant of one of `seeds`, or noise.
pub fn mutant(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if seeds.is_empty() || random.below(8) == 0 {
        return (0..random.below(600)).map(|_| random.next() as u8).collect();
    }
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        let value = random.next().to_le_bytes();
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, value[0]),
            4 => drop(bytes.splice(at..at, value[..1 + random.below(8)].iter().copied())),
            5 => {
                // A piece of another seed.
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let to = (from + random.below(32)).min(other.len());
                let piece = other[from..to].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            6 => bytes.extend(value),
            _ => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
        }
    }
    bytes
}

/// Runs `target` on all of `seeds`, then on `cases` mutants, on all cores. Returns the number of
/// inputs.
///
/// `LARDER_FUZZ_FACTOR` multiplies the mutants if it is set. `LARDER_SEED=N` runs the mutant of
/// that seed alone. `LARDER_FUZZ_CORPUS=DIR` has the seeds written to `DIR/name`, for cargo-fuzz to
/// begin with.
///
/// # Panics
///
/// Panics if the target does. The input that led to it is printed first.
pub fn check(name: &str, seeds: &[Vec<u8>], cases: u64, target: impl Fn(&[u8]) + Sync) -> u64 {
    let run = |what: &str, bytes: &[u8]| {
        let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
        if outcome.is_err() {
            let hex: String = bytes.iter().take(PRINTED_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
            eprintln!("fuzz target {name}, {what}, {} bytes: {hex}", bytes.len());
        }
        outcome
    };
    let one = |seed: u64| {
        let bytes = mutant(seeds, &mut Random::new(seed));
        run(&format!("replay with LARDER_SEED={seed}"), &bytes)
    };
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("LARDER_SEED") {
        one(seed).unwrap_or_else(|panic| resume_unwind(panic));
        return 1;
    }
    let cases = cases * number("LARDER_FUZZ_FACTOR").unwrap_or(1);
    if let Some(corpus) = std::env::var_os("LARDER_FUZZ_CORPUS") {
        write_out(&Path::new(&corpus).join(name), seeds).expect("the corpus can be written");
    }
    // The seed inputs come by their number, then the mutants, of which the first has seed 1.
    let (first_mutant, next) = (seeds.len() as u64, AtomicU64::new(0));
    let failure = Mutex::new(None);
    let work = || {
        while failure.lock().is_ok_and(|failure| failure.is_none()) {
            let number = next.fetch_add(1, Relaxed);
            let outcome = match seeds.get(number as usize) {
                Some(bytes) => run(&format!("its seed input {number}"), bytes),
                None if number < first_mutant + cases => one(number - first_mutant + 1),
                None => return,
            };
            if let Err(panic) = outcome {
                *failure.lock().expect("nothing panics under it") = Some(panic);
            }
        }
    };
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    scope(|threads| (0..cores).for_each(|_| drop(threads.spawn(work))));
    if let Some(panic) = failure.into_inner().expect("nothing panics under it") {
        resume_unwind(panic);
    }
    first_mutant + cases
}

fn write_out(folder: &Path, seeds: &[Vec<u8>]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (number, bytes) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:03}")), bytes)?;
    }
    Ok(())
}
