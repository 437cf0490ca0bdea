//! The tests of the papers' experiments, in one program, with a module for each suite.

mod papers_caftl;
mod papers_nitro_cachededup;
mod papers_pareto;
mod reproduction;
