# Larder's commands for people and for CI. `make help` lists them.
# Nothing here is needed to build: `cargo build --release` alone makes the `larder` binary.

.DEFAULT_GOAL := help
.PHONY: help build demo test check fmt clippy fuzz deny crash soak bench packages

# How long the seeded stress targets run. Raise them for a night: `make soak SOAK_CASES=20000`.
CRASH_CASES ?= 400
SOAK_CASES ?= 20000
# `make test` has seeds of its own; this is another one.
FUZZ_SEED ?= 20260

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

build: ## Build the optimised `larder` binary (target/release/larder)
	cargo build --release -p larder

demo: ## Put a cache before a slow disk, work on it, and print what the cache did (root, about 2 minutes after the build)
	scripts/demo.sh

packages: ## Install the client programs that the tests and the demo use (Debian, root)
	scripts/install-packages.sh

# A missing client program skips the tests that need it, each with a printed line. LARDER_REQUIRE_TOOLS=1 makes that
# a failure, which is what CI sets.
test: packages ## Run all tests, with real clients and file systems where this machine allows them
	cargo test --workspace

check: fmt clippy test fuzz deny ## The whole check: format, lints, tests, short fuzz, licences

fmt: ## Is the code formatted?
	cargo fmt --all --check

clippy: ## Lints, warnings denied
	cargo clippy --workspace --all-targets --locked -- -D warnings

# The NBD parsers, which cargo-fuzz drives too (see fuzz/), and the structures on flash, from fixed seeds: any toolchain,
# no corpus.
fuzz: ## The parsers of flash and wire against seeded hostile bytes (FUZZ_SEED=20260)
	LARDER_SEED=$(FUZZ_SEED) cargo test -p larder-format --test mutation --test roundtrip
	cargo test -p larder-serve --test nbd bytes

deny: ## Licences, sources and versions of dependencies (installs cargo-deny if it is missing)
	scripts/deny.sh

crash: ## The engine against a model through kills and power losses (CRASH_CASES=400 seeds)
	LARDER_CRASH_CASES=$(CRASH_CASES) cargo test -p larder-engine --test model

soak: ## The same for hours, then every test with real clients (SOAK_CASES=20000 seeds)
	LARDER_CRASH_CASES=$(SOAK_CASES) cargo test -p larder-engine --test model
	cargo test -p larder --test clients --test filesystems --test reduction

bench: ## Measure against the aims; writes target/bench.json
	cargo run --release -p larder-bench
