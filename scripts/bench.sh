#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the benchmarks, all or those named, and prints `name value unit` lines: medians of interleaved turns.
#
#   scripts/bench.sh [--svg=FILE] [NAME...]     NAME: one of `scripts/bench.sh --list`
#                                               --svg=FILE: where `latency` writes its plot
#   scripts/bench.sh compare                    a table of varve beside what others have: bench/compare.py
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."

names() {
	for f in bench/*.c bench/*.py; do
		[ ! -f "$f" ] || basename "${f%.*}"
	done | grep -vxE 'bdev_load|compare|nvmf_tcp_bare|plot|target|trace_(lttng|peers|rte|sample(_main)?)' | sort
}
case ${1:-} in
-h | --help) sed -n '3,8s/^# \?//p' "$0"; exit ;;
--list) names; exit ;;
--svg=*)
	VARVE_BENCH_SVG=$(cd "$here" && realpath -m "${1#--svg=}")
	export VARVE_BENCH_SVG
	shift
	;;
esac
scripts/build.sh >&2
export VARVE_BUILD=${VARVE_BUILD:-$PWD/build}
if [ "${1:-}" = compare ]; then
	exec python3 bench/compare.py "${@:2}"
fi
[ $# -gt 0 ] || set -- $(names)
# The cost of the bare TSC read belongs to every run: other figures are compared with it.
case " $* " in *" trace "*) ;; *) set -- trace "$@" ;; esac
status=0
for name; do
	if [ -x "$VARVE_BUILD/bench/bench-$name" ]; then
		"$VARVE_BUILD/bench/bench-$name" || status=1
	elif [ -f "bench/$name.py" ]; then
		python3 "bench/$name.py" || status=1
	else
		echo "bench.sh: no benchmark '$name'; there are: $(names | tr '\n' ' ')" >&2
		status=2
	fi
done
exit $status
