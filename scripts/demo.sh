#!/usr/bin/env bash
# `make demo`: real work on an ext4 file system on a slow disk, first without a cache, then with
# Larder before it. It ends with a table of the cache's counters. It needs root on Debian 12, and
# about two minutes after the build. All its files stay in target/demo.
#
# The disk is a sparse file that Larder serves with the timing of a 7,200 rpm disk. So the demo
# shows the same on any machine. Both runs reach it in the same way: NBD, nbdfuse, loop device,
# ext4. Between steps the file system is mounted anew, so that files come from the volume and not
# from memory.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

flash_size=1G
origin_size=8G
profile=${LARDER_DEMO_PROFILE:-hdd-7200}
folder=${LARDER_DEMO_DIR:-$PWD/target/demo}
sources_mib=64 # of crate sources in one tree

need_mounts "the demo"
LARDER_SKIP_FSX=1 scripts/install-packages.sh
for program in nbdfuse mkfs.ext4 losetup tar cc ar; do
  command -v "$program" >/dev/null || die "the demo needs $program, and could not install it"
done
if [ -z "${LARDER:-}" ]; then
  say "build: cargo build --release -p larder"
  cargo build --release --quiet -p larder
  LARDER=${CARGO_TARGET_DIR:-$PWD/target}/release/larder
fi

trap undo_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
rm -rf --one-file-system "$folder"
mkdir -p "$folder"

