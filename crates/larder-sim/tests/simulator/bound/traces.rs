//! The traces beside the checkout, if there are any.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use larder_core::Fingerprint;
use larder_sim::{
    bound::{BoundCollector, BoundTraces, Zeroes},
    cache::Content,
};
use larder_trace::{Op, ReaderOptions};

/// Returns the folder of traces beside the checkout, or prints a line and returns `None`.
fn traces(test: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: {test} (no folder shared/traces beside the checkout)");
    }
    found
}

/// Returns the bound's traces of a trace with content, and the bytes of its working set. Chunks are
/// the trace's own, of 4 KiB.
fn collect(path: &Path, zeroes: Zeroes) -> (BoundTraces, u64) {
    let mut collector = BoundCollector::new(zeroes);
    let mut touched = HashSet::new();
    for record in larder_trace::open(path, None, ReaderOptions::default()).expect("opens") {
        let record = record.expect("a sound record");
        let Some(known) = record.content else { continue };
        let fingerprint = Fingerprint(known.fingerprint.to_u128().to_be_bytes());
        let content = Content { fingerprint, stored_bytes: known.stored_bytes.unwrap_or(record.len_bytes as u32) };
        let is_first = touched.insert(record.offset_bytes);
        match record.op {
            Op::Read if is_first => collector.first_read(&content, known.is_zero),
            Op::Read => collector.read(&content, known.is_zero),
            _ => collector.write(&content, known.is_zero),
        }
        .expect("fits");
    }
    (collector.finish(), touched.len() as u64 * 4096)
}

#[test]
fn bounds_of_shared_traces_are_sane() {
    let Some(traces) = traces("bounds_of_shared_traces_are_sane") else { return };
    for (name, reads) in
        [("devbuild", 571_539), ("apt-clones", 1_316_618), ("vm-boot", 370_729), ("postgres-tpcb", 315_697)]
    {
        let (traces, working_set) = collect(&traces.join(format!("{name}.trace.zst")), Zeroes::Free);
        let trace = &traces.addresses;
        assert_eq!(trace.reads(), reads, "{name}");
        let percents = [0, 1, 10, 100];
        let capacities = percents.map(|percent| working_set * percent / 100);
        let sized = trace.with_sizes(&[u64::MAX])[0];
        let all = sized.read_hits_lower;
        assert_eq!(sized.read_hits_upper, all, "{name}");
        assert_eq!(trace.read_hit_ratio_in_chunks(u64::MAX), sized.read_hit_ratio_upper(), "{name}");
        let mut before = (0.0, 0);
        for (bytes, sized) in capacities.into_iter().zip(trace.with_sizes(&capacities)) {
            let places = trace.read_hit_ratio_in_chunks(bytes / 4096);
            let revealed = traces.contents.read_hit_ratio_in_chunks(bytes / 4096);
            assert!(before.0 <= places && places <= revealed, "{name}: {bytes} bytes");
            assert!(
                sized.read_hits_lower <= sized.read_hits_upper && sized.read_hits_upper <= all,
                "{name}: {sized:?}"
            );
            // The exact optimum in bytes grows with the capacity, so each upper bound is above each
            // lower one before.
            assert!(sized.read_hits_upper >= before.1, "{name}: {bytes} bytes");
            // No content takes more than its place.
            assert!(sized.read_hit_ratio_upper() >= places, "{name}: {bytes} bytes");
            before = (places, sized.read_hits_lower);
            println!(
                "{name}, {bytes} bytes: {:.4} in chunks of 4 KiB, {:.4} if contents are revealed; compressed {:.4} to \
                 {:.4}, with {} to {} bytes written",
                places,
                revealed,
                sized.read_hit_ratio_lower(),
                sized.read_hit_ratio_upper(),
                sized.written_lower,
                sized.written_upper
            );
        }
    }
}
