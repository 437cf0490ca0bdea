//! A boot storm: one boot, made into many machines that boot at once from one storage system.
//!
//! Source: Nitro §5.2 ("Boot-storm trace") and §6.2 (60 machines: the recorded one and 59 made of
//! it). "Content overlap was set at 90% between VMs, and the addresses of duplicates were shifted
//! by 0-15% of the address space."
//!
//! In our reading the overlap is over distinct contents, and holds between any two machines. All
//! machines have 90% of the boot's contents, always the same ones. In place of each of the others
//! every machine has a content of its own. A machine shifts all its addresses by one amount, and
//! wraps at the end of its disk. A shift of the duplicates alone would put two contents on one
//! address. Zeroes stay zeroes. Machines start at random within `spread_us`. Their requests are
//! merged by time, and a request's blocks stay together. Each machine has a disk of its own, side
//! by side.
//!
//! The boot is a recording (`vm-boot` of `shared/traces`, through [`boot_template`]) or made up
//! ([`SyntheticBoot`]). The made-up boot follows Nitro's figures for its own boot: 18 MB, 99%
//! reads, 14% of the I/O random, 1.2 for deduplication.
//!
//! Invariants: memory is the boot (112 bytes a record, at most [`TEMPLATE_RECORDS_MAX`]) and a few
//! words for each machine. A made-up boot keeps a slot of 17 bytes for each block that it touches.
//!
//! It does not vary the requests of the machines, only their content, addresses and start.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use hashbrown::HashMap;

use super::{whole_chunks, within};
use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    record::{ADDRESS_MAX, ContentId, Op, Provenance, Record, Tag, TraceContent},
    rng::{TraceRng, mix},
    synthetic::{Compressibility, made_content},
};

/// Records of a boot.
pub const TEMPLATE_RECORDS_MAX: usize = 4_000_000;
/// Machines of a storm.
pub const VMS_MAX: u32 = 100_000;

/// Tags that a complaint names.
const TAGS_NAMED_MAX: usize = 8;

/// Takes one machine's boot out of a recording.
///
/// The boot has the records with `tag` (any, if `None`) that lie in `disk`, until `until_us`. Its
/// addresses then begin at 0.
///
/// # Errors
///
/// A bad record, too many records, or none with `tag`.
pub fn boot_template(
    records: impl IntoIterator<Item = TraceResult<Record>>,
    tag: Option<&str>,
    disk: Range<u64>,
    until_us: Option<u64>,
) -> TraceResult<Vec<Record>> {
    let mut template = Vec::new();
    // One tag more than a complaint names tells that there are others.
    let mut tags: Vec<Tag> = Vec::new();
    let mut is_known = tag.is_none();
    for record in records {
        let mut record = record?;
        if !is_known && tags.len() <= TAGS_NAMED_MAX && !tags.contains(&record.tag) {
            tags.push(record.tag);
        }
        let is_late = record.time_us.is_some_and(|time| until_us.is_some_and(|until| time > until));
        let is_its = tag.is_none_or(|tag| record.tag == Tag::new(tag.as_bytes()));
        is_known |= is_its;
        let is_inside = record.op != Op::Flush && disk.start <= record.offset_bytes && record.end_bytes() <= disk.end;
        if is_late || !is_its || !is_inside {
            continue;
        }
        if template.len() == TEMPLATE_RECORDS_MAX {
            return Err(TraceError::parameter(format!("expected a boot of at most {TEMPLATE_RECORDS_MAX} records")));
        }
        record.offset_bytes -= disk.start;
        template.push(record);
    }
    match tag {
        Some(tag) if !is_known => Err(no_such_tag(tag, &tags)),
        _ => Ok(template),
    }
}

