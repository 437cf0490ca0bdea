//! Crash sweeps: short scripts, ended at each change of a device, in all or a sample of the ways.
//! Then the volume is opened, compared with a model, crashed again, and destaged to the origin.
//!
//! `crash_sweep/sweep.rs` lists the checks of each instant; each scenario prints their number.
//!
//! `LARDER_CRASH_CASES=N` draws N outcomes of each instant that has too many, and takes N/8 seeds.
//! `LARDER_DESIGN=NAME` sweeps one design; `LARDER_SEED=N` and `LARDER_CRASH_POINT=N` replay one
//! seed, and of it one instant.

mod client;
mod creation;
mod model;
mod sweep;
mod world;

use client::{Client, Run, Script, all};
use larder_engine::{Tuning, WriteMode};
use sweep::{Scenario, sweep};
use world::CHUNK;

/// Returns a scenario on a small origin.
fn scenario(name: &'static str, mode: WriteMode, script: Script) -> Scenario {
    Scenario::new(name, mode, script)
}

/// Returns a scenario with more data than the flash holds, in a few long chunks.
fn evicting(name: &'static str, mode: WriteMode, script: Script) -> Scenario {
    Scenario {
        chunk_bytes: (LONG * 512) as u32,
        origin_bytes: (124 * LONG as u64 + 3) * 512,
        read_one_of: 5,
        tuning: Tuning { dirty_low_percent: 30, dirty_high_percent: 50, ..scenario(name, mode, script).tuning },
        ..scenario(name, mode, script)
    }
}

/// Sectors of a long chunk.
const LONG: usize = 64;
/// Bytes of the log that are swept, before it goes around and after.
const LOG_BYTES_SWEPT: u64 = 20 << 10;

#[test]
fn crash_sweep_overwrites() {
    sweep(&scenario("write-back overwrites", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 4 * CHUNK, 1001).await;
            client.flush().await;
            client.destage().await;
            client.put(6 * CHUNK, 2 * CHUNK, 2001).await;
            client.flush().await;
            client.sweep_from_here();
            // Clean, dirty, and in part.
            client.put(CHUNK, CHUNK, 3001).await;
            client.put(6 * CHUNK, CHUNK, 3101).await;
            client.put(2 * CHUNK + 3, 2, 3201).await;
            client.flush().await;
            client.put(CHUNK, CHUNK, 4001).await;
            // A fragment, one that grows, and one that is made whole.
            client.put(10 * CHUNK + 2, 2, 5001).await;
            client.put_durably(10 * CHUNK + 4, 2, 5101).await;
            client.put(10 * CHUNK, 2, 5201).await;
            client.put(10 * CHUNK + 6, 2, 5301).await;
            client.flush().await;
            client.put(2 * CHUNK, CHUNK + 1, 6001).await;
            client.put_durably(8 * CHUNK - 1, 2, 6101).await;
            client.put(client.sectors - 3, 3, 7001).await;
            client.flush().await;
            client.put(client.sectors - 2, 2, 7101).await;
        })
    }));
}

#[test]
fn crash_sweep_durable_writes() {
    let overwrites: Script = |client| {
        Box::pin(async move {
            client.put_durably(0, 3 * CHUNK, 1001).await;
            client.sweep_from_here();
            // No client asks for durability or flushes: each of these is committed before it is
            // over.
            client.put_committed(CHUNK, CHUNK, 2001).await;
            client.put_committed(2 * CHUNK + 3, 2, 3001).await;
            client.put_committed(4 * CHUNK, CHUNK, 2001).await;
            client.trim_committed(0, CHUNK).await;
            client.destage().await;
            client.put_committed(CHUNK, CHUNK, 4001).await;
            client.put_committed(client.sectors - 2, 2, 5001).await;
        })
    };
    for (name, mode) in [
        ("durable writes in write-back", WriteMode::Back),
        ("durable writes in write-through", WriteMode::Through),
        ("durable writes in write-around", WriteMode::Around),
    ] {
        let scenario = scenario(name, mode, overwrites);
        let tuning = Tuning { durable_writes: true, ..scenario.tuning };
        sweep(&Scenario { tuning, ..scenario });
    }
}

