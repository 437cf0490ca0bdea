//! The opening of a trace, and words for the source of its content.
//!
//! It does not read records.

use super::{pipe, watch::Watch};
use crate::args::InputArgs;
use larder_trace::{
    FormatId, Position, Provenance, ReaderOptions, TraceError, TraceErrorKind, TraceReader, TraceResult,
};

/// The purpose of opening a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is read once, as it is.
    Once,
    /// It is replayed or re-chunked.
    ///
    /// The file must be readable again, and its content be in blocks of one size.
    Replay,
}

/// Opens the trace of the command line.
pub(crate) fn open(args: &InputArgs, what_for: Use, watch: &Watch) -> TraceResult<TraceReader> {
    let block_bytes = args.unit.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    let one_block_size = what_for == Use::Replay;
    let InputArgs { how, skip_bad, .. } = args;
    let (format, columns, skip_bad) = (how.id(), how.columns, *skip_bad);
    let options = ReaderOptions { skip_bad, block_bytes, columns, one_block_size, ..ReaderOptions::default() };
    let reader = match pipe::is_stream(&args.file) {
        false => larder_trace::open(&args.file, format, options)?,
        true => {
            let name = args.file.display().to_string();
            if what_for == Use::Replay {
                let message = "expected a file, since it is read more than once, found a pipe or the like: write it to a file first";
                return Err(TraceError::new(TraceErrorKind::Io, &name, Position::Whole, message));
            }
            let stream = pipe::Stream::open(&args.file, watch.ending());
            TraceReader::from_read(&name, stream, format, options)?
        }
    };
    if args.unit.is_some() && !reader.format().counts_blocks() {
        let names: Vec<&str> = FormatId::ALL.into_iter().filter(|id| id.counts_blocks()).map(FormatId::name).collect();
        let names = names.join(", ");
        return Err(TraceError::parameter(format!("--unit goes with {names}, and this is {}", reader.format())));
    }
    Ok(reader)
}

/// Returns words for people about the content's source.
pub(super) fn provenance_words(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Recorded => "recorded",
        Provenance::SizeMade => "recorded, but compressed sizes are MADE UP",
        Provenance::Made => "MADE UP",
    }
}

/// Returns the same for programs.
pub(crate) fn provenance_name(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Recorded => "recorded",
        Provenance::SizeMade => "sizes_made_up",
        Provenance::Made => "made_up",
    }
}
