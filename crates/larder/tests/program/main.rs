//! The tests of the whole, most of them with the real program. One program has a module for each
//! suite. So the common parts are compiled once, and long tests of one suite run beside those of
//! the next.

mod behind_our_back;
mod bench;
mod breakages;
mod clients;
mod degraded;
mod designs_agree;
mod ends;
mod features;
mod filesystems;
mod hanging;
mod house;
mod kept_trims;
mod kills;
mod moves;
mod opening;
mod origins_agree;
mod papers;
mod papers_live;
mod power;
mod reduction;
mod refusals;
mod reloads;
mod repair;
mod request_memory;
mod shortages;
mod signals;
mod sim;
mod sim_drives;
mod sim_time;
mod support;
mod trace_formats;
mod trace_inputs;
mod traces;
mod trust;
