//! The simulator and the engine decide alike: [`slots`] for the designs with slots of one chunk, [`buckets`] for AustereCache, one request
//! at a time; [`logs`] for all designs, whatever is asked at the same time, with [`written`], for each byte that goes to flash.
//! Requests are drawn, and those of the real traces beside the checkout, where they are there: the first so many chunks of each, or
//! the first `LARDER_REQUESTS`, of those that `LARDER_TRACES` names. A trace that says nothing of its blocks has content of its own for
//! each address.
//!
//! What it does not do: faults of a device, after which what is decided depends on bytes.

mod buckets;
mod logs;
mod requests;
mod slots;
mod written;