#[test]
fn crash_sweep_duplicates_of_dirty_chunks() {
    sweep(&scenario("duplicates", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, CHUNK, 1001).await;
            client.flush().await;
            client.sweep_from_here();
            client.put(CHUNK, CHUNK, 1001).await;
            client.flush().await;
            client.put(0, CHUNK, 2001).await;
            client.put(2 * CHUNK, CHUNK, 1001).await;
            client.destage().await;
            client.put(3 * CHUNK, CHUNK, 1001).await;
            client.put(CHUNK, CHUNK, 2001).await;
            client.put(4 * CHUNK, CHUNK, 3001).await;
            client.put(5 * CHUNK, CHUNK, 3001).await;
            client.flush().await;
            client.trim(2 * CHUNK, CHUNK).await;
            client.put(4 * CHUNK, CHUNK, 2001).await;
            client.put(6 * CHUNK, CHUNK, 3001).await;
            client.flush().await;
            assert!(client.counts().duplicate_chunks >= 4 || !client.deduplicates(), "no duplicates");
        })
    }));
}

/// The flash is copied to coarser sectors after each crash.
///
/// Log and segments go on there, and the finer ones are never rewritten, though a torn write takes
/// all of 4096 bytes.
#[test]
fn crash_sweep_moves_to_coarser_sectors() {
    let moves = Scenario {
        moves: true,
        origin_bytes: 1 << 20,
        ..scenario("a flash that moves to coarser sectors", WriteMode::Back, |client| {
            Box::pin(async move {
                client.put(0, 4 * CHUNK, 1001).await;
                client.flush().await;
                client.put(4 * CHUNK, 2 * CHUNK, 2001).await;
                client.flush().await;
                client.sweep_from_here();
                client.put_durably(CHUNK, CHUNK, 3001).await;
                client.put_durably(10 * CHUNK + 2, 2, 4001).await;
                client.trim(2 * CHUNK, CHUNK).await;
                client.flush().await;
            })
        })
    };
    sweep(&moves);
}

#[test]
fn crash_sweep_trims() {
    sweep(&scenario("trims", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 12 * CHUNK, 1001).await;
            client.flush().await;
            client.destage().await;
            client.put(20 * CHUNK, 4 * CHUNK, 2001).await;
            client.flush().await;
            client.sweep_from_here();
            client.trim(2 * CHUNK, 6 * CHUNK).await;
            client.put(4 * CHUNK, CHUNK, 3001).await;
            client.put(5 * CHUNK + 1, 2, 4001).await;
            client.flush().await;
            client.trim(21 * CHUNK + 2, 2 * CHUNK).await;
            client.trim(3 * CHUNK + 2, 4 * CHUNK).await;
            client.put(6 * CHUNK, CHUNK, 5001).await;
            client.destage().await;
            client.trim(0, 12 * CHUNK).await;
            client.flush().await;
            client.put(0, 1, 6001).await;
        })
    }));
}

#[test]
fn crash_sweep_evictions_of_dirty_data() {
    sweep(&evicting("evictions with dirty data", WriteMode::Back, |client| {
        Box::pin(async move {
            // Incompressible, seven eighths of the flash.
            for i in 0..12 {
                client.put(i * 16 * LONG / 2, 8 * LONG, 1_000_000 + 10_000 * i as u32).await;
                client.flush().await;
            }
            let evicted = client.counts().evicted_slots;
            client.sweep_from_here();
            for i in 0..4 {
                client.put(100 * LONG + i * 6 * LONG, 6 * LONG, 2_000_000 + 10_000 * i as u32).await;
                // The pins of an old slot: a duplicate of its content, and a part of one of its
                // chunks.
                client.put((8 * i + 1) * LONG, 3, 3_001 + 100 * i as u32).await;
                client.flush().await;
            }
            assert!(client.counts().evicted_slots > evicted, "nothing was evicted");
        })
    }));
}

