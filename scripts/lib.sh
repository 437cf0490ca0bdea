# Sourced by the other scripts: a served volume with a file system on it, and its undoing.
#
# A function here records every process, loop device and mount that it starts, by its id. `undo_all`
# undoes them, last first; nothing else is ever touched. Sourcing scripts call `trap undo_all EXIT`.

say() { printf '%s\n' "$*"; }
die() {
  printf '%s\n' "$*" >&2
  exit 1
}

undo=() # commands, undone last first

# shellcheck disable=SC2317,SC2329 # called by a trap
undo_all() {
  local status=$? at
  set +e
  for ((at = ${#undo[@]} - 1; at >= 0; at--)); do
    eval "${undo[at]}" >/dev/null 2>&1
  done
  return "$status"
}

undo_last() {
  eval "${undo[-1]}"
  unset 'undo[-1]'
}

# Ends one process of ours with SIGTERM and waits for it: its exit code is ours.
end_process() {
  local status=0
  kill -TERM "$1" 2>/dev/null || true
  wait "$1" || status=$?
  [ "$status" = 0 ] || say "a process that was asked to finish ended with $status" >&2
  return "$status"
}

unmount() {
  local try
  for try in $(seq 100); do
    umount "$1" 2>/dev/null && return 0
    mountpoint -q "$1" || return 0
    sleep 0.1
  done
  say "$1 is still in use after $try tries" >&2
  return 1
}

# start_server LOG COMMAND...: starts it in the background, and returns once it has printed its line
# `ready: URI`.
# Sets server_uri.
start_server() {
  local log=$1 pid try
  shift
  : >"$log"
  "$@" >"$log" 2>"$log.err" &
  pid=$!
  undo+=("end_process $pid")
  for try in $(seq 600); do
    server_uri=$(sed -n 's/^ready: //p' "$log")
    [ -n "$server_uri" ] && return 0
    kill -0 "$pid" 2>/dev/null || die "the server ended before it served: $(cat "$log.err")"
    sleep 0.1
  done
  die "the server did not say that it serves after $((try / 10)) seconds: $(cat "$log.err")"
}

# attach URI FOLDER: makes the export a file by nbdfuse, and that file a loop device. Sets
# loop_device.
attach() {
  local uri=$1 folder=$2 pid try
  mkdir -p "$folder"
  nbdfuse "$folder/nbd" "$uri" 2>"$folder.log" &
  pid=$!
  undo+=("unmount '$folder'; wait $pid")
  for try in $(seq 300); do
    [ -e "$folder/nbd" ] && break
    kill -0 "$pid" 2>/dev/null || die "nbdfuse ended: $(cat "$folder.log")"
    sleep 0.1
  done
  [ -e "$folder/nbd" ] || die "nbdfuse did not mount after $((try / 10)) seconds"
  loop_device=$(losetup --direct-io=on -f --show "$folder/nbd")
  undo+=("losetup -d '$loop_device'")
}

# mount_device DEVICE FOLDER
mount_device() {
  mkdir -p "$2"
  mount -o noatime "$1" "$2"
  undo+=("unmount '$2'")
}

# The commands here need root, /dev/fuse and a free loop device: one sentence if this machine lacks
# one.
need_mounts() {
  [ "$(id -u)" = 0 ] || die "$1 mounts a file system and so must run as root: try sudo -E $0"
  [ -e /dev/fuse ] || die "$1 needs /dev/fuse, which this machine or container does not have"
  losetup -f >/dev/null 2>&1 || die "$1 needs a free loop device, which this machine or container does not have"
}

# number FILE KEY: prints one value of a flat JSON object.
number() {
  local value
  value=$(grep -oE "\"$2\" *: *-?[0-9.eE+-]+" "$1" | head -n 1 | sed 's/.*: *//')
  printf '%s' "${value:-0}"
}
