//! The measurements of a replay, as JSON and as a page.
//!
//! Invariants: keys have their unit in the name. Latencies are kept to three digits.
//!
//! It does not measure.

use hdrhistogram::Histogram;
use larder::{
    error::{Failure, Outcome},
    output::aligned,
    size::{count, human},
};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

use super::counts::Counts;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// Latencies of one kind of request.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// Returns an empty set.
    ///
    /// # Errors
    /// None in practice.
    pub fn new() -> Outcome<Latencies> {
        Histogram::new(DIGITS).map(Latencies).map_err(|error| Failure::failed(format_args!("no histogram: {error}")))
    }

    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        // It grows as needed; no time is beyond a histogram.
        let _ = self.0.record(latency.as_nanos().try_into().unwrap_or(u64::MAX));
    }

    fn summary(&self) -> Option<Summary> {
        let us = |nanos: u64| nanos as f64 / 1000.0;
        let at = |share: f64| us(self.0.value_at_quantile(share));
        (!self.0.is_empty()).then(|| Summary {
            requests: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: us(self.0.max()),
        })
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    requests: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    max_us: f64,
}

/// The requests made of the trace, from the warm-up on.
#[derive(Default)]
pub struct Tally {
    /// Requests, by reads, writes, trims and flushes.
    pub requests: [u64; 4],
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// The time of all of it.
    pub elapsed: Duration,
}

/// The verdicts on the blocks read, the warm-up's included: a wrong one counts at any time.
#[derive(Default)]
pub struct Verified {
    /// Blocks with the expected content.
    pub right: u64,
    /// Blocks without a known content.
    pub unknown: u64,
    /// Blocks that differ from their last content.
    pub wrong: u64,
}

/// The report.
#[derive(Serialize)]
pub struct BenchReport {
    trace: String,
    content: &'static str,
    target: String,
    outstanding: u16,
    pace: String,
    block_bytes: u64,
    warmup_requests: u64,
    requests: u64,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    read_bytes: u64,
    write_bytes: u64,
    seconds: f64,
    requests_per_second: f64,
    bytes_per_second: f64,
    blocks_verified: u64,
    blocks_unknown: u64,
    blocks_wrong: u64,
    trace_contradictions: u64,
    read_latency: Option<Summary>,
    write_latency: Option<Summary>,
    trim_latency: Option<Summary>,
    flush_latency: Option<Summary>,
    /// The lateness of requests; none at full pace.
    late: Option<Summary>,
    /// The cache's counts meanwhile.
    cache: Option<Counts>,
}

/// The description of a replay.
pub struct About {
    /// The trace's file.
    pub trace: String,
    /// The source of its content.
    pub content: &'static str,
    /// The device of the replay.
    pub target: String,
    /// Requests under way at most.
    pub outstanding: u16,
    /// The times of requests.
    pub pace: String,
    /// Bytes of a block of content.
    pub block_bytes: u64,
    /// Requests before the measured ones.
    pub warmup_requests: u64,
    /// Reads of the trace that differ from its own writes.
    pub contradictions: u64,
}

impl BenchReport {
    /// Makes the report: the latencies of reads, writes, trims and flushes, and the lateness.
    pub fn new(
        about: About,
        tally: &Tally,
        verified: &Verified,
        latencies: &[Latencies; 4],
        late: &Latencies,
        counts: Counts,
    ) -> BenchReport {
        let seconds = tally.elapsed.as_secs_f64();
        let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let [reads, writes, trims, flushes] = tally.requests;
        let [read_bytes, write_bytes] = tally.bytes;
        let [read, write, trim, flush] = latencies;
        let requests = reads + writes + trims + flushes;
        BenchReport {
            trace: about.trace,
            content: about.content,
            target: about.target,
            outstanding: about.outstanding,
            pace: about.pace,
            block_bytes: about.block_bytes,
            warmup_requests: about.warmup_requests,
            requests,
            reads,
            writes,
            trims,
            flushes,
            read_bytes,
            write_bytes,
            seconds,
            requests_per_second: per_second(requests),
            bytes_per_second: per_second(read_bytes + write_bytes),
            blocks_verified: verified.right,
            blocks_unknown: verified.unknown,
            blocks_wrong: verified.wrong,
            trace_contradictions: about.contradictions,
            read_latency: read.summary(),
            write_latency: write.summary(),
            trim_latency: trim.summary(),
            flush_latency: flush.summary(),
            late: late.summary(),
            cache: (!counts.is_empty()).then_some(counts),
        }
    }

    /// Returns the page for people.
    pub fn page(&self) -> String {
        let mut out = format!("{} on {}\n", self.trace, self.target);
        let pace = format!("{}, at most {} requests under way", self.pace, self.outstanding);
        let made = format!(
            "{} in {:.3} s: {} reads, {} writes, {} trims, {} flushes",
            count(self.requests),
            self.seconds,
            count(self.reads),
            count(self.writes),
            count(self.trims),
            count(self.flushes)
        );
        let rate = format!(
            "{} a second, {}/s",
            count(self.requests_per_second.round() as u64),
            human(self.bytes_per_second.round() as u64)
        );
        let verified = format!(
            "{}, of them wrong {}{}",
            count(self.blocks_verified + self.blocks_wrong),
            count(self.blocks_wrong),
            if self.warmup_requests > 0 { "; the warm-up is among them" } else { "" }
        );
        aligned(
            &mut out,
            &[
                ("content", format!("{}, blocks of {}", self.content, human(self.block_bytes))),
                ("pace", pace),
                ("requests", made),
                ("rate", rate),
                ("blocks verified", verified),
            ],
        );
        self.add_latencies(&mut out);
        if let Some(cache) = &self.cache {
            add_cache(&mut out, cache);
        }
        out
    }

    fn add_latencies(&self, out: &mut String) {
        let latencies = [
            ("reads", self.read_latency),
            ("writes", self.write_latency),
            ("trims", self.trim_latency),
            ("flushes", self.flush_latency),
            ("late", self.late),
        ];
        out.push_str(&format!(
            "Latency in microseconds\n  {:<26}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            "", "mean", "50%", "90%", "99%", "99.9%", "longest"
        ));
        for (name, summary) in latencies {
            let Some(Summary { mean_us, p50_us, p90_us, p99_us, p99_9_us, max_us, .. }) = summary else { continue };
            out.push_str(&format!("  {name:<26}"));
            for value in [mean_us, p50_us, p90_us, p99_us, p99_9_us, max_us] {
                out.push_str(&format!("{value:>10.1}"));
            }
            out.push('\n');
        }
    }
}

fn add_cache(out: &mut String, cache: &Counts) {
    let number = |key: &str| cache.get(key).and_then(Value::as_u64).unwrap_or(0);
    let ratio = cache.get("read_hit_ratio").and_then(Value::as_f64).unwrap_or(0.0);
    let read = format!(
        "{}, and {} of metadata",
        human(number("flash_data_bytes_read")),
        human(number("flash_region_bytes_read"))
    );
    out.push_str("The cache meanwhile\n");
    aligned(
        out,
        &[
            ("read hits", format!("{:.2}% of {} chunks", 100.0 * ratio, count(number("read_chunks")))),
            ("flash written", human(number("flash_bytes_written"))),
            ("flash read", read),
            ("origin read", human(number("origin_bytes_read"))),
            ("origin written", human(number("origin_bytes_written"))),
        ],
    );
}
