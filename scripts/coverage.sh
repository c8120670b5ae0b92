#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Coverage of the decoders, of all that reads bytes from outside: by the corpora in unittest/fuzz/corpus/, each input once, and by the
# unit tests. Prints a line per file: its lines and branches, and how many of them were never reached.
#
#   scripts/coverage.sh              the table
#   scripts/coverage.sh FILE...      the branches of these files that were not reached
#   scripts/coverage.sh --minimum N  fails if less than N percent of all branches were reached
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

minimum= files=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) sed -n '3,8s/^# \?//p' "$0"; exit ;;
	--minimum) minimum=${2:?--minimum wants a number}; shift 2 ;;
	-*) echo "coverage.sh: unknown option '$1'; there are --minimum and --help" >&2; exit 2 ;;
	*) files+=("$1"); shift ;;
	esac
done
packages_need build test cover >&2

# A decoder's files, the fuzzers that feed it, and its unit tests.
table="
nvmf/decode_capsule.c,nvmf/decode_fabrics.c,nvmf/decode_admin.c,nvmf/decode_io.c,nvmf/decode_md.c,nvmf/decode_resv.c nvmf-decode nvmf-decode
nvmf/resv_file.c nvmf-decode nvmf-resv
nvmf_rdma/cm_decode.c nvmf_rdma_cm nvmf_rdma_cm
rpc/base64.c rpc_base64 rpc_base64
rpc/frame.c,rpc/lexer.c,rpc/message.c rpc_parser rpc_frame,rpc_message
rpc/params.c rpc_params rpc_params
softverbs/wire.c softverbs_wire -
appliance/config.c rpc_config appliance_config
appliance/metrics_http.c metrics_http appliance_metrics
trace/trace_spec.c trace_spec trace_spec
trace/reader_source.c,trace/reader_tables.c,trace/reader_ring.c trace_reader trace_reader_file,trace_reader_events
env_dpdk/cores.c cores env
env_dpdk/pci_uevent.c pci_uevent pci_device
util/parse.c cores util_parse
dhchap/message.c,dhchap/secret.c dhchap dhchap-messages
"
column() { awk -v n="$1" 'NF && $n != "-" {print $n}' <<<"$table" | tr ',' '\n' | sort -u; }

flags="-fprofile-instr-generate -fcoverage-mapping"
build() { # FOLDER OPTION... -- TARGET...
	local folder=$1 options=()
	shift
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	[ -f "$folder/build.ninja" ] || CC=clang meson setup "$folder" -Dc_link_args="-fprofile-instr-generate" "${options[@]}" >/dev/null
	ninja -C "$folder" "$@" >"$folder/coverage-build.log" || { tail -20 "$folder/coverage-build.log" >&2; exit 1; }
}
mapfile -t fuzzers < <(column 2)
mapfile -t units < <(column 3)
build build-cov-fuzz -Dfuzzers=true -Db_lundef=false "-Dc_args=$flags -fsanitize=fuzzer-no-link" -- "${fuzzers[@]/#/unittest/fuzz-}" >&2
build build-cov "-Dc_args=$flags" -- "${units[@]/#/unittest/unit-}" >&2

profiles=$PWD/build-cov/profiles objects=()
rm -rf "$profiles"
mkdir -p "$profiles"
for name in "${fuzzers[@]}"; do
	corpus=unittest/fuzz/corpus/$name
	[ -d "$corpus" ] || { echo "coverage.sh: $corpus is missing" >&2; exit 1; }
	LLVM_PROFILE_FILE="$profiles/fuzz-$name" "build-cov-fuzz/unittest/fuzz-$name" "$corpus"/* >"$profiles/$name.log" 2>&1 ||
		{ tail "$profiles/$name.log" >&2; exit 1; }
	objects+=(-object "build-cov-fuzz/unittest/fuzz-$name")
done
for name in "${units[@]}"; do
	LLVM_PROFILE_FILE="$profiles/unit-$name" "build-cov/unittest/unit-$name" >"$profiles/$name.log" 2>&1 || { grep FAIL "$profiles/$name.log" >&2; exit 1; }
	objects+=(-object "build-cov/unittest/unit-$name")
done
llvm-profdata merge -o "$profiles/all" "$profiles"/fuzz-* "$profiles"/unit-*

mapfile -t sources < <(column 1)
llvm-cov export -instr-profile="$profiles/all" "${objects[@]:1}" 2>/dev/null >"$profiles/all.json"
python3 - "$profiles/all.json" "${minimum:-0}" "${#files[@]}" "${files[@]}" "${sources[@]}" <<'PYTHON'
import json, os, sys
path, minimum, n = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
chosen, sources = sys.argv[4:4 + n], sys.argv[4 + n:]
files = {os.path.relpath(f["filename"]): f for f in json.load(open(path))["data"][0]["files"]}
wrong = [x for x in chosen + sources if x not in files]
if wrong:
    sys.exit(f"coverage.sh: nothing is known of {', '.join(wrong)}")

def branches(f):
    """(line, column, times true, times false): what the compiler decides itself is no branch. A function in several programs counts once."""
    sums = {}
    for line, column, _, _, true, false, *_ in f["branches"]:
        t, u = sums.get((line, column), (0, 0))
        sums[line, column] = t + true, u + false
    return [(*at, *counts) for at, counts in sorted(sums.items())]

for name in chosen:
    text = open(name).read().splitlines()
    for line, column, true, false in branches(files[name]):
        if not (true and false):
            print(f"{name}:{line}:{column}: never {'reached' if not true and not false else 'true' if not true else 'false'}:{text[line - 1]}")
if chosen:
    sys.exit()
total = missed = 0
print(f"{'':28} {'lines':>6} {'missed':>7} {'branches':>9} {'missed':>7}")
for name in sources:
    lines, b = files[name]["summary"]["lines"], branches(files[name])
    not_seen = sum((not t) + (not u) for _, _, t, u in b)
    total, missed = total + 2 * len(b), missed + not_seen
    print(f"{name:28} {lines['count']:6} {lines['count'] - lines['covered']:7} {2 * len(b):9} {not_seen:7}")
reached = 100 * (total - missed) / total
print(f"{reached:.1f} % of the branches reached")
sys.exit(reached < minimum)
PYTHON
