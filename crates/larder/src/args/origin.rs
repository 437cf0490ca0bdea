//! The options that all commands that open an origin take.
//!
//! What it does not do: say where the origin is; each command does.

use super::values::seconds;
use clap::Args;
use std::time::Duration;

/// How long an origin may take.
#[derive(Clone, Copy, Debug, Args)]
pub struct OriginLimits {
    /// How long the origin may take to be connected to; a request that waits longer raises a condition, and goes on waiting
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_hyphen_values = true)]
    pub origin_timeout: Duration,
}
