#!/usr/bin/env bash
# `make reproduction`: runs the papers' experiments again, and compares with their outputs in
# docs/reproduction/, line by line. Exit 1, with the difference, if these have other figures than
# this tree prints.
#
#   scripts/reproduction.sh [NAME...]   runs these experiments alone
#   WRITE=1 scripts/reproduction.sh     also writes the outputs that differ, and exits 0
#
# A block after the line `larder-lab paper run NAME` is of that experiment. Its lines have to be
# among those that this prints, in their order; a block may leave lines out. WRITE=1 replaces a
# block that differs by all tables of the output, without its title and notes. Blocks after other
# lines, which are "as recorded", are neither compared nor written. docs/REPRODUCTION.md is written
# by hand, and not read here.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

cargo build --release --locked -p larder-lab
larder=${CARGO_TARGET_DIR:-target}/release/larder-lab
work=$(mktemp -d "${TMPDIR:-/tmp}/larder-reproduction.XXXXXX")
undo+=("rm -rf --one-file-system '$work'")
trap undo_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Finds the block of the experiment `name`: prints it, or, with the file `new`, the whole document
# with `new` in its place.
block='
  $0 == "`larder-lab paper run " name "`" { ours = 1; if (new) print; next }
  ours == 1 && /^```/ {
    ours = 2
    if (new) { print; while ((getline line < new) > 0) print line }
    next
  }
  ours == 1 && !/^$/ { ours = 0 }
  ours == 2 && /^```/ { ours = 0; if (new) print; next }
  ours == 2 { if (!new) print; next }
  new { print }
'

status=0
declare -A document
names=()
for file in docs/reproduction/*.md; do
  while read -r name; do
    [ -z "${document[$name]:-}" ] || die "$name has two blocks, in ${document[$name]} and $file"
    document[$name]=$file
    names+=("$name")
  done < <(sed -n 's/^`larder-lab paper run \([a-z0-9-]*\)`$/\1/p' "$file")
  if [ $# = 0 ]; then say "$file: $(grep -c '^As recorded' "$file" || true) blocks are left out: they are as recorded"; fi
done
for name in "$@"; do
  [ -n "${document[$name]:-}" ] || die "docs/reproduction/ has no output of an experiment \"$name\" that runs again"
done
[ $# = 0 ] || names=("$@")

for name in "${names[@]}"; do
  file=${document[$name]}
  awk -v name="$name" "$block" "$file" >"$work/block"
  [ -s "$work/block" ] || die "$file: the line of $name has no block"
  if ! "$larder" paper run "$name" >"$work/out" 2>"$work/err"; then
    say "$name: failed: $(cat "$work/err")"
    status=1
    continue
  fi
  sed -i 's/[[:space:]]*$//' "$work/out"
  if awk 'NR == FNR { block[++lines] = $0; next } at < lines && $0 == block[at + 1] { at++ } END { exit at < lines }' \
    "$work/block" "$work/out"; then
    say "$name: as printed"
    continue
  fi
  say "$name: $file differs. It has, and this tree does not print:"
  grep -vxFf "$work/out" "$work/block" || say "(the same lines in another order)"
  if [ -n "${WRITE:-}" ]; then
    # Lines of tables and of traces are indented, and those of notes are not.
    sed 1d "$work/out" | awk -v RS= '/(^|\n)  / { printf "%s%s\n", between, $0; between = "\n" }' >"$work/tables"
    [ -s "$work/tables" ] || die "$name: the output has no table"
    awk -v name="$name" -v new="$work/tables" "$block" "$file" >"$work/new"
    cat "$work/new" >"$file"
    say "$name: written to $file"
  else
    status=1
  fi
done
exit $status
