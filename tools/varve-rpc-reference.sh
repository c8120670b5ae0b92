#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the reference of all methods into doc/rpc.md, asked of the varve in build/bin (or $VARVE_BUILD/bin).
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VARVE_BUILD:-$PWD/build}/bin
folder=$(mktemp -d)
"$bin/varve" --no-huge --no-pci --num-trace-entries 0 --wait-for-rpc -r "$folder/rpc.sock" >"$folder/log" 2>&1 &
trap 'kill $! && wait $! || true; rm -rf "$folder"' EXIT
for _ in $(seq 100); do
	! "$bin/varve-rpc" -s "$folder/rpc.sock" --markdown >"$folder/reference" 2>/dev/null || break
	sleep 0.1
done
[ -s "$folder/reference" ] || { cat "$folder/log" >&2; exit 1; }
sed '/^`varve-rpc --markdown` prints what follows/q' doc/rpc.md >"$folder/page"
{ cat "$folder/page"; echo; cat -s "$folder/reference"; } >"$folder/new"
sed -i '${/^$/d}' "$folder/new"
cp "$folder/new" doc/rpc.md
