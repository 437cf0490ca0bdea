#!/usr/bin/env bash
# Runs cargo-deny over the workspace. Licences, bans and sources always; advisories if their
# database can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

if ! command -v cargo-deny >/dev/null 2>&1; then
  echo "deny: installing cargo-deny (a few minutes, once)"
  cargo install --locked --quiet cargo-deny
fi
cargo deny --locked check bans licenses sources
if timeout 120 cargo deny fetch db >/dev/null 2>&1; then
  cargo deny --locked check advisories
else
  echo "deny: the advisory database cannot be fetched from here; advisories were not checked"
fi
