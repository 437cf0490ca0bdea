#!/usr/bin/env bash
# `make new-design`: adds a design to a copy of the committed tree, and runs the engine's suites
# over it. That shows that a new design is a file of its own with its page, and a line in each table
# of names. It touches neither the engine nor any other file. Exit 0 if that holds and all suites
# pass.
#
# The design is scripts/new-design/fifo.rs, and its page fifo.md beside it. The build folder is
# target/new-design, where the dependencies stay for the next time. It is never the folder of this
# tree itself. Cargo takes crates of two copies of one workspace for the same, and would use those
# that know the new design. Nothing else is left behind, even after a failure.
#
# It shows that the compiler, the rules of the house and the suites below need nothing more than
# those lines. It does not run other tests: those of larder-core and larder-sim, and those of the
# program with real clients.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

name=fifo
design=scripts/new-design/fifo.rs
page=scripts/new-design/fifo.md
# The places of the new files.
home=crates/larder-core/src/designs/fifo.rs
page_home=docs/designs/fifo.md
# Lines that the same design needed before the traits of a design were divided, without a page.
lines_before=188
# The tables of names, in the order of `git`: all other changed files.
tables=(
  ARCHITECTURE.md
  Makefile
  crates/larder-core/src/designs.rs
  crates/larder-format/src/codes.rs
  crates/larder-lab/tests/laboratory/designs_agree/logs.rs
  crates/larder-sim/src/setup/designs.rs
  docs/FORMAT.md
)
# The suites, each line with LARDER_DESIGN. First come the rules of the house, which miss a table
# that lacks the design, and the check that the simulator decides the engine's log. Then come the
# engine's contract, recovery, crash sweep with its sample, and seeds of the simulation.
suites=(
  "--test program -- house::"
  "--test laboratory -- designs_agree::logs::$name designs_agree::logs::every"
  "--test engine -- contract:: recovery::"
  "--test engine -- crash_sweep:: --nocapture"
  "--test simulation -- seeds"
)

work=$(mktemp -d "${TMPDIR:-/tmp}/larder-new-design.XXXXXX")
undo+=("rm -rf --one-file-system '$work'")
trap undo_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export CARGO_TARGET_DIR=$PWD/target/new-design
tree=$work/tree
mkdir "$tree"
# All files are as new as now; else Cargo would take the build of the last copy for as new as this
# one.
git archive HEAD | tar -x -m -C "$tree"
cp "$design" "$work/design.rs"
cp "$page" "$work/page.md"
cd "$tree"
git init -q
git add -A
git -c user.name=larder -c user.email=larder@localhost -c commit.gpgsign=false commit -q -m "As it was"

# add FILE BEGIN END LINE...: adds the lines before the first line END after a line that begins with
# BEGIN.
add() {
  local file=$1 begin=$2 end=$3
  shift 3
  LINES_TO_ADD=$(printf '%s\n' "$@") awk -v begin="$begin" -v end="$end" '
    index($0, begin) == 1 { inside = 1 }
    inside && !done && $0 == end { print ENVIRON["LINES_TO_ADD"]; done = 1 }
    { print }
    END { exit !done }
  ' "$file" >"$work/changed" || die "$file has no table that begins with: $begin"
  cat "$work/changed" >"$file"
}

last=$(sed -n '/^    named DesignId {/,/^    }/s/.* = \([0-9]*\) ".*/\1/p' crates/larder-format/src/codes.rs | sort -n | tail -n 1)
number=$((last + 1))
cp "$work/design.rs" "$home"
cp "$work/page.md" "$page_home"
sed -i "s,^\[nitro\](docs/designs/nitro.md),&\, [$name]($page_home)," ARCHITECTURE.md
add crates/larder-core/src/designs.rs "pub mod d_lru;" "pub mod larder;" "pub mod fifo;"
add crates/larder-core/src/designs.rs "pub const DESIGNS" "];" "    fifo::DESIGN,"
add crates/larder-format/src/codes.rs "    named DesignId {" "    }" "        /// FIFO without data reduction." "        Fifo = $number \"$name\","
add crates/larder-sim/src/setup/designs.rs "pub static REPLAY_DESIGNS" "];" \
  "    replayed(larder_core::fifo::DESIGN, \"first in, first out; no data reduction\", &[OptionId::Ram], executed::slots),"
add crates/larder-lab/tests/laboratory/designs_agree/logs.rs "decide_alike! {" "}" "    fifo_decides_alike: \"$name\","
sed -i "s/^SLOT_DESIGNS ?= .*/& $name/" Makefile
sed -i "s/^\(| 65 | 1 | design | .*[^ ]\) |\$/\1, $number $name |/" docs/FORMAT.md

say "What the design $name, number $number, adds and touches:"
git add -A
git --no-pager diff --cached --stat=120 --summary
touched=$(git diff --cached --name-only --diff-filter=M)
created=$(git diff --cached --name-only --diff-filter=A)
[ "$touched" = "$(printf '%s\n' "${tables[@]}")" ] || die "it touches something else than the tables of names: $touched"
[ "$created" = "$home"$'\n'"$page_home" ] || die "it needs something else than its own file and page: $created"
lines=$(git diff --cached --numstat | awk '{ lines += $1 } END { print lines }')
say "It needs $lines lines, $(wc -l <"$page_home") of them its page. It needed $lines_before before the traits were divided."
cargo fmt --all --check || die "the design is not formatted"

for suite in "${suites[@]}"; do
  say "cargo test --workspace $suite"
  # The words of a line are arguments. If a suite passes, its closing lines are enough.
  # shellcheck disable=SC2086
  if ! LARDER_DESIGN=$name cargo test --quiet --locked --workspace $suite >"$work/log" 2>&1; then
    tail -n 60 "$work/log" >&2
    die "the design $name fails: cargo test --workspace $suite"
  fi
  # A filter that selects no test passes, too.
  grep -qE '^\.*test result: ok\. [1-9][0-9]* passed|^[0-9]+ seeds' "$work/log" || die "no test is selected: cargo test --workspace $suite"
  # Between the lines of one test stand the dots of those that passed.
  { grep -E '^test result: |crash points|^[0-9]+ seeds' "$work/log" || true; } | sed 's/^\.*//'
done

cargo build --quiet --locked --workspace --bins --profile test
larder=$CARGO_TARGET_DIR/debug/larder
truncate -s 256M "$work/origin"
"$larder" create --flash "$work/flash" --size 64M --origin "$work/origin" --design "$name"
"$larder" dump superblock --flash "$work/flash" --json | grep -q "\"$name\"" || die "the superblock does not name the design"
"$larder" verify --flash "$work/flash"
"$larder-lab" sim run --trace crates/larder-trace/tests/fixtures/blkparse.txt --design "$name" --flash 1M >"$work/log"
grep "^$name, write-back" "$work/log" || die "larder-lab does not replay it: $(cat "$work/log")"
say "ok: $name is a design, by one new file, its page and a line or two in each of ${#tables[@]} tables"
