//! Made-up content and sizes, for traces that have none.
//!
//! All of it is labelled: [`Provenance::Made`] and [`Provenance::SizeMade`].
//!
//! Source: Nitro §5.2 and AustereCache §5.1 give each fingerprint a compression ratio that
//! follows a normal distribution with mean 2 and variance 0.25. (The output of AustereCache's own
//! generator has 0.25 for the deviation; set a variance of 0.0625 for that.) A ratio below 1 is
//! content that does not shrink.
//!
//! Invariants: a size is a function of seed and fingerprint, so equal content compresses equally
//! everywhere. A read gives the last written content, or the block's content before the trace.
//! Sizes take no memory. Content takes a slot of 17 bytes for each distinct block (in a map of
//! which 44 to 87% are full).
//!
//! It does not replace content or sizes of a trace.

use hashbrown::HashMap;

use crate::{
    error::{TraceError, TraceResult},
    record::{CONTENT_BYTES_MAX, ContentId, Op, Provenance, Record, TraceContent},
    rng::{TraceRng, mix, normal},
};

/// The distribution of the compression ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compressibility {
    /// Mean of the ratio of raw to compressed bytes.
    pub mean: f64,
    /// Its variance.
    pub variance: f64,
    /// Another seed gives each fingerprint another ratio.
    pub seed: u64,
}

impl Default for Compressibility {
    fn default() -> Self {
        Compressibility { mean: 2.0, variance: 0.25, seed: 0 }
    }
}

impl Compressibility {
    /// Returns the compression ratio of a fingerprint, at least 1.
    pub fn ratio(&self, fingerprint: ContentId) -> f64 {
        let [a, b] = fingerprint.0;
        let word = mix(a ^ mix(b ^ mix(self.seed)));
        let ratio = self.mean + self.variance.max(0.0).sqrt() * normal(word, mix(word));
        if ratio >= 1.0 { ratio } else { 1.0 }
    }

    /// Returns the compressed size of `bytes` of that content.
    pub fn stored_bytes(&self, fingerprint: ContentId, bytes: u32) -> u32 {
        (f64::from(bytes) / self.ratio(fingerprint)).ceil() as u32
    }
}

/// Returns the fingerprint of the content with a number: distinct numbers give distinct
/// fingerprints.
pub(crate) fn made_fingerprint(seed: u64, number: u64) -> ContentId {
    // `mix` is a bijection, so the second word alone tells numbers apart.
    ContentId([mix(mix(seed) ^ mix(number)), mix(number ^ mix(seed ^ 0x6d61_6465))])
}

/// Returns the content with a number.
pub(crate) fn made_content(seed: u64, number: u64, bytes: u32, compress: &Compressibility) -> TraceContent {
    let fingerprint = made_fingerprint(seed, number);
    let stored_bytes = Some(compress.stored_bytes(fingerprint, bytes));
    TraceContent { fingerprint, stored_bytes, is_zero: false, provenance: Provenance::Made }
}

/// Draws a number from 1 to `count`, small ones more often: the k-th about 1/k as often as the
/// first.
pub(crate) fn skewed(rng: &mut TraceRng, count: u64) -> u64 {
    ((count as f64).powf(rng.unit()) as u64).clamp(1, count.max(1))
}

/// Gives sizes to content that has none, as in the FIU traces.
pub fn with_sizes<I>(records: I, compress: Compressibility) -> impl Iterator<Item = TraceResult<Record>>
where
    I: IntoIterator<Item = TraceResult<Record>>,
{
    records.into_iter().map(move |record| {
        let mut record = record?;
        if let Some(content) = record.content.as_mut().filter(|content| content.stored_bytes.is_none()) {
            let bytes = record.len_bytes.min(CONTENT_BYTES_MAX) as u32;
            // Zeroes have LZ4's size, not a random one.
            let stored = if content.is_zero {
                bytes.div_ceil(255) + 9
            } else {
                compress.stored_bytes(content.fingerprint, bytes)
            };
            content.stored_bytes = Some(stored.min(bytes));
            content.provenance = content.provenance.max(Provenance::SizeMade);
        }
        Ok(record)
    })
}

/// The options of made-up content.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticOptions {
    /// Bytes of a content block. A request is rounded out to whole blocks.
    pub block_bytes: u32,
    /// The share (0 to 1) of writes and of first reads that repeat earlier content. A first read is
    /// one of a block before its first write. Recent content is repeated more often.
    pub duplication: f64,
    /// The distribution of the compression ratio.
    pub compress: Compressibility,
    /// The seed; another seed makes other content.
    pub seed: u64,
}

impl Default for SyntheticOptions {
    fn default() -> Self {
        SyntheticOptions { block_bytes: 4096, duplication: 0.5, compress: Compressibility::default(), seed: 0 }
    }
}

/// Gives content to reads and writes that have none. Each becomes a record a block, of one request.
pub fn with_content<I>(records: I, options: SyntheticOptions) -> TraceResult<WithContent<I::IntoIter>>
where
    I: IntoIterator<Item = TraceResult<Record>>,
{
    let is_block = options.block_bytes.is_power_of_two() && (512..=1 << 20).contains(&options.block_bytes);
    if !is_block {
        return Err(TraceError::parameter("expected a block of 512 bytes to 1 MiB, a power of two"));
    }
    if !(0.0..=1.0).contains(&options.duplication) {
        return Err(TraceError::parameter("expected a duplication of 0 to 1"));
    }
    let rng = TraceRng::new(options.seed);
    Ok(WithContent { records: records.into_iter(), options, rng, held: HashMap::new(), contents: 0, open: None })
}

/// See [`with_content`].
pub struct WithContent<I> {
    records: I,
    options: SyntheticOptions,
    rng: TraceRng,
    /// The number of each block's content.
    held: HashMap<u64, u64>,
    /// Contents made so far.
    contents: u64,
    /// The record that is being split, and its remaining blocks.
    open: Option<(Record, std::ops::Range<u64>)>,
}

impl<I> WithContent<I> {
    fn draw(&mut self) -> u64 {
        if self.contents > 0 && self.rng.chance(self.options.duplication) {
            return self.contents - skewed(&mut self.rng, self.contents);
        }
        self.contents += 1;
        self.contents - 1
    }

    fn block(&mut self, record: &Record, block: u64) -> Record {
        let held = self.held.get(&block).copied();
        let number = match held {
            Some(number) if record.op == Op::Read => number,
            _ => self.draw(),
        };
        self.held.insert(block, number);
        let SyntheticOptions { block_bytes, seed, compress, .. } = self.options;
        let bytes = u64::from(block_bytes);
        let content = Some(made_content(seed, number, block_bytes, &compress));
        Record { offset_bytes: block * bytes, len_bytes: bytes, content, ..*record }
    }
}

impl<I: Iterator<Item = TraceResult<Record>>> Iterator for WithContent<I> {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((record, mut blocks)) = self.open.take()
                && let Some(block) = blocks.next()
            {
                let made = self.block(&record, block);
                self.open = Some((record, blocks));
                return Some(Ok(made));
            }
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            if !record.is_data() || record.content.is_some() {
                return Some(Ok(record));
            }
            let bytes = u64::from(self.options.block_bytes);
            self.open = Some((record, record.offset_bytes / bytes..record.end_bytes().div_ceil(bytes)));
        }
    }
}
