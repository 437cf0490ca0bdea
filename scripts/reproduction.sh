#!/usr/bin/env bash
# `make reproduction`: prints the papers' experiments again, and compares with docs/REPRODUCTION.md, line by line. Exit 1, with what differs,
# where the page has other figures than this tree.
#
#   scripts/reproduction.sh [NAME...]     these experiments alone
#
# Compared is each block of a section that begins with `larder paper run NAME`, in the order in which it prints them. Left out, and
# named, are experiments on the real clock, whose figures differ from run to run, and blocks that want a file: those behind a word on recordings.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

page=docs/REPRODUCTION.md
cargo build --release -p larder
larder=${CARGO_TARGET_DIR:-target}/release/larder
work=$(mktemp -d "${TMPDIR:-/tmp}/larder-reproduction.XXXXXX")
undo+=("rm -rf --one-file-system '$work'")
trap undo_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Each block as a file NAME/NUMBER, beside NAME/skipped with what was left out.
awk -v work="$work" '
  /^`larder paper run [a-z0-9-]+`/ { split($0, word, /[ `]+/); name = word[5]; blocks = 0; system("mkdir -p " work "/" name); files = 0; next }
  /^`larder paper run / || /^##/ { name = ""; next }
  name == "" { next }
  /^```/ && !inside { inside = 1; if (!files) { blocks++; out = work "/" name "/" blocks; printf "" > out } else { out = ""; print "a block on files" > (work "/" name "/skipped") } next }
  /^```/ { inside = 0; next }
  # A block that begins with a command of its own is of that command.
  inside && out != "" && /^larder / { out = ""; print "a block of a command of its own" > (work "/" name "/skipped"); system("rm " work "/" name "/" blocks); next }
  inside { if (out != "") print > out; next }
  # What stands before a block says what it is of.
  /^$/ { next }
  { files = /[Rr]ecording|--trace|shared\/traces|`--/ }
' "$page"

status=0
for name in "$@"; do
  [ -d "$work/$name" ] || die "$page has no figures of an experiment \"$name\""
done
for folder in "$work"/*/; do
  name=$(basename "$folder")
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  if ! ls "$folder"[0-9]* >/dev/null 2>&1; then
    say "$name: left out: it wants files"
    continue
  fi
  # An experiment that counts has no clock, and is asked again without.
  ran=yes
  "$larder" paper run "$name" --clock virtual >"$work/$name.out" 2>"$work/$name.err" || ran=no
  if grep -q "on the real clock only" "$work/$name.err"; then
    say "$name: left out: it is on the real clock"
    continue
  fi
  if [ $ran = no ] && ! "$larder" paper run "$name" >"$work/$name.out" 2>"$work/$name.err"; then
    say "$name: failed: $(cat "$work/$name.err")"
    status=1
    continue
  fi
  sed -i 's/[[:space:]]*$//' "$work/$name.out"
  for block in "$folder"[0-9]*; do
    # Its lines, one after the other, somewhere in what was printed.
    if awk '
      NR == FNR { block[++lines] = $0; next }
      { printed[++all] = $0 }
      END {
        for (from = 0; from + lines <= all; from++) {
          for (at = 1; at <= lines && printed[from + at] == block[at]; at++);
          if (at > lines) exit 0
        }
        exit 1
      }' "$block" "$work/$name.out"; then
      say "$name: block $(basename "$block") is as printed"
    else
      say "$name: block $(basename "$block") differs. The page has, and this tree does not print:"
      grep -vxFf "$work/$name.out" "$block" || say "(the same lines in another order, or with others between)"
      status=1
    fi
  done
done
exit $status
