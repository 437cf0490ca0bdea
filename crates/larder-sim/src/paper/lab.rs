//! Traces of an experiment, replayed through its caches.
//!
//! A trace is put into chunks of any size by the two passes of the papers. Compressed sizes that it has not, or that were
//! made up, are made up for its chunks: a function of a chunk's fingerprint, as Nitro §5.2 and AustereCache §5.1 have it.
//!
//! Invariants: each pass over a trace gives the same requests; all caches of one replay get all of them, in order, and the drives
//! beneath them have one shape ([`with_equal_blocks`]).
//!
//! What it does not do: choose what is replayed.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use larder_trace::{
    ChunkRequest, Compressibility, Content, Provenance, RechunkOptions, Rechunker, Record, TraceError, TraceResult,
    Unknown, chunks,
};

use crate::{
    lab::{Listener, broadcast},
    measure::{Measures, Meter},
    replay::Batches,
    setup::{Setup, drive::with_equal_blocks},
    survey::{Survey, survey},
};

/// The records of a trace.
pub type Records<'a> = Box<dyn Iterator<Item = TraceResult<Record>> + 'a>;
type Requests<'a> = Box<dyn Iterator<Item = TraceResult<ChunkRequest>> + 'a>;
type Open<'a> = dyn Fn(&str) -> TraceResult<Records<'a>> + 'a;

/// A trace of an experiment.
pub struct Workload<'a> {
    name: String,
    title: String,
    about: String,
    is_generated: bool,
    open: Box<Open<'a>>,
}

impl<'a> Workload<'a> {
    /// A generated trace by the name that the paper has for it; `about` says what it really is. `open` begins a pass over
    /// it, and is told what for.
    pub fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        open: impl Fn(&str) -> TraceResult<Records<'a>> + 'a,
    ) -> Workload<'a> {
        let name = name.into();
        Workload { title: name.clone(), name, about: about.into(), is_generated: true, open: Box::new(open) }
    }

    /// The same of a trace that somebody gave; reports call it by this title.
    pub fn given(self, title: impl Into<String>) -> Workload<'a> {
        Workload { title: title.into(), is_generated: false, ..self }
    }

    /// The paper's name for it, or another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What reports call it: the paper's name for it, or one that says which trace stands in.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What it really is.
    pub fn about(&self) -> &str {
        &self.about
    }

    fn explain(&self, error: &TraceError) -> String {
        match error.file().is_empty() {
            true => format!("{}: {error}", self.title),
            false => error.to_string(),
        }
    }

    /// Bytes of a block of the trace's content.
    fn block_bytes(&self) -> TraceResult<u64> {
        for record in (self.open)("looking")? {
            let record = record?;
            if record.is_data() {
                let bytes = record.content.map(|_| record.len_bytes);
                let sentence =
                    "it has no content, which experiments need: `larder trace convert --content` makes some up";
                return bytes.ok_or_else(|| TraceError::parameter(sentence));
            }
        }
        Err(TraceError::parameter("it has no reads and no writes"))
    }

    fn requests(&self, how: &How, what: &str, with_content: bool) -> TraceResult<Requests<'_>> {
        let How { chunk_bytes, unknown, compress, makes_all_sizes } = *how;
        let bare = move |record| without_made_sizes(record, makes_all_sizes);
        let open = |what: &str| Ok::<_, TraceError>((self.open)(what)?.map(bare));
        if self.block_bytes()? == u64::from(chunk_bytes) {
            let requests = chunks(open(what)?, chunk_bytes)?;
            return Ok(Box::new(requests.map(move |request| with_size(request, chunk_bytes, &compress))));
        }
        let mut rechunker = Rechunker::new(RechunkOptions { unknown, ..RechunkOptions::new(chunk_bytes) })?;
        let requests = match with_content {
            true => {
                rechunker.learn(open("first pass over the content")?)?;
                rechunker.replay(open(what)?)
            }
            false => rechunker.outline(open(what)?),
        };
        Ok(Box::new(requests.map(move |request| with_size(request, chunk_bytes, &compress))))
    }
}

/// Without a size that was made up, or without any.
fn without_made_sizes(record: TraceResult<Record>, all: bool) -> TraceResult<Record> {
    let mut record = record?;
    if let Some(content) = record.content.as_mut().filter(|content| all || content.provenance != Provenance::Recorded) {
        content.stored_bytes = None;
    }
    Ok(record)
}

fn with_size(request: TraceResult<ChunkRequest>, bytes: u32, compress: &Compressibility) -> TraceResult<ChunkRequest> {
    let mut request = request?;
    if let Some(content @ Content { stored_bytes: None, .. }) = &mut request.content {
        // Zeroes compress as LZ4 has it, not at random.
        let stored = match content.is_zero {
            true => bytes.div_ceil(255) + 9,
            false => compress.stored_bytes(content.fingerprint, bytes),
        };
        content.stored_bytes = Some(stored.min(bytes));
    }
    Ok(request)
}

/// How a trace is put into chunks.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// What a block that was never read is taken for, where chunks are larger than the trace's blocks.
    pub unknown: Unknown,
    /// How well content compresses.
    pub compress: Compressibility,
    /// Whether that goes for content with a recorded size, too.
    pub makes_all_sizes: bool,
}

impl How {
    /// Chunks of so many bytes; what was never read is as the paper has it; content compresses to a half, more or less.
    pub fn new(chunk_bytes: u32, unknown: Unknown) -> How {
        How { chunk_bytes, unknown, compress: Compressibility::default(), makes_all_sizes: false }
    }
}

