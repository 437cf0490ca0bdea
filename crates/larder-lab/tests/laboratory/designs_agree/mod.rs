//! The simulator and the engine decide alike. [`slots`] compares the designs with slots of one
//! chunk, and [`buckets`] AustereCache, one request at a time. [`logs`] compares all designs under
//! concurrent requests, with [`written`], for each byte that goes to flash.
//!
//! Requests are drawn, or come from the real traces beside the checkout, if they are there. The
//! tests take the first so many chunks of each trace, or the first `LARDER_REQUESTS`, of the traces
//! that `LARDER_TRACES` names. A trace without contents gets a content of its own for each address.
//!
//! It leaves out faults of a device, because later decisions depend on bytes.

mod buckets;
mod executed;
mod logs;
mod requests;
mod slots;
mod written;
