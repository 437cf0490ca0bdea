//! The fuzz target of this crate, from seeds: readers of traces over bytes that are no traces.
//! `fuzz/src/trace.rs` has the properties.

#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../../../fuzz/src/trace.rs"]
mod trace;

#[test]
fn readers_of_any_bytes() {
    seeded::check("trace", &trace::seeds(), 30_000, trace::run);
}
