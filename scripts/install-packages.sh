#!/usr/bin/env bash
# Installs the client programs of the tests and the demo.
# It prints one line about its work. If it cannot install, it prints the missing programs and exits
# with 0: the tests skip these, each with a printed line. With LARDER_REQUIRE_TOOLS=1 a program that
# stays missing is an error.
set -euo pipefail

# program=package
wanted=(nbdinfo=libnbd-bin nbdcopy=libnbd-bin nbdkit=nbdkit nbdfuse=nbdfuse qemu-img=qemu-utils qemu-io=qemu-utils
  fio=fio mkfs.xfs=xfsprogs xfs_repair=xfsprogs mkfs.ext4=e2fsprogs fsck.ext4=e2fsprogs fusermount3=fuse3
  losetup=mount fstrim=util-linux findmnt=util-linux sqlite3=sqlite3)
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"

have() { command -v "$1" >/dev/null 2>&1; }

packages=()
for pair in "${wanted[@]}"; do
  have "${pair%%=*}" || packages+=("${pair##*=}")
done
if [ ${#packages[@]} -gt 0 ]; then
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  if [ "$(id -u)" = 0 ] && have apt-get; then
    echo "packages: installing ${packages[*]} with apt-get"
    log=$(mktemp)
    if ! { DEBIAN_FRONTEND=noninteractive apt-get update &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
      echo "packages: apt-get failed: $(grep -E '^(E|W):' "$log" | tail -n 1)"
    fi
    rm -f "$log"
  fi
fi
# fsx is no Debian package. It builds in under a minute.
if [ "${LARDER_SKIP_FSX:-0}" = 1 ]; then
  : # the demo does without
elif ! have fsx && have cargo; then
  echo "packages: building fsx with cargo install"
  cargo install --locked --quiet fsx || echo "packages: cargo install fsx failed"
fi

missing=()
[ "${LARDER_SKIP_FSX:-0}" = 1 ] || wanted+=(fsx=)
for pair in "${wanted[@]}"; do
  have "${pair%%=*}" || missing+=("${pair%%=*}")
done
if [ ${#missing[@]} = 0 ]; then
  echo "packages: every client program is there"
elif [ "${LARDER_REQUIRE_TOOLS:-0}" = 1 ]; then
  echo "packages: missing ${missing[*]}, and LARDER_REQUIRE_TOOLS=1 asks for them all" >&2
  exit 1
else
  echo "packages: missing ${missing[*]} (as root on Debian 12 this would install them); tests that need them are skipped"
fi
