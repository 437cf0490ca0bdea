#!/usr/bin/env bash
# `make demo`: real work on an ext4 file system on a slow disk, first without a cache, then with a
# cache of each of three designs before it. It ends with one table of all four. It needs root on
# Debian 12, and about four minutes after the build. All its files stay in target/demo.
#
# The disk is a sparse file that Larder serves with the timing of a 7,200 rpm disk. So the demo
# shows the same on any machine. All runs reach it in the same way: NBD, nbdfuse, loop device, ext4.
# Between steps the file system is mounted anew, so that files come from the volume and not from
# memory. The work touches three times as much data as the flash has room for.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

flash_size=112M
designs=(lru nitro larder) # a plain cache, the published one that saves most, and ours
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
# all runs.
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

declare -A spent # milliseconds of each run and kind of work
declare -A disk  # bytes that each run read from the disk

remount() {
  undo_last
  mount_device "$loop_device" "$mnt"
}

# step RUN KIND NAME COMMAND...: runs it on the freshly mounted volume, and adds its time with its
# sync to the kind's.
step() {
  local run=$1 kind=$2 name=$3 begin took
  shift 3
  remount
  printf '  %-46s' "$name"
  begin=$(date +%s%N)
  "$@"
  sync -f "$mnt"
  took=$((($(date +%s%N) - begin) / 1000000))
  spent["$run/$kind"]=$((${spent["$run/$kind"]:-0} + took))
  spent["$run/all"]=$((${spent["$run/all"]:-0} + took))
  printf '%8.1f s\n' "$(printf '%de-3' "$took")"
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

# Runs the work once. In its middle the server ends, and starts again.
work() {
  local run=$1
  step "$run" write "unpack the sources" unpack tree-1
  step "$run" write "copy the tree" clone tree-1 tree-2
  step "$run" write "build in the first tree" build tree-1
  step "$run" read "search the first tree" search tree-1
  step "$run" write "copy in two disk images" guests guest-1 guest-2
  step "$run" save "save 200 notes, each with fsync" notes 1 200
  restart "$run"
  step "$run" read "search the first tree, after a restart" search tree-1
  step "$run" read "search the copy" search tree-2
  step "$run" write "build in the copy" build tree-2
  step "$run" write "copy the tree once more" clone tree-2 tree-3
  step "$run" read "search inside a disk image" inside guest-2
  step "$run" read "compare the disk images" compare
  step "$run" save "save 200 more notes" notes 201 400
}

serve() {
  local what=(--flash "$folder/flash-$1")
  [ "$1" != bare ] || what=(--no-cache --origin "$folder/origin-bare")
  start_server "$folder/$1.log" "$LARDER" serve "${what[@]}" --origin-profile "$profile" --nbd "unix:$folder/$1.sock"
  attach "$server_uri" "$folder/fuse"
  read_before=$(bytes_read)
}

# Bytes that were read from the loop device, and from those before it under its name.
bytes_read() { awk '{ printf "%.0f", $3 * 512 }' "/sys/block/$(basename "$loop_device")/stat"; }

# Ends all of a run but its file system, and notes its counters.
detach() {
  local run=$1 half=$2 read
  undo_last # the mount
  # Without a cache, each byte that the file system reads is one of the disk.
  read=$(($(bytes_read) - read_before))
  if [ "$run" != bare ]; then
    "$LARDER" status --flash "$folder/flash-$run" --json >"$folder/$run-$half.json"
    read=$(number "$folder/$run-$half.json" origin_bytes_read)
  fi
  disk["$run"]=$((${disk["$run"]:-0} + read))
  undo_last # the loop device
  undo_last # nbdfuse
  undo_last # the server
}

restart() {
  local run=$1 begin end
  printf '  %-46s' "(stop, start again, mount)"
  begin=$(date +%s%N)
  detach "$run" 1
  serve "$run"
  mount_device "$loop_device" "$mnt"
  end=$(date +%s%N)
  printf '%8.1f s\n' "$(printf '%de-3' "$(((end - begin) / 1000000))")"
}

make_fs() { mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$loop_device"; }

# Each run begins with an empty disk.
run() {
  local run=$1
  truncate -s "$origin_size" "$folder/origin-$run"
  [ "$run" = bare ] || "$LARDER" create --flash "$folder/flash-$run" --size "$flash_size" --origin "$folder/origin-$run" \
    --mode write-back --design "$run" >/dev/null
  serve "$run"
  make_fs
  mount_device "$loop_device" "$mnt"
  work "$run"
  detach "$run" 2
  [ "$run" = larder ] || rm -f "$folder/origin-$run"
  # The machine writes this run's files to its own disk before the next run begins.
  sync -f "$folder"
}

say
say "Without a cache: an 8 GiB disk with the timing of $profile"
run bare
for design in "${designs[@]}"; do
  say
  say "With the design $design: the same disk behind $flash_size of flash, write-back"
  run "$design"
done

# Counters begin at the server's start: the two halves add up.
written() { printf '%s' $(($(number "$folder/$1-1.json" flash_bytes_written) + $(number "$folder/$1-2.json" flash_bytes_written))); }
ram() { number "$folder/$1-2.json" index_ram_bytes; }
# row NAME SCALE UNIT VALUE...: a line of the table; a value of - is none.
row() {
  local name=$1 scale=$2 unit=$3
  shift 3
  printf '%-36s' "$name"
  printf '%s\n' "$@" | awk -v scale="$scale" -v unit="$unit" '{
    printf "%12s", $1 == "-" ? "-" : sprintf(scale == 1000 ? "%.1f %s" : "%.0f %s", $1 / scale, unit)
  } END { print "" }'
}
time_row() {
  local name=$1 kind=$2 run times=()
  for run in bare "${designs[@]}"; do times+=("${spent["$run/$kind"]}"); done
  row "$name" 1000 s "${times[@]}"
}
of_designs() { for design in "${designs[@]}"; do "$1" "$design" && printf ' '; done; }

{
  printf '%-36s%12s%12s%12s%12s\n' "" "no cache" "${designs[@]}"
  time_row "search and compare" read
  time_row "unpack, copy and build" write
  time_row "save 400 notes, each with fsync" save
  time_row "all of it" all
  row "read from the disk" 1048576 MiB "${disk[bare]}" "${disk[lru]}" "${disk[nitro]}" "${disk[larder]}"
  # shellcheck disable=SC2046 # numbers
  row "written to the flash" 1048576 MiB - $(of_designs written)
  # shellcheck disable=SC2046 # numbers
  row "RAM of the index" 1024 KiB - $(of_designs ram)
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
