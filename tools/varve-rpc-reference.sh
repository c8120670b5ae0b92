#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the reference of all methods into doc/rpc.md and the modules' README.md, asked of the varve in build/bin (or $VARVE_BUILD/bin). A module
# that this varve was built without keeps its page.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VARVE_BUILD:-$PWD/build}/bin
folder=$(mktemp -d)
"$bin/varve" --no-huge --no-pci --num-trace-entries 0 --wait-for-rpc -r "$folder/rpc.sock" >"$folder/log" 2>&1 &
trap 'kill $! && wait $! || true; rm -rf "$folder"' EXIT

# What follows the page's line that names --markdown is replaced.
write_reference() { # page, options
	"$bin/varve-rpc" -s "$folder/rpc.sock" "${@:2}" >"$folder/reference"
	[ -s "$folder/reference" ] || return 0
	grep -q '^`varve-rpc --markdown.* prints what follows' "$1" || { echo "$1 lacks the line above its reference" >&2; exit 1; }
	sed '/^`varve-rpc --markdown.* prints what follows/q' "$1" >"$folder/page"
	{ cat "$folder/page"; echo; cat -s "$folder/reference"; } >"$folder/new"
	sed -i '${/^$/d}' "$folder/new"
	cp "$folder/new" "$1"
}

for _ in $(seq 100); do
	! "$bin/varve-rpc" -s "$folder/rpc.sock" rpc_get_methods >/dev/null 2>&1 || break
	sleep 0.1
done
"$bin/varve-rpc" -s "$folder/rpc.sock" rpc_get_methods >/dev/null || { cat "$folder/log" >&2; exit 1; }
write_reference doc/rpc.md --markdown
for page in bdev_modules/*/README.md; do
	name=$(basename "$(dirname "$page")")
	write_reference "$page" --markdown --module "$name"
done
