//! The engine's tests on simulated devices, in one program: a module for each suite. So the common
//! parts are compiled once, and long tests of one suite run beside those of the next.
//!
//! Some tests are programs of their own. `simulation/` and `interleavings/` have a front of their
//! own; the second is also the engine's own source under other locks. The threads of `threads/`
//! should have the cores to themselves, and `make tsan` builds it by itself.

#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod contract;
mod crash_sweep;
mod degraded;
mod durability;
mod eviction;
mod fault_sweep;
mod faults;
#[path = "../common/fence.rs"]
mod fence;
mod held_addresses;
mod joined_trims;
mod kept_trims;
mod modes;
mod noted_superblocks;
mod origin_again;
mod origin_reads;
mod ram_budget;
mod recovery;
mod reduction;
mod shared_reads;
mod shortages;
mod sibling_addresses;
mod stalled;
mod streams;
mod trims;
mod unlinked;
mod warmth;
#[path = "../common/wear.rs"]
mod wear;
mod wear_budget;
#[path = "../common/world.rs"]
mod world;

use common::design;
