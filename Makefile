# Larder's commands for people and for CI; `make help` lists them.
# The build needs none of them: `cargo build --release` alone makes the `larder` binary.

.DEFAULT_GOAL := help
.PHONY: help build demo test check stages fmt prose clippy doc fuzz fuzz-long deny crash crash-siblings lost-ends power paused breakages new-design reproduction soak soak-agree tsan bench packages

# Seeds of the long simulation; for a night: `make soak SEEDS=2000000`.
SEEDS ?= 20000
# Kills of the real server in `make soak`.
KILL_ROUNDS ?= 50
# Power cuts in each setting of `make power`, and in `make soak`.
POWER_ROUNDS ?= 10
# Outcomes of each instant that the crash sweep of `make soak` draws if it cannot try all.
CRASH_CASES ?= 64
# The designs of `make soak`, one after the other: those over WEUs, and those with slots for each
# chunk. Some tests of the engine, of WEUs, do not apply to the latter.
DESIGNS ?= larder nitro cd-arc
SLOT_DESIGNS ?= d-lru d-arc lru arc austere
# The suites of the engine that apply to those, besides simulation, crash sweep and real threads.
SLOT_SUITES := conditions contract degraded durability eviction fault_sweep faults modes origin_reads recovery reduction stalled streams trims
# The seed of `make fuzz`; `make test` has seeds of its own.
FUZZ_SEED ?= 20260
# The factor on the seeded bytes of `make test` in `make fuzz`.
FUZZ_FACTOR ?= 2
# Seconds for which clients pause in `make paused`.
PAUSE_SECONDS ?= 600
# Seconds for each target of `make fuzz-long`.
FUZZ_SECONDS ?= 300

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

# One after the other: a build of both would unite their features, and the laboratory has more.
build: ## Build the optimised binaries (target/release/larder and larder-lab)
	cargo build --release -p larder
	cargo build --release -p larder-lab

demo: ## Put a cache before a slow disk, work on it, and print the cache's counters (root, about 4 minutes after the build)
	scripts/demo.sh

packages: ## Install the client programs that the tests and the demo use (Debian, root)
	scripts/install-packages.sh

# A missing client program skips the tests that need it, each with a printed line. CI sets
# LARDER_REQUIRE_TOOLS=1, which makes that a failure.
test: packages ## Run all tests, with real clients and file systems where this machine allows them
	cargo test --workspace --no-fail-fast

STAGES := fmt prose clippy doc test fuzz deny

check: $(STAGES) ## The whole check: format, prose, lints, documentation, tests, short fuzz, licences

stages: # The names of the stages of `make check`, in their order, for CI.
	@echo $(STAGES)

prose: ## Is the prose plain? Counts per file: scripts/prose.sh
	scripts/prose.sh --check

fmt: ## Is the code formatted?
	cargo fmt --all --check

clippy: ## Lints, warnings denied; the fuzz targets, too, which are a workspace of their own
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --manifest-path fuzz/Cargo.toml --locked -- -D warnings

doc: ## The documentation of all items, private ones, too; warnings denied, so that each link leads somewhere
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# The fuzz targets (see fuzz/) from fixed seeds: any toolchain, no corpus. With --workspace, as
# `make test` has it: Cargo unites the features of the crates that a command names. So -p would
# build all dependencies a second time.
fuzz: ## All that is parsed, and recovery over damaged images, against seeded hostile bytes (FUZZ_FACTOR=2)
	LARDER_SEED=$(FUZZ_SEED) cargo test --workspace --test format -- mutation:: roundtrip::
	cargo test --workspace --test nbd bytes
	LARDER_FUZZ_FACTOR=$(FUZZ_FACTOR) cargo test --workspace --test fuzz_seeds --test mutated_images
	LARDER_FUZZ_FACTOR=$(FUZZ_FACTOR) cargo test --workspace --lib fuzz_seeds::

fuzz-long: ## The same targets under cargo-fuzz, which looks at coverage (FUZZ_SECONDS=300 each; nightly)
	fuzz/run.sh $(FUZZ_SECONDS)

deny: ## Licences, sources and versions of dependencies (installs cargo-deny if it is missing)
	scripts/deny.sh

