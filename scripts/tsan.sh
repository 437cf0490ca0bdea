#!/usr/bin/env bash
# ThreadSanitizer over the tests with real threads. They are the engine's stress, the driver, the
# runtime, files and simulation of larder-device, and the NBD server. Exit 0 no race, 1 a race or a
# failed test, 2 it cannot run here.
#
# The standard library is built with the sanitizer, too, else its locks and reference counts would
# look like races. That takes its sources (the component `rust-src`, fetched if rustup can) and
# flags that a stable compiler takes only with RUSTC_BOOTSTRAP. The toolchain itself is the usual
# one. It has a build folder of its own: target/tsan.
#
# It does not see the kernel. So the devices run with blocking calls (LARDER_IO=threads):
# ThreadSanitizer sees no synchronisation in a completion that comes through an io_uring. LZ4 and
# zstd are C and not instrumented.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

cannot() {
  echo "tsan: $*" >&2
  exit 2
}

target=$(rustc -vV | sed -n 's/^host: //p')
case $target in
x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu) ;;
*) cannot "ThreadSanitizer is not known to work for $target" ;;
esac
library=$(rustc --print sysroot)/lib/rustlib/src/rust/library
if [ ! -e "$library/Cargo.lock" ]; then
  command -v rustup >/dev/null || cannot "the sources of the standard library are missing, and there is no rustup to fetch them"
  rustup component add rust-src >/dev/null 2>&1 || cannot "the sources of the standard library cannot be fetched"
fi

export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/tsan
mkdir -p "$CARGO_TARGET_DIR"

# The sanitizer must find this race. A sanitizer that finds nothing anywhere would pass for a clean
# bill.
cat >"$CARGO_TARGET_DIR/racy.rs" <<'RACY'
static mut COUNT: u64 = 0;
fn main() {
    let count = || (0..1000).for_each(|_| unsafe { COUNT += 1 });
    let other = std::thread::spawn(count);
    count();
    let _ = other.join();
}
RACY
rustc --edition 2024 -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer "$CARGO_TARGET_DIR/racy.rs" \
  -o "$CARGO_TARGET_DIR/racy" || cannot "this compiler builds nothing with ThreadSanitizer"
status=0
"$CARGO_TARGET_DIR/racy" >"$CARGO_TARGET_DIR/racy.log" 2>&1 || status=$?
grep -q 'WARNING: ThreadSanitizer: data race' "$CARGO_TARGET_DIR/racy.log" ||
  cannot "ThreadSanitizer does not find a race that is there (exit $status): $(head -n 1 "$CARGO_TARGET_DIR/racy.log")"

export RUSTFLAGS="-Zsanitizer=thread"
export TSAN_OPTIONS="halt_on_error=0 exitcode=66 history_size=4 ${TSAN_OPTIONS:-}"
export LARDER_IO=threads
run() {
  echo "tsan: cargo test $*"
  cargo test -Zbuild-std --target "$target" "$@"
}
run -p larder-engine --test threads
# One of the tests starts the program a second time, and waits for its last words.
run -p larder-device --lib -- driver:: threads:: file:: ram:: buf:: future::
run -p larder-serve --test nbd -- client lifecycle requests
echo "tsan: no race found"
