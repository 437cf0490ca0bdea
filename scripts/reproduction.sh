#!/usr/bin/env bash
# `make reproduction`: prints the papers' experiments again, and compares with docs/REPRODUCTION.md,
# line by line. Exit 1, with the difference, if the page has other figures than this tree.
#
#   scripts/reproduction.sh [NAME...] runs these experiments alone
#
# A section's block begins with `larder paper run NAME`. Its lines have to be among those that this
# prints, in their order; a page may leave lines out. Two kinds of block are not compared but named.
# The first are experiments on the real clock, whose figures differ from run to run. The second are
# blocks of files, of another scale or of a command of their own. The paragraph before them, or
# their first line, shows this.
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

# Each block is a file NAME/NUMBER, or NAME/NUMBER.not if it is of something else than the command
# alone.
awk -v work="$work" -v other="[Rr]ecording|--[a-z]|shared/traces|[.]zst" '
  /^`larder paper run [a-z0-9-]+`/ {
    split($0, word, /[ `]+/); name = word[5]; number = 0; system("mkdir -p " work "/" name)
    paragraph = $0; next
  }
  /^`larder paper run / || /^##/ { name = ""; next }
  name == "" { next }
  /^```/ && !inside {
    inside = 1; first = 1; is_other = paragraph ~ other; number++
    if (is_other) printf "" > (work "/" name "/" number ".not")
    next
  }
  /^```/ { inside = 0; paragraph = ""; next }
  inside && first && /^larder / { is_other = 1; printf "" > (work "/" name "/" number ".not") }
  inside { first = 0; if (!is_other) print > (work "/" name "/" number); next }
  /^$/ { ends = 1; next }
  ends { ends = 0; paragraph = "" }
  { paragraph = paragraph " " $0 }
' "$page"

status=0
for name in "$@"; do
  [ -d "$work/$name" ] || die "$page has no figures of an experiment \"$name\""
done
for folder in "$work"/*/; do
  name=$(basename "$folder")
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  for block in "$folder"*.not; do
    if [ -e "$block" ]; then say "$name: block $(basename "$block" .not) is left out: it is not of this command alone"; fi
  done
  blocks=()
  for block in "$folder"*; do
    [[ $block == *.not ]] || blocks+=("$block")
  done
  [ "${#blocks[@]}" -gt 0 ] || continue
  # An experiment that counts has no clock, and runs again without.
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
  for block in "${blocks[@]}"; do
    if awk 'NR == FNR { block[++lines] = $0; next } at < lines && $0 == block[at + 1] { at++ } END { exit at < lines }' \
      "$block" "$work/$name.out"; then
      say "$name: block $(basename "$block") is as printed"
    else
      say "$name: block $(basename "$block") differs. The page has, and this tree does not print:"
      grep -vxFf "$work/$name.out" "$block" || say "(the same lines in another order)"
      status=1
    fi
  done
done
if [ $# = 0 ]; then
  for name in $("$larder" paper list | sed -n 's/^  \([a-z0-9-]*\) .*/\1/p'); do
    [ -d "$work/$name" ] || say "$name: the page has no block of it alone"
  done
fi
exit $status
