//! Traces of an experiment, replayed through its caches.
//!
//! The two passes of the papers put a trace into chunks of any size. Missing or made-up compressed
//! sizes are made up for its chunks: a function of a chunk's fingerprint, as in Nitro §5.2 and
//! AustereCache §5.1.
//!
//! Invariants: each pass over a trace gives the same requests. All caches of one replay get all of
//! them, in order, and the drives beneath them have one shape ([`with_equal_blocks`]).
//!
//! It leaves the choice of replays to its caller.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use larder_trace::{
    ChunkRequest, Compressibility, Provenance, RechunkOptions, Rechunker, Record, TraceContent, TraceError,
    TraceResult, Unknown, chunks,
};

use crate::Grid;
use larder_sim::{
    cache::CacheRequest,
    lab::{LabListener, broadcast},
    measure::{Measures, Meter},
    replay::Batches,
    setup::{Setup, with_equal_blocks},
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
    /// Makes a generated trace by the paper's name for it; `about` says which trace it is.
    ///
    /// `open` begins a pass over it, and learns its purpose.
    pub fn new(
        name: impl Into<String>,
        about: impl Into<String>,
        open: impl Fn(&str) -> TraceResult<Records<'a>> + 'a,
    ) -> Workload<'a> {
        let name = name.into();
        Workload { title: name.clone(), name, about: about.into(), is_generated: true, open: Box::new(open) }
    }

    /// Makes it a given trace; reports call it by this title.
    pub fn given(self, title: impl Into<String>) -> Workload<'a> {
        Workload { title: title.into(), is_generated: false, ..self }
    }

    /// Returns the paper's name for it, or another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its title in reports: the paper's name for it, or one that names the stand-in.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns its real source.
    pub fn about(&self) -> &str {
        &self.about
    }

    fn explain(&self, error: &TraceError) -> String {
        match error.file().is_empty() {
            true => format!("{}: {error}", self.title),
            false => error.to_string(),
        }
    }

    /// Returns the bytes of a block of the trace's content.
    fn block_bytes(&self) -> TraceResult<u64> {
        for record in (self.open)("looking")? {
            let record = record?;
            if record.is_data() {
                let bytes = record.content.map(|_| record.len_bytes);
                let sentence =
                    "it has no content, which experiments need: `larder-lab trace convert --content` makes some up";
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

/// Takes made-up sizes out of a record, or all sizes.
fn without_made_sizes(record: TraceResult<Record>, all: bool) -> TraceResult<Record> {
    let mut record = record?;
    if let Some(content) = record.content.as_mut().filter(|content| all || content.provenance != Provenance::Recorded) {
        content.stored_bytes = None;
    }
    Ok(record)
}

fn with_size(request: TraceResult<ChunkRequest>, bytes: u32, compress: &Compressibility) -> TraceResult<ChunkRequest> {
    let mut request = request?;
    if let Some(content @ TraceContent { stored_bytes: None, .. }) = &mut request.content {
        // Zeroes compress as in LZ4, not at random.
        let stored = match content.is_zero {
            true => bytes.div_ceil(255) + 9,
            false => compress.stored_bytes(content.fingerprint, bytes),
        };
        content.stored_bytes = Some(stored.min(bytes));
    }
    Ok(request)
}

/// The way a trace is put into chunks.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// The content of a block that was never read, if chunks are larger than the trace's blocks.
    pub unknown: Unknown,
    /// The compressibility of content.
    pub compress: Compressibility,
    /// True if it holds for content with a recorded size, too.
    pub makes_all_sizes: bool,
}

impl How {
    /// Makes chunks of so many bytes, with the paper's rule for unread blocks.
    ///
    /// Content compresses to a half, more or less.
    pub fn new(chunk_bytes: u32, unknown: Unknown) -> How {
        How { chunk_bytes, unknown, compress: Compressibility::default(), makes_all_sizes: false }
    }
}

/// The result of a cache.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The cache.
    pub setup: Setup,
    /// Its measures.
    pub measures: Measures,
}

/// The traces of an experiment, with their replays.
pub struct Lab<'a> {
    workloads: Vec<Workload<'a>>,
    threads: usize,
    surveys: BTreeMap<(usize, u32), Survey>,
    grid: Grid,
}

