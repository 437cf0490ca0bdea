//! Concatenated packed streams, as `cat` joins zstd frames, gzip members and xz streams.
//!
//! Invariants: bytes that begin no further stream are told apart from a stream that was cut.
//!
//! It does not unpack. It leaves this to libraries.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
};

#[cfg(feature = "packed")]
use lzma_rust2::XzReader;

/// Bytes of one read of packed input.
const BUFFER_BYTES: usize = 128 << 10;
/// The largest zstd window is 2^27 bytes (128 MiB), as for plain `zstd -d`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The most memory that an xz file may make us allocate, in KiB: `xz -9` needs 65 MiB.
#[cfg(feature = "packed")]
pub const XZ_MEMORY_KIB_MAX: u32 = 512 << 10;

/// The error that other bytes follow the last stream.
#[derive(Debug)]
pub struct BytesBehind;

impl fmt::Display for BytesBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("other bytes follow the end of the stream")
    }
}

impl std::error::Error for BytesBehind {}

/// One packed stream: a zstd frame, a gzip member, or an xz stream.
pub trait Stream: Read + Sized {
    /// The source of its bytes.
    type Source: BufRead;

    /// Begins a stream at its first byte.
    fn begin(source: Self::Source) -> io::Result<Self>;

    /// Returns the source behind the stream's last byte.
    fn end(self) -> Self::Source;

    /// Returns whether these bytes, one or more, may begin a stream.
    fn is_begun_by(head: &[u8]) -> bool;

    /// Passes over the padding that a format allows between two streams and at the end.
    fn pass_padding(_source: &mut Self::Source) -> io::Result<()> {
        Ok(())
    }
}

impl<R: Read> Stream for zstd::Decoder<'static, BufReader<R>> {
    type Source = BufReader<R>;

    fn begin(source: BufReader<R>) -> io::Result<Self> {
        let mut decoder = zstd::Decoder::with_buffer(source)?.single_frame();
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(decoder)
    }

    fn end(self) -> BufReader<R> {
        self.finish()
    }

    fn is_begun_by(head: &[u8]) -> bool {
        let begins = |magic: [u8; 4]| head.iter().zip(magic).all(|(byte, expected)| *byte == expected);
        // Skippable frames have one of 16 numbers.
        begins([0x28, 0xb5, 0x2f, 0xfd])
            || head.first().is_some_and(|first| begins([0x50 | first & 15, 0x2a, 0x4d, 0x18]))
    }
}

#[cfg(feature = "packed")]
impl<R: Read> Stream for flate2::bufread::GzDecoder<BufReader<R>> {
    type Source = BufReader<R>;

    fn begin(source: BufReader<R>) -> io::Result<Self> {
        Ok(flate2::bufread::GzDecoder::new(source))
    }

    fn end(self) -> BufReader<R> {
        self.into_inner()
    }

    fn is_begun_by(head: &[u8]) -> bool {
        head.iter().zip([0x1f, 0x8b, 0x08]).all(|(byte, expected)| *byte == expected)
    }
}

#[cfg(feature = "packed")]
impl<R: Read> Stream for XzReader<BufReader<R>> {
    type Source = BufReader<R>;

    fn begin(source: BufReader<R>) -> io::Result<Self> {
        Ok(XzReader::new_mem_limit(source, false, XZ_MEMORY_KIB_MAX))
    }

    fn end(self) -> BufReader<R> {
        self.into_inner()
    }

    fn is_begun_by(head: &[u8]) -> bool {
        head.iter().zip(b"\xfd7zXZ\0").all(|(byte, expected)| byte == expected)
    }

    /// Passes over zeroes, four at a time (The .xz File Format, §2.2).
    fn pass_padding(source: &mut BufReader<R>) -> io::Result<()> {
        let mut zeroes = 0usize;
        loop {
            let head = source.fill_buf()?;
            let found = head.iter().take_while(|byte| **byte == 0).count();
            let is_end = head.is_empty() || found < head.len();
            source.consume(found);
            zeroes += found;
            if is_end {
                return if zeroes.is_multiple_of(4) { Ok(()) } else { Err(io::Error::other(BytesBehind)) };
            }
        }
    }
}

/// See the module.
pub struct PackedStreams<S> {
    /// The current stream; `None` behind the last, and after an error of the library.
    current: Option<S>,
}

impl<R: Read, S: Stream<Source = BufReader<R>>> PackedStreams<S> {
    /// Begins at the first byte of the first stream.
    pub fn new(source: R) -> io::Result<PackedStreams<S>> {
        Ok(PackedStreams { current: Some(S::begin(BufReader::with_capacity(BUFFER_BYTES, source))?) })
    }
}

impl<S: Stream> Read for PackedStreams<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(stream) = &mut self.current {
            let read = stream.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let Some(mut source) = self.current.take().map(S::end) else { break };
            S::pass_padding(&mut source)?;
            let head = source.fill_buf()?;
            if head.is_empty() {
                break;
            }
            if !S::is_begun_by(head) {
                return Err(io::Error::other(BytesBehind));
            }
            self.current = Some(S::begin(source)?);
        }
        Ok(0)
    }
}
