#!/usr/bin/env bash
# Fuzzes for real, one target after the other: fuzz/run.sh [SECONDS [TARGET...]].
# It needs a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`). New inputs stay in
# fuzz/corpus, failing ones in fuzz/artifacts.
# `cargo +nightly fuzz run TARGET fuzz/artifacts/TARGET/crash-…` replays one.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
if ! cargo fuzz --version >/dev/null 2>&1 || ! rustc +nightly --version >/dev/null 2>&1; then
    echo "skipped: a nightly toolchain and cargo-fuzz are missing: rustup toolchain install nightly; cargo install cargo-fuzz"
    exit "${LARDER_REQUIRE_TOOLS:-0}"
fi
# The first inputs of each target; no mutant is run.
export LARDER_FUZZ_CORPUS=$PWD/fuzz/corpus
LARDER_FUZZ_FACTOR=0 cargo test -q -p larder-format -p larder-device -p larder-trace --test fuzz_seeds >/dev/null
LARDER_FUZZ_FACTOR=0 cargo test -q -p larder-check --test mutated_images >/dev/null
LARDER_FUZZ_FACTOR=0 cargo test -q -p larder --lib fuzz_seeds:: >/dev/null
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list)
fi
# Rust's own checks find all there is to find: the unsafe code is small, and C code is not ours.
cargo +nightly fuzz build --sanitizer none
for target in "${targets[@]}"; do
    options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1)
    case $target in
        # The input tells the damage to an image in few bytes, and each costs time.
        mutated_image | repaired_image) options+=(-max_len=300 -len_control=0) ;;
        nbd_server_bytes) options+=(-dict=fuzz/nbd.dict) ;;
        option_file) options+=(-max_len=1500) ;;
        *) options+=(-max_len=600) ;;
    esac
    echo "== $target, $seconds seconds"
    cargo +nightly fuzz run --sanitizer none "$target" -- "${options[@]}" 2>&1 | grep -E "^Done|exec_per_sec|ERROR|panicked|crash-|timeout-"
done