#[test]
fn crash_sweep_write_through_evictions() {
    sweep(&evicting("evictions in write-through", WriteMode::Through, |client| {
        Box::pin(async move {
            for i in 0..12 {
                client.put(i * 8 * LONG, 8 * LONG, 1_000_000 + 10_000 * i as u32).await;
                client.cache.wait_for_insertions().await;
            }
            client.flush().await;
            let evicted = client.counts().evicted_slots;
            client.sweep_from_here();
            for i in 0..4 {
                client.put(100 * LONG + i * 6 * LONG, 6 * LONG, 2_000_000 + 10_000 * i as u32).await;
                client.put((8 * i + 1) * LONG, LONG, 3_000_000 + 10_000 * i as u32).await;
                client.cache.wait_for_insertions().await;
                client.check((8 * i + 1) * LONG, 2 * LONG).await;
            }
            client.flush().await;
            assert!(client.counts().evicted_slots > evicted, "nothing was evicted");
        })
    }));
}

/// The index has no room for all the zeroes that were read: dropped ones must not come back.
#[test]
fn crash_sweep_zeroes_that_are_dropped() {
    let mut zeroes = evicting("zeroes that are dropped", WriteMode::Around, |client| {
        Box::pin(async move {
            for at in (0..client.sectors / LONG).step_by(8) {
                client.check(at * LONG, 8 * LONG).await;
                client.cache.wait_for_insertions().await;
            }
            client.sweep_from_here();
            for i in 0..8 {
                client.put((77 * i + 5) * LONG + 7, 1, 1001 + 100 * i as u32).await;
            }
            client.flush().await;
            client.check(64 * LONG, 24 * LONG).await;
            client.cache.wait_for_insertions().await;
        })
    });
    zeroes.origin_bytes = 640 * LONG as u64 * 512;
    sweep(&zeroes);
}

#[test]
fn crash_sweep_destages() {
    sweep(&scenario("destage", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 6 * CHUNK, 1001).await;
            client.put(10 * CHUNK + 3, 3, 2001).await;
            client.put(client.sectors - 3, 3, 2101).await;
            client.trim(12 * CHUNK, 4 * CHUNK).await;
            client.flush().await;
            client.put(20 * CHUNK, CHUNK, 1001).await;
            client.sweep_from_here();
            let writes = async {
                client.put(CHUNK, CHUNK, 3001).await;
                client.put(10 * CHUNK + 1, 1, 3101).await;
                client.put(13 * CHUNK, CHUNK, 3201).await;
                client.flush().await;
                client.trim(3 * CHUNK, CHUNK).await;
                client.put(5 * CHUNK + 1, 1, 3301).await;
            };
            all(vec![Box::pin(client.destage()), Box::pin(writes)]).await;
            client.destage().await;
            client.put(2 * CHUNK, CHUNK, 4001).await;
            client.flush().await;
        })
    }));
}

#[test]
fn crash_sweep_checkpoints() {
    sweep(&scenario("checkpoints", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 20 * CHUNK, 1001).await;
            client.trim(10 * CHUNK, 6 * CHUNK).await;
            client.put(40 * CHUNK + 1, 2, 2001).await;
            client.flush().await;
            client.checkpoint().await;
            client.sweep_from_here();
            let writes = async {
                for i in 0..3 {
                    client.put((12 + 3 * i) * CHUNK, CHUNK, 3001 + 100 * i as u32).await;
                    client.put((13 + 3 * i) * CHUNK + 1, 2, 4001 + 100 * i as u32).await;
                    client.flush().await;
                }
                client.trim(14 * CHUNK, 2 * CHUNK).await;
                client.put(0, CHUNK, 5001).await;
            };
            all(vec![Box::pin(client.checkpoint()), Box::pin(client.destage()), Box::pin(writes)]).await;
            client.checkpoint().await;
            client.flush().await;
        })
    }));
}