/// Keeps all requests of a trace.
#[derive(Default)]
struct KeptRequests(Vec<CacheRequest>);

impl LabListener for KeptRequests {
    fn take(&mut self, requests: &[CacheRequest]) {
        self.0.extend_from_slice(requests);
    }
}

impl<'a> Lab<'a> {
    /// Makes a lab that replays on so many threads.
    pub fn new(workloads: Vec<Workload<'a>>, threads: usize) -> Lab<'a> {
        Lab { workloads, threads, surveys: BTreeMap::new(), grid: Grid::default() }
    }

    /// Gives experiments over a grid of caches this grid.
    pub fn over(self, grid: Grid) -> Lab<'a> {
        Lab { grid, ..self }
    }

    /// Returns the grid of experiments over one.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the threads to replay on.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the number of traces; each function here takes the place of one among them.
    pub fn workload_count(&self) -> usize {
        self.workloads.len()
    }

    /// Returns the trace at a place; a place behind the last gives the last.
    ///
    /// # Errors
    /// There is none at all.
    pub fn workload(&self, at: usize) -> Result<&Workload<'a>, String> {
        self.workloads.get(at).or(self.workloads.last()).ok_or_else(|| "there is no trace to replay".to_owned())
    }

    /// Returns the title of the trace with the paper's name `name`; that name if there is none.
    pub fn title_of<'b>(&'b self, name: &'b str) -> &'b str {
        self.workloads.iter().find(|workload| workload.name == name).map_or(name, |workload| &workload.title)
    }

    /// Returns true if a trace is generated.
    pub fn has_generated(&self) -> bool {
        self.workloads.iter().any(|workload| workload.is_generated)
    }

    /// Returns the words of a report: some hold for any traces, some for generated ones only.
    ///
    /// If some traces were given, it names the traces in place of the latter.
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

    /// Counts the requests and chunks of a trace.
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

    /// Replays a trace once, through all of these caches, in the papers' accounting. The first
    /// `warmup_requests` are not counted.
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
        let mut setups: Vec<Setup> = setups.iter().copied().map(Setup::by_its_paper).collect();
        with_equal_blocks(&mut setups, working_set);
        let mut meters = Vec::new();
        for setup in &setups {
            let built = setup.build(working_set).map_err(|sentence| self.refused(at, setup, &sentence))?;
            meters.push(Meter::new(built, how.chunk_bytes, warmup_requests));
        }
        let mut listeners: Vec<&mut dyn LabListener> =
            meters.iter_mut().map(|meter| meter as &mut dyn LabListener).collect();
        self.listen(at, how, &mut listeners)?;
        let measures = meters.into_iter().map(Meter::finish);
        Ok(setups.into_iter().zip(measures).map(|(setup, measures)| Replayed { setup, measures }).collect())
    }

    /// Returns the requests of a trace, for any caller that makes them.
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
    pub fn listen(&self, at: usize, how: &How, listeners: &mut [&mut dyn LabListener]) -> Result<(), String> {
        let workload = self.workload(at)?;
        let explain = |error: TraceError| workload.explain(&error);
        let requests = workload.requests(how, "replaying", true).map_err(explain)?;
        broadcast(&mut Batches::new(requests, how.chunk_bytes), listeners, self.threads).map_err(explain)
    }

    /// Reads a trace once, and returns all of its requests, 32 bytes each.
    ///
    /// # Errors
    /// A sentence.
    pub fn all_requests(&self, at: usize, how: &How) -> Result<Vec<CacheRequest>, String> {
        let mut kept = KeptRequests::default();
        self.listen(at, how, &mut [&mut kept])?;
        Ok(kept.0)
    }

    /// Acts on each item, on all threads, and returns the results in their order.
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