fn no_such_tag(asked: &str, tags: &[Tag]) -> TraceError {
    let mut names: Vec<String> =
        tags.iter().filter(|tag| **tag != Tag::NONE).take(TAGS_NAMED_MAX).map(Tag::to_string).collect();
    names.sort_unstable();
    let there_are = match names.is_empty() {
        true => "none has a tag".to_owned(),
        false if tags.len() > TAGS_NAMED_MAX => format!("among the tags are {}", names.join(", ")),
        false => format!("the tags are {}", names.join(", ")),
    };
    TraceError::parameter(format!("no record of the boot has the tag {asked:?}: {there_are}"))
}

/// The parameters of a boot storm.
#[derive(Clone, Copy, Debug)]
pub struct BootStormConfig {
    /// Machines, the recorded one included.
    pub vms: u32,
    /// The share of a boot's distinct contents that all machines have. The rest is each machine's
    /// own.
    pub overlap: f64,
    /// A machine shifts its addresses by up to this share of its disk.
    pub shift_max: f64,
    /// Size of a machine's disk.
    pub disk_bytes: u64,
    /// Machines start within this many microseconds.
    pub spread_us: u64,
    /// Another seed is another storm.
    pub seed: u64,
}

impl Default for BootStormConfig {
    fn default() -> Self {
        BootStormConfig { vms: 60, overlap: 0.9, shift_max: 0.15, disk_bytes: 4 << 30, spread_us: 10_000_000, seed: 0 }
    }
}

/// A machine that boots.
struct Vm {
    start_us: u64,
    shift_bytes: u64,
    /// The next record of the boot.
    next: usize,
}

/// The trace.
pub struct BootStorm {
    config: BootStormConfig,
    template: Vec<Record>,
    vms: Vec<Vm>,
    /// The time of each machine's next request.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// The machine whose request continues, and the request in the boot.
    open: Option<(u32, u64)>,
    /// The least lot of the contents that are each machine's own. These are the same contents for
    /// all machines; else two machines would share 90% of 90%.
    own_from: Option<u64>,
    /// The part of a trim that wrapped.
    wrapped: Option<Record>,
    requests: u64,
}

impl BootStorm {
    /// Makes a storm of one boot, whose addresses lie in `disk_bytes`.
    pub fn new(template: Vec<Record>, config: BootStormConfig) -> TraceResult<BootStorm> {
        within("an overlap", config.overlap, 0.0..=1.0)?;
        within("a shift", config.shift_max, 0.0..=1.0)?;
        within("a number of machines", f64::from(config.vms), 1.0..=f64::from(VMS_MAX))?;
        let Some(longest) = template.iter().map(|record| record.len_bytes).max() else {
            return Err(TraceError::parameter("expected a boot of one record or more"));
        };
        let end = template.iter().map(Record::end_bytes).max().unwrap_or(0);
        let is_too_large = config.disk_bytes.saturating_mul(u64::from(config.vms)) > ADDRESS_MAX;
        if end > config.disk_bytes || longest == 0 || is_too_large {
            let message = format!("expected a disk of at least {end} bytes a machine, and all of them within 1 EiB");
            return Err(TraceError::parameter(message));
        }
        if template.iter().any(|record| record.is_data() && record.content.is_none()) {
            let message = "expected a boot with content";
            return Err(TraceError::new(TraceErrorKind::Content, "", Position::Whole, message));
        }
        let unit_bytes =
            template.iter().filter(|record| record.is_data()).map(|record| record.len_bytes).max().unwrap_or(4096);
        let mut rng = TraceRng::new(config.seed);
        let shifts = (config.disk_bytes as f64 * config.shift_max) as u64 / unit_bytes;
        let disk_bytes = config.disk_bytes.next_multiple_of(unit_bytes);
        let vms: Vec<Vm> = (0..config.vms)
            .map(|vm| {
                let (start_us, shift_bytes) =
                    (rng.below(config.spread_us.saturating_add(1)), rng.below(shifts + 1) * unit_bytes);
                // The first machine is the recorded one.
                Vm { start_us, shift_bytes: if vm == 0 { 0 } else { shift_bytes }, next: 0 }
            })
            .collect();
        let due = vms.iter().enumerate().map(|(vm, state)| Reverse((state.start_us, vm as u32))).collect();
        let config = BootStormConfig { disk_bytes, ..config };
        let own_from = own_from(&template, &config);
        Ok(BootStorm { config, template, vms, due, open: None, own_from, wrapped: None, requests: 0 })
    }