/// The log goes around: a checkpoint has its forgotten entries.
#[test]
fn crash_sweep_log_that_goes_around() {
    sweep(&scenario("log that goes around", WriteMode::Back, |client| {
        Box::pin(async move {
            let (mut swept, mut round) = (false, 0);
            while client.counts().flash_log_bytes_written < client.log_bytes + LOG_BYTES_SWEPT {
                client.put(round % 3 * 10 * CHUNK, 25 * CHUNK, 100_001 + 1000 * round as u32).await;
                client.flush().await;
                round += 1;
                assert!(round < 1000, "the log does not go around");
                if !swept && client.counts().flash_log_bytes_written + LOG_BYTES_SWEPT > client.log_bytes {
                    swept = true;
                    client.sweep_from_here();
                    client.checkpoint().await;
                }
            }
        })
    }));
}

fn cached_overwrites<'a>(client: &'a Client<'a>) -> Run<'a> {
    Box::pin(async move {
        client.put(0, 6 * CHUNK, 1001).await;
        client.flush().await;
        client.check(0, 6 * CHUNK).await;
        client.cache.wait_for_insertions().await;
        // Durable clean copies of all of it.
        client.checkpoint().await;
        client.sweep_from_here();
        client.put(0, CHUNK, 2001).await;
        client.put(CHUNK + 1, 3, 2101).await;
        client.check(0, 3 * CHUNK).await;
        client.cache.wait_for_insertions().await;
        client.put_durably(2 * CHUNK, CHUNK, 2201).await;
        client.cache.wait_for_insertions().await;
        client.put(2 * CHUNK, CHUNK, 3001).await;
        client.flush().await;
        client.check(0, 6 * CHUNK).await;
        client.cache.wait_for_insertions().await;
        client.checkpoint().await;
        client.trim(3 * CHUNK, CHUNK + 3).await;
        // A duplicate of another chunk's content.
        client.put(5 * CHUNK, CHUNK, 2001).await;
        client.check(0, 6 * CHUNK).await;
        client.flush().await;
        client.put(0, 2 * CHUNK, 4001).await;
    })
}

#[test]
fn crash_sweep_write_through() {
    sweep(&scenario("write-through overwrites", WriteMode::Through, cached_overwrites));
}

#[test]
fn crash_sweep_write_around() {
    sweep(&scenario("write-around overwrites", WriteMode::Around, cached_overwrites));
}

#[test]
fn crash_sweep_past_the_wear_budget() {
    let past = scenario("past the wear budget", WriteMode::Back, |client| {
        Box::pin(async move {
            let is_past = || client.counts().writes_past_budget > 0;
            client.put(0, 8 * CHUNK, 1001).await;
            client.put(10 * CHUNK + 2, 2, 1201).await;
            client.flush().await;
            client.sweep_from_here();
            // Until writes go past the flash: data, parts and zeroes, dirty and clean.
            let mut round = 0;
            while !is_past() {
                client.put(round % 4 * 3 * CHUNK, 2 * CHUNK, 2001 + 100 * round as u32).await;
                client.flush().await;
                round += 1;
                assert!(round < 200, "the budget is never spent");
            }
            client.put(CHUNK, CHUNK, 50_001).await;
            client.put(6 * CHUNK + 1, 3, 50_101).await;
            client.flush().await;
            client.put_durably(10 * CHUNK + 4, 2, 50_201).await;
            client.trim(2 * CHUNK, CHUNK + 3).await;
            client.check(0, 12 * CHUNK).await;
            client.cache.wait_for_insertions().await;
            client.put(CHUNK, 2 * CHUNK, 50_301).await;
            client.flush().await;
            client.checkpoint().await;
            client.put(4 * CHUNK, CHUNK, 50_401).await;
        })
    });
    sweep(&Scenario { wear_left: Some(48 << 10), ..past });
}

