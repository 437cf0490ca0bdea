#!/usr/bin/env bash
# Counts the prose of this tree, for each file and in all: comments of Rust, shell and TOML, and
# Markdown.
#
# `scripts/prose.sh [FILE…]` prints a table. `--check` prints the files with wide lines and the
# sum of all files, and fails if the sum is over a limit. Long summaries are named by their line.
#
# - `words`: all words. Code in backticks is one word, fenced code is none.
# - `wh`: `what`, `whatever`, `who`, `whoever` and `nobody`, in 1,000 words.
# - `opens`: sentences that open with `What`, `Who`, `Where`, `Whether` or `Of`, in 100.
# - `long`: sentences of more than 25 words, in 100.
# - `wide`: lines beyond 100 columns. Rows of tables, headings, and a word or link that is wide by
#   itself may be wider.
# - `sum`: doc comments with a summary, which is their first sentence, of more than 100 characters.
# - `texts`: strings above a file's tests, over all their lines, with such a subject: `nobody` or
#   `whoever` anywhere, `what` and `who` where a clause begins. Or a sentence of the string opens as
#   above, or has more than 30 words, names included. Assertions do not count.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
if [ "${1:-}" = --check ]; then
  check=1
  shift
fi
if [ $# -eq 0 ]; then
  mapfile -t files < <(git ls-files -- '*.rs' '*.md' '*.sh' '*.toml' Makefile .ci/run)
else
  files=("$@")
fi

awk -v check="$check" '
function sentence(text,   words, n, first) {
  gsub(/^[ ]+|[ ]+$/, "", text)
  if (text == "") return
  n = split(text, words, /[ ]+/)
  if (n < 3) return
  sentences[file]++
  if (n > 25) long[file]++
  first = words[1]
  gsub(/[^A-Za-z]/, "", first)
  if (first ~ /^(What|Who|Where|Whether|Of)$/) opens[file]++
}
# Ends a paragraph, and counts its words and sentences.
function end_of_paragraph(   rest, words, n, i, w, cut) {
  if (paragraph == "") return
  gsub(/`[^`]*`/, "CODE", paragraph)
  gsub(/\]\([^)]*\)/, "]", paragraph)
  gsub(/https?:[^ ]*/, "LINK", paragraph)
  n = split(paragraph, words, /[^A-Za-z\x27]+/)
  for (i = 1; i <= n; i++) {
    if (words[i] == "") continue
    total[file]++
    w = tolower(words[i])
    if (w ~ /^(what|whatever|who|whoever|nobody)$/) wh[file]++
  }
  if (!is_table) {
    rest = paragraph
    gsub(/(e\.g|i\.e|et al|vs|cf|Fig|No)\./, "ABBR", rest)
    while (match(rest, /[.!?]["\x27)*\]]*[ ]+[^a-z0-9 ]/)) {
      cut = RSTART + RLENGTH - 2
      sentence(substr(rest, 1, cut))
      rest = substr(rest, cut + 1)
    }
    sentence(rest)
  }
  paragraph = ""
}
# Returns whether a string has a wrong subject, or a sentence with a wrong opening.
function is_wrong_text(string,   lower) {
  gsub(/[Ww]hat to /, "", string)
  if (string ~ /(^|[.!?] )(What|Who|Where|Whether) [a-z]/ || string ~ /(^|[.!?] )Of [a-z][^.]*[.]/) return 1
  lower = tolower(string)
  return lower ~ /(^|[^a-z])(nobody|whoever)([^a-z]|$)/ || lower ~ /(^|[.;:,(] ?)(what|who|whatever) [a-z]/
}
# Returns whether a string has a sentence of over 30 words.
function is_long_text(string,   sentences, words, j) {
  for (j = split(string, sentences, /[.!?] +/); j > 0; j--) if (split(sentences[j], words, / +/) > 30) return 1
  return 0
}
# Judges a string that is over, paragraph by paragraph. Indented lines are a paragraph each.
function end_of_string(   parts, n, i) {
  in_string = 0
  if (is_tests || file ~ /tests/ || is_exempt) return
  gsub(/\\n/, "\n\n", string)
  gsub(/\\"/, "", string)
  n = split(string "\n\n", parts, /\n/)
  string = ""
  for (i = 1; i <= n; i++) {
    if (parts[i] !~ /^(  .*)?$/) { string = string (string == "" ? "" : " ") parts[i]; continue }
    sub(/^ +/, "", parts[i])
    judge(string)
    judge(parts[i])
    string = ""
  }
}
# Counts a paragraph of a string, if its subject, its opening or its length is wrong.
function judge(text) {
  if (!is_wrong_text(text) && !is_long_text(text)) return
  texts[file]++
  if (check) print file ":" string_line ": nobody, who or what for a subject, an opening What or Where, or over 30 words: " text
}
# Takes a line of code. A string may go on over lines: a backslash at the end joins two.
function code(line,   rest, token, at) {
  rest = line
  while (1) {
    if (!in_string) {
      if (!match(rest, /\/\/|r#*"|"|\x27(\\.|[^\\\x27])\x27/)) return
      token = substr(rest, RSTART, RLENGTH)
      if (token == "//") return
      if (token !~ /"$/) { rest = substr(rest, RSTART + RLENGTH); continue }
      is_exempt = substr(line, 1, length(line) - length(rest) + RSTART) ~ /assert|expect\(|reason = /
      in_string = 1
      string = ""
      string_line = FNR
      ending = ""
      if (token ~ /^r/) { ending = token; gsub(/[r"]/, "", ending); ending = "\"" ending }
      rest = substr(rest, RSTART + RLENGTH)
    } else if (ending != "") {
      at = index(rest, ending)
      if (!at) { string = string rest "\n"; return }
      string = string substr(rest, 1, at - 1)
      rest = substr(rest, at + length(ending))
      end_of_string()
    } else if (match(rest, /\\.|\\$|"/)) {
      token = substr(rest, RSTART, RLENGTH)
      string = string substr(rest, 1, RSTART - 1) (token == "\"" || token == "\\" ? "" : token)
      rest = substr(rest, RSTART + RLENGTH)
      if (token == "\"") end_of_string()
      else if (token == "\\") { is_joined = 1; return }
    } else {
      string = string rest "\n"
      return
    }
  }
}
# Counts the summary that has been read, if it is too long.
function end_of_summary(   text) {
  if (!summary_line) return
  text = summary
  gsub(/(e\.g|i\.e|et al|vs|cf|Fig|No)\./, "ABBR", text)
  if (match(text, /[.!?]["\x27)*\]]*[ ]+[^a-z0-9 ]/)) text = substr(text, 1, RSTART)
  if (length(text) > 100) {
    sums[file]++
    if (check) print file ":" summary_line ": a summary of " length(text) " characters"
  }
  summary = ""
  summary_line = 0
}
# Takes a line of a doc comment, whose first paragraph begins with its summary.
function doc(mark, text) {
  if (mark != in_doc) {
    end_of_summary()
    summary_line = FNR
  } else if (text ~ /^[ ]*$/) end_of_summary()
  if (summary_line) {
    gsub(/^[ ]+|[ ]+$/, "", text)
    summary = summary (summary == "" ? "" : " ") text
  }
  in_doc = mark
}
# Returns whether a line is one link, definition of a link or word, after the mark of a list.
function is_one(text) {
  sub(/^[ ]*([-*+][ ]+|[0-9]+\.[ ]+)?/, "", text)
  return text ~ /^[^ ]*(\[[^]]*\](\([^ )]*\)|:[ ]*[^ ]+))?[^ ]*$/
}
function prose(text, wide) {
  if (text ~ /^[ ]*```/) { end_of_paragraph(); fenced = !fenced; return }
  if (fenced) return
  is_row = text ~ /^[ ]*\|/
  is_heading = text ~ /^[ ]*#/
  if (is_row || is_heading || text ~ /^[ ]*$/ || text ~ /^[ ]*([-*+]|[0-9]+\.)[ ]/) end_of_paragraph()
  is_table = is_row || is_heading
  if (wide > 100 && !is_table && !is_one(text)) over[file]++
  paragraph = paragraph " " text
  if (is_table) end_of_paragraph()
}
FNR == 1 { in_string = is_joined = 0; end_of_paragraph(); end_of_summary(); in_doc = ""; is_tests = 0; file = FILENAME; order[++count] = file; fenced = 0; is_md = file ~ /\.md$/; is_rust = file ~ /\.rs$/; total[file] += 0 }
is_md { prose($0, length($0)); next }
is_rust && in_string {
  line = $0
  if (is_joined) sub(/^[ ]+/, "", line)
  is_joined = 0
  code(line)
  next
}
is_rust && match($0, /^[ ]*\/\/[\/!]?/) {
  mark = substr($0, RSTART, RLENGTH)
  rest = substr($0, RSTART + RLENGTH)
  if (mark ~ /[\/!]$/ && mark !~ /^[ ]*\/\/$/) doc(mark, rest)
  else { end_of_summary(); in_doc = "" }
  prose(rest, length($0))
  next
}
is_rust {
  end_of_paragraph()
  end_of_summary()
  in_doc = ""
  fenced = 0
  if ($0 ~ /^#\[cfg\(test\)\]/) is_tests = 1
  code($0)
  next
}
FNR > 1 && match($0, /^[ ]*#[ ]?/) { prose(substr($0, RSTART + RLENGTH), length($0)); next }
{ end_of_paragraph() }
END {
  end_of_paragraph()
  end_of_summary()
  for (i = 1; i <= count; i++) {
    f = order[i]
    if (!total[f] && !texts[f]) continue
    T += total[f]; W += wh[f]; S += sentences[f]; O += opens[f]; L += long[f]; V += over[f]; M += sums[f]; X += texts[f]
    row(f, total[f], wh[f] + 0, sentences[f] + 0, opens[f] + 0, long[f] + 0, over[f] + 0, sums[f] + 0, texts[f] + 0)
  }
  row("all", T, W, S, O, L, V, M, X)
  failed = W > 0.003 * T || O > 0.02 * S || L > 0.05 * S || V + M + X > 0
  if (check && failed) print "the limits: wh under 3 in 1,000 words, opens under 2%, long under 5%; no wide line, long summary or text" > "/dev/stderr"
  exit check && failed
}
function row(name, words, w, s, o, l, v, m, x) {
  if (check && name != "all" && !v && !m && !x) return
  printf "%7d words %6.1f wh %5.1f%% opens %5.1f%% long %5d wide %3d sum %3d texts  %s\n", words, words ? 1000 * w / words : 0, s ? 100 * o / s : 0, s ? 100 * l / s : 0, v, m, x, name
}
' "${files[@]}"
