//! The offline bound, against hand-made sequences and real caches.
//!
//! The tests are textbook sequences by hand, small games against every possible cache, larger ones
//! against LRU, and the traces beside the checkout.

mod game;
mod lru;
mod textbook;
mod traces;