#[test]
fn crash_sweep_mode_switches() {
    sweep(&scenario("mode switches", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 4 * CHUNK, 1001).await;
            client.flush().await;
            client.sweep_from_here();
            for (i, mode) in (0..).zip([WriteMode::Through, WriteMode::Back, WriteMode::Around, WriteMode::Back]) {
                let stamp = 2001 + 1000 * i;
                // This write is not flushed before the switch, also not for the sake of clean
                // mappings; from then on another device gets the flushes.
                client.checkpoint().await;
                client.put(7 * CHUNK + 1, 2, stamp + 300).await;
                let writes = async {
                    client.put(CHUNK, CHUNK, stamp).await;
                    client.flush().await;
                    client.put(5 * CHUNK + 2, 2, stamp + 100).await;
                    client.trim(2 * CHUNK, CHUNK).await;
                };
                all(vec![Box::pin(client.set_mode(mode)), Box::pin(writes)]).await;
                client.put(2 * CHUNK, 2, stamp + 200).await;
                client.check(0, 6 * CHUNK).await;
                client.flush().await;
            }
        })
    }));
}

#[test]
fn crash_sweep_closing() {
    sweep(&scenario("closing", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 4 * CHUNK, 1001).await;
            client.put(10 * CHUNK + 1, 2, 1101).await;
            client.trim(20 * CHUNK, 3 * CHUNK).await;
            client.flush().await;
            client.put(2 * CHUNK, CHUNK, 2001).await;
            client.sweep_from_here();
            client.close().await;
        })
    }));
}

/// The origin gets everything, and the flash is no cache any more.
#[test]
fn crash_sweep_detaching() {
    let mut detaching = scenario("detach", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 4 * CHUNK, 1001).await;
            client.put(10 * CHUNK + 1, 2, 1101).await;
            client.trim(20 * CHUNK, 3 * CHUNK).await;
            client.flush().await;
            client.put(2 * CHUNK, CHUNK, 2001).await;
            client.put(11 * CHUNK, 1, 2101).await;
            client.sweep_from_here();
            let writes = async {
                for i in 0..3 {
                    client.put_if_open((30 + i) * CHUNK, CHUNK, 3001 + 100 * i as u32).await;
                    client.put_if_open(2 * CHUNK + 2 * i, 2, 4001 + 100 * i as u32).await;
                }
            };
            all(vec![Box::pin(client.detach()), Box::pin(writes)]).await;
        })
    });
    detaching.detaches = true;
    sweep(&detaching);
}

/// Data that only the origin has, and not durably.
#[test]
fn crash_sweep_detaching_in_write_through() {
    let mut detaching = scenario("detach in write-through", WriteMode::Through, |client| {
        Box::pin(async move {
            client.put(0, 4 * CHUNK, 1001).await;
            client.flush().await;
            client.put(2 * CHUNK, CHUNK, 2001).await;
            client.trim(3 * CHUNK, CHUNK).await;
            client.put(11 * CHUNK, 1, 2101).await;
            client.sweep_from_here();
            client.detach().await;
        })
    });
    detaching.detaches = true;
    sweep(&detaching);
}

/// Crashes of the opening that follows a crash, in every way again.
#[test]
fn crash_sweep_recovery() {
    let mut recovery = scenario("recovery", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 3 * CHUNK, 1001).await;
            client.flush().await;
            client.destage().await;
            client.checkpoint().await;
            client.sweep_from_here();
            client.put(CHUNK, CHUNK, 2001).await;
            client.put(6 * CHUNK + 1, 2, 2101).await;
            client.flush().await;
            client.put(0, CHUNK, 3001).await;
            client.checkpoint().await;
        })
    });
    recovery.sweep_recovery = true;
    sweep(&recovery);
}
