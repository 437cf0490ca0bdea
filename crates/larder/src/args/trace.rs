//! The options of `larder trace record`: recording a block trace.
//!
//! It leaves all other work on traces to `larder-lab`.

use super::OriginLimits;
use super::values::{END_TIMEOUT, address, end_timeout, tag};
use crate::size;
use clap::{Args, Subcommand};
use larder_serve::nbd::ServeAddress;
use std::path::PathBuf;

const TRACE_EXAMPLES: &str = "\
Example:
  larder trace record --origin /dev/sdb --nbd unix:/run/larder.sock -o mine.trace.zst

`larder-lab trace` describes, converts and makes traces. docs/TRACES.md has the formats.";

const RECORD_EXAMPLES: &str = "\
Examples:
  larder trace record --origin /dev/sdb --nbd unix:/run/larder.sock -o mine.trace.zst
  larder trace record --origin disk.img --nbd tcp:127.0.0.1:10809 --tag build -o build.trace.zst

It serves the origin as `larder serve --no-cache` does, prints `ready: URI`, and records until SIGTERM or SIGINT. Only
fingerprints and sizes are kept, no content. If the trace cannot be written any more (its disk is full, say), a sentence
says so at once, and serving goes on. The records until then are kept, and the exit code is 1.";

/// `larder trace`.
#[derive(Debug, Args)]
// Without a command clap would print the whole help.
#[command(after_help = TRACE_EXAMPLES, arg_required_else_help = false)]
pub struct TraceArgs {
    /// The command.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// The commands on traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Serve a device and record its requests
    Record(RecordArgs),
}

/// The destination of a trace.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// `larder trace record`.
#[derive(Debug, Args)]
#[command(after_help = RECORD_EXAMPLES)]
pub struct RecordArgs {
    /// The device to serve: a path, nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text has the brackets of an address")]
    #[arg(long, value_name = "URI")]
    pub origin: String,
    /// The address to serve: unix:PATH or tcp:HOST:PORT; may be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address, required = true)]
    pub nbd: Vec<ServeAddress>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: OutputArgs,
    /// The fingerprinted block, a power of two from 4K to 128K
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size::parse_chunk, allow_hyphen_values = true)]
    pub chunk: u32,
    /// A word for the workload, in each line; 15 bytes count
    #[arg(long, value_name = "NAME", default_value = "", value_parser = tag, allow_hyphen_values = true)]
    pub tag: String,
    /// Name of the export
    #[arg(long, value_name = "NAME", default_value = "")]
    pub export: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub origin_limits: OriginLimits,
    /// The longest time of the end, before it is cut off
    #[arg(long, value_name = "SECONDS", default_value = END_TIMEOUT, value_parser = end_timeout())]
    pub end_timeout: u32,
}