crash: ## The engine in simulation: crashes and faults against a model of the contract (SEEDS=20000)
	LARDER_SEEDS=$(SEEDS) cargo test --profile crash -p larder-engine --test simulation -- --exact seeds

crash-siblings: ## The same over austere with few bits of each hash, so that addresses and contents share them (SEEDS=20000)
	LARDER_DESIGN=austere LARDER_SEEDS=$(SEEDS) cargo test --profile crash -p larder-engine --features few-hash-bits --test simulation -- seeds --nocapture

lost-ends: ## Logs of crashed caches lose their end, over each design (CASES=400)
	LARDER_LOST_END_CASES=$(or $(CASES),400) cargo test --workspace --test check -- lost_end:: --nocapture

power: ## The real server over files that forget unflushed writes, in every design and mode, over both backends (POWER_ROUNDS=10)
	LARDER_POWER_ROUNDS=$(POWER_ROUNDS) cargo test --workspace --test program -- power:: --nocapture

breakages: ## Break the contract on purpose, one way after the other, and see suites catch it (an hour)
	LARDER_BREAKAGES=1 cargo test -p larder --test program -- breakages:: --nocapture

paused: ## Clients that pause for PAUSE_SECONDS=600 with full windows lose nothing (ten minutes)
	LARDER_PAUSE_SECONDS=$(PAUSE_SECONDS) cargo test --workspace --test nbd -- hosts:: --nocapture

# It builds in CARGO_TARGET_DIR if that is set; else in a folder that goes with the copy.
new-design: ## Add a design to a copy of the committed tree, by its file, its page and the tables of names alone, and run the suites over it
	scripts/new-design.sh

reproduction: ## Run the papers' experiments again and compare them with docs/reproduction/, those on the real clock left out; WRITE=1 writes them there
	WRITE=$(WRITE) scripts/reproduction.sh

soak: crash crash-siblings power $(DESIGNS:%=soak-%) $(SLOT_DESIGNS:%=soak-slots-%) soak-agree new-design reproduction ## The same, then deep crash sweeps, kills and real clients over each design (SEEDS=20000 KILL_ROUNDS=50)

soak-%:
	LARDER_DESIGN=$* cargo test -p larder-engine -p larder-check
	LARDER_DESIGN=$* LARDER_CRASH_CASES=$(CRASH_CASES) cargo test --profile crash -p larder-engine --test engine -- crash_sweep:: --nocapture
	LARDER_DESIGN=$* LARDER_KILL_ROUNDS=$(KILL_ROUNDS) cargo test -p larder --test program -- kills:: filesystems:: --nocapture
	LARDER_DESIGN=$* cargo test -p larder --test program -- clients:: reduction:: degraded:: refusals:: repair::

soak-slots-%:
	LARDER_DESIGN=$* LARDER_SEEDS=$(SEEDS) cargo test --profile crash -p larder-engine --test simulation -- seeds --nocapture
	LARDER_DESIGN=$* LARDER_CRASH_CASES=$(CRASH_CASES) cargo test --profile crash -p larder-engine --test engine -- crash_sweep:: --nocapture
	LARDER_DESIGN=$* cargo test -p larder-engine --test threads
	LARDER_DESIGN=$* cargo test -p larder-engine --test engine -- $(SLOT_SUITES:%=%::)
	LARDER_DESIGN=$* LARDER_KILL_ROUNDS=$(KILL_ROUNDS) cargo test -p larder --test program -- kills:: filesystems:: --nocapture
	LARDER_DESIGN=$* cargo test -p larder --test program -- clients:: reduction:: degraded:: refusals:: repair::

soak-agree:
	LARDER_REQUESTS=300000 cargo test --profile crash -p larder-lab --test laboratory -- designs_agree:: --nocapture

tsan: ## The tests with real threads under ThreadSanitizer (fetches the standard library's sources with rustup)
	scripts/tsan.sh

bench: ## Measure against the aims; writes target/bench.json. Then how fast the laboratory replays each design and simulates each drive
	cargo run --release -p larder-measure
	cargo bench -p larder-sim --bench lab
	cargo bench -p larder-ssd
