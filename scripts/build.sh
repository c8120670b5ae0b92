#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds varve into build/; what there is to run is in build/bin/ after it. Installs packages that are missing.
#
#   scripts/build.sh [MESON-OPTION...]      e.g. scripts/build.sh -Dnative=true
#   VARVE_BUILD=DIR scripts/build.sh        another build folder
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in -h | --help) sed -n '3,6s/^# \?//p' "$0"; exit ;; esac
. scripts/packages.sh
packages_need build

build=${VARVE_BUILD:-build}
log=$build.log
if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" "$@" >"$log" 2>&1 || { grep ERROR "$log" >&2 || tail -n 20 "$log" >&2; exit 1; }
elif [ $# -gt 0 ]; then
	meson configure "$build" "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
fi
if [ -t 1 ]; then
	ninja -C "$build" --quiet
else
	ninja -C "$build" >"$log" 2>&1 || { grep -E -A8 'FAILED|error' "$log" | head -n 60 >&2; exit 1; }
fi
rm -f "$log"
echo "Built: $build/bin"