# The material of the work: the sources that the build above has fetched. One archive, the same for
# both runs.
stage="$folder/stage"
mkdir -p "$stage/sources"
collect() {
  local crate total=0 kib
  # The two with C code come first: they are compiled.
  for crate in $(ls "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/{zstd-sys,lz4-sys}-*.crate 2>/dev/null) \
    $(ls "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/*.crate 2>/dev/null | LC_ALL=C sort); do
    tar -C "$stage/sources" -xzf "$crate"
    kib=$(du -sk "$stage/sources/$(basename "$crate" .crate)" | cut -f1)
    total=$((total + kib))
    [ "$total" -lt $((sources_mib * 1024)) ] || break
  done
}
collect
[ -n "$(ls "$stage/sources")" ] || die "the demo works on crate sources, and found none in ${CARGO_HOME:-$HOME/.cargo}/registry/cache"
tar -C "$stage" -cf "$stage/sources.tar" sources
# A small virtual disk with the same sources in it.
mkfs.ext4 -q -F -d "$stage/sources" "$stage/guest.img" $((sources_mib * 2))M >/dev/null 2>&1
rm -rf "$stage/sources"

mnt="$folder/mnt"
files=$(tar -tf "$stage/sources.tar" | grep -vc '/$')
say "work: $files files, $(du -sm "$stage/sources.tar" | cut -f1) MiB of sources in a tar archive, and a $((sources_mib * 2)) MiB disk image that holds them"

steps=()
declare -A seconds

remount() {
  undo_last
  mount_device "$loop_device" "$mnt"
}

# step RUN NAME COMMAND...: runs it on the freshly mounted volume, and keeps its time with its sync.
step() {
  local run=$1 name=$2 begin end
  shift 2
  remount
  printf '  %-46s' "$name"
  begin=$(date +%s%N)
  "$@"
  sync -f "$mnt"
  end=$(date +%s%N)
  seconds["$run/$name"]=$(((end - begin) / 1000000))
  printf '%8.1f s\n' "$(printf '%de-3' "${seconds["$run/$name"]}")"
  [ "$run" = bare ] && steps+=("$name")
  return 0
}

unpack() { mkdir -p "$mnt/$1" && tar -C "$mnt/$1" -xf "$stage/sources.tar"; }
clone() { cp -a "$mnt/$1" "$mnt/$2"; }
search() { grep -rIl 'unsafe' "$mnt/$1" >/dev/null; }
guests() { for guest in "$@"; do cp --sparse=always "$stage/guest.img" "$mnt/$guest.img"; done; }
notes() {
  local note
  mkdir -p "$mnt/notes"
  for note in $(seq "$1" "$2"); do
    head -c 6000 "$stage/sources.tar" | dd of="$mnt/notes/$note" bs=8K conv=fsync status=none
  done
}
# The image is mounted from its file, so that its files are read at their places in it.
inside() {
  mkdir -p "$folder/guest"
  mount -o loop,ro "$mnt/$1.img" "$folder/guest"
  undo+=("unmount '$folder/guest'")
  grep -rIl 'unsafe' "$folder/guest" >/dev/null
  undo_last
}
compare() { cmp "$mnt/guest-1.img" "$mnt/guest-2.img"; }
build() {
  local tree="$mnt/$1/sources" out="$mnt/$1/objects" source
  mkdir -p "$out"
  for source in "$tree"/zstd-sys-*/zstd/lib/{common,decompress}/*.c "$tree"/lz4-sys-*/liblz4/lib/*.c; do
    cc -O0 -w -c -o "$out/$(basename "$source" .c).o" "$source"
  done
  ar rcs "$out/libcodecs.a" "$out"/*.o
}

# Runs the work once. Its middle is a restart of the server; the caller's function does it.
work() {
  local run=$1
  step "$run" "unpack the sources" unpack tree-1
  step "$run" "copy the tree" clone tree-1 tree-2
  step "$run" "build in the first tree" build tree-1
  step "$run" "search the first tree" search tree-1
  step "$run" "copy in two disk images" guests guest-1 guest-2
  step "$run" "save 200 notes, each with fsync" notes 1 200
  restart_"$run"
  step "$run" "search the first tree, after a restart" search tree-1
  step "$run" "search the copy" search tree-2
  step "$run" "build in the copy" build tree-2
  step "$run" "copy the tree once more" clone tree-2 tree-3
  step "$run" "search inside a disk image" inside guest-2
  step "$run" "compare the disk images" compare
  step "$run" "save 200 more notes" notes 201 400
}

detach_all() {
  undo_last # the mount
  undo_last # the loop device
  undo_last # nbdfuse
  undo_last # the server
}

serve_bare() {
  start_server "$folder/bare.log" "$LARDER" serve --no-cache --origin "$folder/origin-bare" --origin-profile "$profile" \
    --nbd "unix:$folder/bare.sock"
  attach "$server_uri" "$folder/fuse"
}
restart_bare() {
  detach_all
  serve_bare
  mount_device "$loop_device" "$mnt"
}

serve_cached() {
  start_server "$folder/cached.log" "$LARDER" serve --flash "$folder/flash" --origin-profile "$profile" \
    --nbd "unix:$folder/cached.sock"
  attach "$server_uri" "$folder/fuse"
}
restart_cached() {
  local begin end
  printf '  %-46s' "(stop, start again, mount)"
  "$LARDER" status --flash "$folder/flash" --json >"$folder/status-1.json"
  begin=$(date +%s%N)
  detach_all
  serve_cached
  mount_device "$loop_device" "$mnt"
  end=$(date +%s%N)
  printf '%8.1f s\n' "$(printf '%de-3' "$(((end - begin) / 1000000))")"
}

make_fs() { mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$loop_device"; }

say
say "Without a cache: an 8 GiB disk with the timing of $profile"
truncate -s "$origin_size" "$folder/origin-bare"
serve_bare
make_fs
mount_device "$loop_device" "$mnt"
work bare
detach_all
rm -f "$folder/origin-bare"

say
say "With Larder: the same disk behind 1 GiB of flash, write-back"
truncate -s "$origin_size" "$folder/origin"
"$LARDER" create --flash "$folder/flash" --size "$flash_size" --origin "$folder/origin" --mode write-back >/dev/null
serve_cached
make_fs
mount_device "$loop_device" "$mnt"
work cached
"$LARDER" status --flash "$folder/flash" --json >"$folder/status-2.json"
detach_all

# Counters begin at the server's start: the two halves add up.
both() { printf '%s' $(($(number "$folder/status-1.json" "$1") + $(number "$folder/status-2.json" "$1"))); }
mib() { awk -v bytes="$1" 'BEGIN { printf "%.0f MiB", bytes / 1048576 }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }

{
  printf '%-42s %10s %10s %9s\n' "" "without" "with" "faster"
  sum_bare=0 sum_cached=0
  for name in "${steps[@]}"; do
    bare=${seconds["bare/$name"]} cached=${seconds["cached/$name"]}
    sum_bare=$((sum_bare + bare)) sum_cached=$((sum_cached + cached))
    awk -v name="$name" -v a="$bare" -v b="$cached" \
      'BEGIN { printf "%-42s %8.1f s %8.1f s %8.1fx\n", name, a / 1000, b / 1000, a / (b > 0 ? b : 1) }'
  done
  awk -v a="$sum_bare" -v b="$sum_cached" \
    'BEGIN { printf "%-42s %8.1f s %8.1f s %8.1fx\n", "all of it", a / 1000, b / 1000, a / (b > 0 ? b : 1) }'
  echo
  status="$folder/status-2.json"
  hits=$(($(both read_hits) + $(both prefetch_hits))) read=$(both read_chunks)
  inserted=$(($(both inserted_chunks) - $(both zero_chunks)))
  line() { printf '%-42s %s\n' "$1" "$2"; }
  line "read hit ratio" "$(awk -v h="$hits" -v r="$read" 'BEGIN { printf "%.1f %%", r ? 100 * h / r : 0 }')"
  line "cached: logical bytes" "$(mib "$(number "$status" logical_bytes_cached)")"
  line "cached: flash bytes used" "$(mib "$(number "$status" flash_bytes_used)")"
  line "deduplication ratio" "$(ratio "$inserted" $((inserted - $(both duplicate_chunks))))"
  line "compression ratio" "$(ratio "$(both stored_content_bytes)" "$(both stored_bytes)")"
  written=$(both flash_bytes_written) plain=$(both plain_cache_bytes_written)
  line "flash bytes written" "$(mib "$written")"
  line "flash bytes a plain cache would write" "$(mib "$plain")"
  line "plain cache against Larder" "$(ratio "$plain" "$written")"
} >"$folder/table.txt"
say
cat "$folder/table.txt"

cat <<END

The flash, the disk, the logs and this table are in $folder (remove it when you like).

Your own device next (the flash is overwritten, the slow disk keeps its content):
  larder create --flash /dev/nvme0n1p3 --origin /dev/sdb
  larder serve  --flash /dev/nvme0n1p3 --nbd unix:/run/larder.sock
  nbdfuse /mnt/larder/nbd 'nbd+unix:///?socket=/run/larder.sock' &
  mount \$(losetup --direct-io=on -f --show /mnt/larder/nbd) /mnt/data
Use the slow disk through Larder only, until \`larder flush\` has written everything back to it.
END
