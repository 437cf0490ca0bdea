//! The options that all commands that open an origin take.
//!
//! It leaves the origin's place to each command.

use super::values::seconds;
use clap::Args;
use std::time::Duration;

/// The limits on an origin's time.
#[derive(Clone, Copy, Debug, Args)]
pub struct OriginLimits {
    /// How long a connection to the origin may take to open. A request that waits longer raises a
    /// condition, and goes on waiting
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_hyphen_values = true)]
    pub origin_timeout: Duration,
}
