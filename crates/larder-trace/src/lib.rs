//! Block traces: readers for the common formats, chunking, statistics, generators and writers.
//!
//! Role: [`open`] reads a trace of any format as a stream of [`Record`]s. Everything that makes or
//! changes a trace is an iterator over `TraceResult<Record>`, too, so that readers, generators and
//! adapters combine.
//!
//! Invariants: traces stream. Memory grows with the working set at most, and each module gives the
//! bytes. Bytes of a file never cause a panic. Randomness comes from a seed alone, and the same
//! seed gives the same trace on every machine and in every version.
//!
//! It does not replay a trace, or know about caches.

mod block_size;
pub mod chunk;
mod detect;
pub mod error;
mod foreign;
pub mod formats;
pub mod generate;
pub mod info;
mod input;
mod parse;
pub mod reader;
pub mod rechunk;
pub mod record;
pub mod rng;
mod runs;
mod sink;
pub mod synthetic;
mod trimmed;
pub mod whole;
pub mod write;
pub mod zero;
pub mod zipf;

pub use chunk::{ChunkRequest, Chunks, chunks};
pub use error::{Position, TraceError, TraceErrorKind, TraceResult};
pub use formats::{FormatId, columns::Columns};
pub use info::{ContentInfo, Info, InfoCollector};
pub use input::Packing;
pub use reader::{ReaderOptions, TraceReader, detect, open};
pub use rechunk::{Initial, RechunkOptions, Rechunked, Rechunker, Unknown};
pub use record::{ContentId, Op, Provenance, Record, Tag, TraceContent};
pub use sink::BackSteps;
pub use synthetic::{Compressibility, SyntheticOptions, WithContent, with_content, with_sizes};
pub use whole::whole_requests;
pub use write::{AustereWriter, ContentWriter, CsvWriter, OracleGeneralWriter, RecordWriter, WriteTotals, convert};
