//! The counts of a cache during a replay: the difference of two of its statuses.
//!
//! Invariants: only counts are subtracted; ratios are computed anew.
//!
//! It does not know the caches of other programs, which answer no such request.

use larder::{
    error::{Failure, Outcome},
    flash::Access,
    volume::{Reached, reach},
};
use larder_engine::{Cache, status::CounterValues};
use serde_json::{Map, Value};
use std::{path::PathBuf, sync::Arc};

/// The source of counts.
pub enum Counting {
    /// The cache in this process.
    Here(Arc<Cache>),
    /// The server of the cache on this flash.
    Served(PathBuf),
    /// No source.
    Nowhere,
}

/// Counts at one moment, by name; none without a source.
pub type Counts = Map<String, Value>;

impl Counting {
    /// Returns the counts now.
    ///
    /// # Errors
    /// A sentence, if no answer comes.
    pub fn now(&self) -> Outcome<Counts> {
        let status = match self {
            Counting::Nowhere => return Ok(Counts::new()),
            Counting::Here(cache) => serde_json::to_value(cache.status())
                .map_err(|error| Failure::failed(format_args!("the status is no JSON: {error}")))?,
            Counting::Served(flash) => match reach(flash, None, "status", Access::Read)? {
                Reached::Served(status) => status,
                Reached::Alone(_) => {
                    return Err(Failure::failed(format_args!(
                        "the cache on {} has no server: name the flash of the Larder that serves the export",
                        flash.display()
                    )));
                }
            },
        };
        let Value::Object(status) = status else { return Ok(Counts::new()) };
        let mut counts = of_counters(&status);
        let written = |key: &str| status.get(key).cloned().map(|value| (key.to_owned(), value));
        counts.extend(["flash_bytes_written", "plain_cache_bytes_written"].into_iter().filter_map(written));
        Ok(counts)
    }
}

/// Returns those values of a status that are counters.
fn of_counters(status: &Counts) -> Counts {
    let Ok(Value::Object(names)) = serde_json::to_value(CounterValues::default()) else { return Counts::new() };
    names.into_iter().filter_map(|(name, _)| status.get(&name).cloned().map(|value| (name, value))).collect()
}

/// Returns the counts in between, with the ratio of hits.
pub fn between(before: &Counts, after: &Counts) -> Counts {
    let number = |counts: &Counts, name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut counted: Counts = after
        .keys()
        .map(|name| (name.clone(), number(after, name).saturating_sub(number(before, name)).into()))
        .collect();
    if !counted.is_empty() {
        let hits = number(&counted, "read_hits") + number(&counted, "prefetch_hits");
        let ratio = hits as f64 / number(&counted, "read_chunks").max(1) as f64;
        counted.insert("read_hit_ratio".into(), ratio.into());
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_subtracted_and_ratios_are_not() {
        let counts = |reads: u64, hits: u64| match json!({ "read_chunks": reads, "read_hits": hits }) {
            Value::Object(counts) => counts,
            _ => Counts::new(),
        };
        let counted = between(&counts(100, 90), &counts(120, 95));
        assert_eq!(counted["read_chunks"], 20);
        assert_eq!(counted["read_hit_ratio"], 0.25);
        assert_eq!(between(&Counts::new(), &Counts::new()), Counts::new());
    }
}
