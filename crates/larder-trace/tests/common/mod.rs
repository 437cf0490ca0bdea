//! The shared part of the tests of traces: records of bytes, and the folder of traces.

use std::{
    io::{Cursor, Write},
    path::{Path, PathBuf},
};

use larder_trace::{FormatId, ReaderOptions, Record, TraceError, TraceReader, TraceResult};

/// Returns the folder of traces beside the checkout, or prints a line and returns `None`.
pub fn traces(test: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: {test} (no folder shared/traces beside the checkout)");
    }
    found
}

/// Opens bytes in memory.
pub fn reader(bytes: &[u8], format: Option<FormatId>, options: ReaderOptions) -> TraceResult<TraceReader> {
    TraceReader::from_read("t", Cursor::new(bytes.to_vec()), format, options)
}

/// Returns all records of a sound trace.
pub fn records(bytes: &[u8], format: FormatId) -> Vec<Record> {
    let reader = reader(bytes, Some(format), ReaderOptions::default()).expect("opens");
    reader.map(|record| record.expect("a sound record")).collect()
}

/// Returns the number of records before the first error, and that error.
pub fn first_error(bytes: &[u8], format: Option<FormatId>, options: ReaderOptions) -> (usize, Option<TraceError>) {
    let reader = match reader(bytes, format, options) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut count = 0;
    for record in reader {
        match record {
            Ok(_) => count += 1,
            Err(error) => return (count, Some(error)),
        }
    }
    (count, None)
}

/// Packs with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("packs");
    encoder.finish().expect("packs")
}