    /// Returns the next record and its machine. An open request continues first.
    fn pick(&mut self) -> Option<(u32, Record)> {
        if let Some((vm, request)) = self.open {
            let state = self.vms.get_mut(vm as usize)?;
            let start = self.template.first().and_then(|record| record.time_us).unwrap_or(0);
            match self.template.get(state.next) {
                Some(record) if record.request == request => {
                    state.next += 1;
                    return Some((vm, *record));
                }
                Some(record) => {
                    // Without times a boot is one request a millisecond.
                    let own = record.time_us.unwrap_or(start.saturating_add(1000 * state.next as u64));
                    self.due.push(Reverse((state.start_us.saturating_add(own.saturating_sub(start)), vm)));
                }
                None => {}
            }
            self.open = None;
        }
        let Reverse((_, vm)) = self.due.pop()?;
        let state = self.vms.get_mut(vm as usize)?;
        let record = *self.template.get(state.next)?;
        state.next += 1;
        self.open = Some((vm, record.request));
        self.requests += 1;
        Some((vm, record))
    }

    fn content(&self, vm: u32, content: TraceContent) -> TraceContent {
        let [_, b] = content.fingerprint.0;
        let word = lot(&content, self.config.seed);
        if vm == 0 || content.is_zero || self.own_from.is_none_or(|from| word < from) {
            return content;
        }
        let word = mix(word ^ mix(u64::from(vm)));
        TraceContent {
            fingerprint: ContentId([mix(word), mix(b ^ mix(word))]),
            provenance: Provenance::Made,
            ..content
        }
    }
}

/// Returns the lot that a content draws.
fn lot(content: &TraceContent, seed: u64) -> u64 {
    let [a, b] = content.fingerprint.0;
    mix(a ^ mix(b ^ mix(seed)))
}

/// Returns the least lot of the contents that are not shared. `config` gives their share, which is
/// rounded to the nearest content; zeroes are never among them.
fn own_from(template: &[Record], config: &BootStormConfig) -> Option<u64> {
    let contents = template.iter().filter_map(|record| record.content.as_ref()).filter(|content| !content.is_zero);
    let mut lots: Vec<u64> = contents.map(|content| lot(content, config.seed)).collect();
    lots.sort_unstable();
    lots.dedup();
    lots.get((lots.len() as f64 * config.overlap).round() as usize).copied()
}

impl Iterator for BootStorm {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.wrapped.take() {
            return Some(Ok(record));
        }
        let (vm, mut record) = self.pick()?;
        let state = self.vms.get(vm as usize)?;
        let first = self.template.first()?;
        let disk = self.config.disk_bytes;
        let base = u64::from(vm) * disk;
        let at = (record.offset_bytes + state.shift_bytes) % disk;
        record.time_us =
            record.time_us.map(|time| state.start_us.saturating_add(time.saturating_sub(first.time_us.unwrap_or(0))));
        record.request = self.requests;
        record.tag = Tag::new(format!("vm{vm}").as_bytes());
        record.offset_bytes = base + at;
        record.content = record.content.map(|content| self.content(vm, content));
        if at + record.len_bytes > disk {
            // This is a trim, or a block across the end of an odd disk.
            let head = disk - at;
            self.wrapped = Some(Record { offset_bytes: base, len_bytes: record.len_bytes - head, ..record });
            record.len_bytes = head;
        }
        Some(Ok(record))
    }
}

/// The parameters of a made-up boot.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticBootConfig {
    /// Bytes read and written in all.
    pub boot_bytes: u64,
    /// Size of the disk.
    pub disk_bytes: u64,
    /// The share of requests that read.
    pub read_share: f64,
    /// The share of requests that do not begin at the end of the last.
    pub random_share: f64,
    /// Blocks for each distinct content.
    pub dedup_ratio: f64,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// The distribution of the compression ratio.
    pub compress: Compressibility,
    /// Another seed is another boot.
    pub seed: u64,
}