/// What a cache came to.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The cache.
    pub setup: Setup,
    /// What came of it.
    pub measures: Measures,
}

/// The traces of an experiment, and what replays them.
pub struct Lab<'a> {
    workloads: Vec<Workload<'a>>,
    threads: usize,
    surveys: BTreeMap<(usize, u32), Survey>,
}

impl<'a> Lab<'a> {
    /// Replays on so many threads.
    pub fn new(workloads: Vec<Workload<'a>>, threads: usize) -> Lab<'a> {
        Lab { workloads, threads, surveys: BTreeMap::new() }
    }

    /// Threads to replay on.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The number of traces; each function here takes the place of one among them.
    pub fn workload_count(&self) -> usize {
        self.workloads.len()
    }

    /// The trace at a place; that of a place behind the last is the last.
    ///
    /// # Errors
    /// There is none at all.
    pub fn workload(&self, at: usize) -> Result<&Workload<'a>, String> {
        self.workloads.get(at).or(self.workloads.last()).ok_or_else(|| "there is no trace to replay".to_owned())
    }

    /// What reports call the trace that has the paper's name `name`; that name, where there is none.
    pub fn title_of<'b>(&'b self, name: &'b str) -> &'b str {
        self.workloads.iter().find(|workload| workload.name == name).map_or(name, |workload| &workload.title)
    }

    /// Whether a trace is generated.
    pub fn has_generated(&self) -> bool {
        self.workloads.iter().any(|workload| workload.is_generated)
    }

    /// Words of a report: some are true of any traces, some of generated ones only. Of others is said what they are.
    pub fn words(&self, of_all: &[&str], of_generated: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = of_all.iter().map(|words| (*words).to_owned()).collect();
        if self.workloads.iter().all(|workload| workload.is_generated) {
            words.extend(of_generated.iter().map(|words| (*words).to_owned()));
            return words;
        }
        let titles: Vec<&str> = self.workloads.iter().map(Workload::title).collect();
        words.push(format!(
            "Ours are figures of the traces that were given: {}. The paper's are of its own, and nothing here says how \
             alike they are.",
            titles.join(", ")
        ));
        words
    }

    /// How many requests and chunks a trace has.
    ///
    /// # Errors
    /// A sentence.
    pub fn survey(&mut self, at: usize, how: &How) -> Result<Survey, String> {
        if let Some(known) = self.surveys.get(&(at, how.chunk_bytes)) {
            return Ok(*known);
        }
        let workload = self.workload(at)?;
        let counted = workload.requests(how, "counting", false).and_then(survey);
        let found = counted.map_err(|error| workload.explain(&error))?;
        self.surveys.insert((at, how.chunk_bytes), found);
        Ok(found)
    }

    /// Replays a trace once, through all of these caches. What comes in the first `warmup_requests` is not counted.
    ///
    /// # Errors
    /// A sentence: a cache that cannot be, or the trace's.
    pub fn replay(
        &mut self,
        at: usize,
        how: &How,
        warmup_requests: u64,
        setups: &[Setup],
    ) -> Result<Vec<Replayed>, String> {
        let working_set = self.survey(at, how)?.working_set_chunks;
        let mut setups = setups.to_vec();
        with_equal_blocks(&mut setups, working_set);
        let mut meters = Vec::new();
        for setup in &setups {
            let built = setup.build(working_set).map_err(|sentence| self.refused(at, setup, &sentence))?;
            meters.push(Meter::new(built, how.chunk_bytes, warmup_requests));
        }
        let mut listeners: Vec<&mut dyn Listener> = meters.iter_mut().map(|meter| meter as &mut dyn Listener).collect();
        self.listen(at, how, &mut listeners)?;
        let measures = meters.into_iter().map(Meter::finish);
        Ok(setups.into_iter().zip(measures).map(|(setup, measures)| Replayed { setup, measures }).collect())
    }

    /// The requests of a trace, for whoever makes them.
    ///
    /// # Errors
    /// A sentence; and one for each request that cannot be read.
    pub fn requests<'b>(
        &'b self,
        at: usize,
        how: &How,
    ) -> Result<impl Iterator<Item = Result<ChunkRequest, String>> + use<'a, 'b>, String> {
        let workload = self.workload(at)?;
        let requests = workload.requests(how, "reading", true).map_err(|error| workload.explain(&error))?;
        Ok(requests.map(|request| request.map_err(|error| workload.explain(&error))))
    }

    /// Reads a trace once, for listeners of any kind.
    ///
    /// # Errors
    /// A sentence.
    pub fn listen(&self, at: usize, how: &How, listeners: &mut [&mut dyn Listener]) -> Result<(), String> {
        let workload = self.workload(at)?;
        let explain = |error: TraceError| workload.explain(&error);
        let requests = workload.requests(how, "replaying", true).map_err(explain)?;
        broadcast(&mut Batches::new(requests, how.chunk_bytes), listeners, self.threads).map_err(explain)
    }

    /// Does something for each, on all threads; what came of it, in their order.
    ///
    /// # Errors
    /// The first failure, in that order.
    pub fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        act: impl Fn(&T) -> Result<R, String> + Sync,
    ) -> Result<Vec<R>, String> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(items.len()));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { return };
                let result = act(item);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
            }
        };
        std::thread::scope(|scope| {
            (1..self.threads.clamp(1, items.len().max(1))).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn refused(&self, at: usize, setup: &Setup, sentence: &str) -> String {
        let name = self.workload(at).map_or("", |workload| workload.title());
        let design = setup.design.name;
        format!("{name} is too small for {design} with a flash of {}: {sentence}", setup.flash)
    }
}
