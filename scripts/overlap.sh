#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Operations that overlap (unittest/overlap): a night's run of interleavings, on all CPUs, under AddressSanitizer.
#
#   scripts/overlap.sh [MINUTES]                 by default 30
#   scripts/overlap.sh --night                   10 000 interleavings: more than 1 million operations
#   scripts/overlap.sh --interleavings N         so many of them
#   VARVE_SEED=N scripts/overlap.sh              the first seed; by default the time
#   VARVE_BUILD=DIR scripts/overlap.sh           the build folder; by default build-asan
#
# The last line has the sums. Exit status: 0 if no interleaving failed. A failure is shortened and printed, with the command that repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '3,11s/^# \?//p' "$0"; exit "$1"; }

minutes=30 interleavings=0
case ${1:-} in
-h | --help) usage 0 ;;
--night) interleavings=10000 ;;
--interleavings) interleavings=${2:-} ;;
?*) minutes=$1 ;;
esac
[[ $minutes =~ ^[1-9][0-9]*$ && $interleavings =~ ^[0-9]+$ ]] || usage 2 >&2
build=${VARVE_BUILD:-build-asan} seed=${VARVE_SEED:-$(date +%s)} n=$(nproc)
if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" -Db_sanitize=address,undefined -Db_lundef=false >"$build.log" 2>&1 || { tail -n 20 "$build.log" >&2; exit 1; }
fi
ninja -C "$build" unittest/unit-overlap >"$build.log" 2>&1 || { tail -n 20 "$build.log" >&2; exit 1; }
rm -f "$build.log"
if [ "$interleavings" -gt 0 ]; then
	export VARVE_ROUNDS=$(((interleavings + n - 1) / n))
else
	export VARVE_SECONDS=$((minutes * 60))
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for ((i = 0; i < n; i++)); do
	# Seeds of different processes are far apart.
	VARVE_SEED=$((seed + i * 100000000)) VARVE_FAILURES=20 "$build/unittest/unit-overlap" leave_nothing_behind >"$tmp/$i" 2>&1 &
done
rc=0
for ((i = 0; i < n; i++)); do
	wait -n || rc=1
done
cat "$tmp"/*
awk '/^seeds .* operations in /{o += $5; i += $8; f += $(NF - 1)} END{print o " operations in " i " interleavings, " f " failures"}' "$tmp"/*
exit $rc