impl Default for SyntheticBootConfig {
    fn default() -> Self {
        SyntheticBootConfig {
            boot_bytes: 18 << 20,
            disk_bytes: 4 << 30,
            read_share: 0.99,
            random_share: 0.14,
            dedup_ratio: 1.2,
            request_bytes: 16 << 10,
            compress: Compressibility::default(),
            seed: 0,
        }
    }
}

/// Bytes of a block of a made-up boot.
const BLOCK_BYTES: u32 = 4096;
/// Microseconds between its requests.
const REQUEST_US: u64 = 500;

/// The made-up boot, block by block.
pub struct SyntheticBoot {
    config: SyntheticBootConfig,
    rng: TraceRng,
    blocks_left: u64,
    disk_blocks: u64,
    at: u64,
    /// Remaining blocks of the request.
    open: u64,
    op: Op,
    requests: u64,
    /// The content of each block that was touched.
    held: HashMap<u64, u64>,
    contents: u64,
    contents_left: u64,
}

impl SyntheticBoot {
    /// Checks the configuration.
    pub fn new(config: SyntheticBootConfig) -> TraceResult<SyntheticBoot> {
        let disk_blocks = whole_chunks("a disk", config.disk_bytes, BLOCK_BYTES)?;
        let blocks_left = whole_chunks("a boot", config.boot_bytes, BLOCK_BYTES)?;
        within("a share of reads", config.read_share, 0.0..=1.0)?;
        within("a share of random requests", config.random_share, 0.0..=1.0)?;
        within("a deduplication ratio", config.dedup_ratio, 1.0..=1e6)?;
        let is_request = config.request_bytes.is_multiple_of(BLOCK_BYTES) && config.request_bytes > 0;
        if !is_request || u64::from(config.request_bytes) > config.disk_bytes {
            return Err(TraceError::parameter(
                "expected requests of a multiple of 4096 bytes, no larger than the disk",
            ));
        }
        Ok(SyntheticBoot {
            config,
            rng: TraceRng::new(config.seed),
            blocks_left,
            disk_blocks,
            at: 0,
            open: 0,
            op: Op::Read,
            requests: 0,
            held: HashMap::new(),
            contents: 0,
            contents_left: ((blocks_left as f64 / config.dedup_ratio) as u64).max(1),
        })
    }

    /// Returns the content of the block at hand. A new block gets new content as often as new
    /// content is left to place.
    fn content(&mut self) -> u64 {
        if self.op == Op::Read
            && let Some(number) = self.held.get(&self.at)
        {
            return *number;
        }
        let is_new = self.contents == 0 || self.rng.below(self.blocks_left + 1) < self.contents_left;
        let number = if is_new { self.contents } else { self.rng.below(self.contents) };
        self.contents += u64::from(is_new);
        self.contents_left = self.contents_left.saturating_sub(u64::from(is_new));
        self.held.insert(self.at, number);
        number
    }
}

impl Iterator for SyntheticBoot {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.blocks_left = self.blocks_left.checked_sub(1)?;
        if self.open == 0 {
            self.open = u64::from(self.config.request_bytes / BLOCK_BYTES);
            let is_random = self.requests == 0 || self.rng.chance(self.config.random_share);
            if is_random || self.at + self.open > self.disk_blocks {
                self.at = self.rng.below(self.disk_blocks - self.open + 1);
            }
            self.op = if self.rng.chance(self.config.read_share) { Op::Read } else { Op::Write };
            self.requests += 1;
        }
        self.open -= 1;
        let number = self.content();
        let bytes = u64::from(BLOCK_BYTES);
        let mut record = Record::new(self.requests, self.op, self.at * bytes, bytes);
        record.time_us = Some(self.requests * REQUEST_US);
        record.content = Some(made_content(self.config.seed, number, BLOCK_BYTES, &self.config.compress));
        self.at += 1;
        Some(Ok(record))
    }
}
