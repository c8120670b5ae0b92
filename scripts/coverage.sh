#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Coverage of the decoders, of all that reads bytes from outside: by the corpora in unittest/fuzz/corpus/, each input once, and by the
# unit tests. Prints a line per file: its lines and branches, and how many of them were never reached.
#
#   scripts/coverage.sh              the table
#   scripts/coverage.sh FILE...      the branches of these files that were not reached
#   scripts/coverage.sh --minimum    fails if a decoder has more branches that were not reached than the table below says
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

minimum=0 files=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) sed -n '3,8s/^# \?//p' "$0"; exit ;;
	--minimum) minimum=1; shift ;;
	-*) echo "coverage.sh: unknown option '$1'; there are --minimum and --help" >&2; exit 2 ;;
	*) files+=("$1"); shift ;;
	esac
done
packages_need build test cover >&2

# A decoder's files (FILE:FUNCTION...: only these functions of it), the fuzzers that feed it, its unit tests, and how many of its branches
# are not reached: doc/development.md says why.
table="
nvmf/decode_capsule.c,nvmf/decode_fabrics.c,nvmf/decode_admin.c,nvmf/decode_io.c,nvmf/decode_md.c,nvmf/decode_resv.c nvmf-decode nvmf-decode 0
nvmf/resv_file.c nvmf-decode nvmf-resv 0
nvmf_rdma/cm_decode.c nvmf_rdma_cm nvmf_rdma_cm 0
tcp/decode.c,tcp/encode.c,tcp/digest.c,tcp/receiver.c,tcp/text.c tcp_pdu tcp_pdu,tcp_receiver 0
tcp/zerocopy.c - tcp_zerocopy 0
rpc/base64.c rpc_base64 rpc_base64 2
rpc/frame.c,rpc/lexer.c,rpc/message.c rpc_parser rpc_frame,rpc_message 17
rpc/params.c rpc_params rpc_params 5
softverbs/wire.c softverbs_wire - 18
appliance/config.c rpc_config appliance_config 16
appliance/config_examine.c,appliance/config_place.c,rpc/comments.c rpc_config appliance_config 10
appliance/metrics_http.c metrics_http appliance_metrics 1
appliance/console_query.c metrics_http appliance_metrics 0
trace/trace_spec.c trace_spec trace_spec 8
trace/reader_source.c,trace/reader_tables.c,trace/reader_ring.c trace_reader trace_reader_file,trace_reader_events 123
env_dpdk/cores.c cores env 0
env_dpdk/pci_uevent.c pci_uevent pci_device 16
util/parse.c cores util_parse 0
lvol/decode.c,lvol/reserve.c,lvol/space.c,lvol/volume.c lvol_store lvol_store,lvol_live,lvol_live_faults,lvol_live_reserve,lvol_live_pages,lvol_owner,lvol_rescue,lvol_space 0
lvol/rescue.c lvol_store lvol_rescue 17
dhchap/message.c,dhchap/secret.c dhchap dhchap-messages 1
bdev_modules/crypto/key_text.c crypto_key bdev_crypto_keys 0
bdev_modules/crypto/rekey_journal.c:rekey_header_decode:header_is_sound:rekey_header_newest:rekey_header_check:base_is_the_same crypto_rekey bdev_crypto_rekey,bdev_crypto_rekey_header 0
bdev_modules/integrity/layout.c integrity bdev_integrity_layout 0
tls/psk.c tls_psk tls-psk 1
tls/wire.c tls_psk tls-session,tls-record,tls-kernel 0
nvme/ana.c:ana_state_is_valid:nvme_ana_decode nvme_logs bdev_nvme_verdict 0
nvme/discovery.c:padded_field_copy:nvme_discovery_decode nvme_logs perf_util 0
"
column() { awk -v n="$1" 'NF && $n != "-" {print $n}' <<<"$table" | tr ',' '\n' | sort -u; }

# One build for both: each input of a corpus is run once, so the fuzzers need no instrumentation of their own. Counters and branches are the source's,
# whatever the optimization: without it the build takes half the time.
build=build-coverage flags="-fprofile-instr-generate -fcoverage-mapping"
mapfile -t fuzzers < <(column 2)
mapfile -t units < <(column 3)
[ -f $build/build.ninja ] ||
	CC=clang meson setup $build -Dfuzzers=true -Db_lundef=false -Doptimization=0 -Ddebug=false "-Dc_args=$flags" -Dc_link_args=-fprofile-instr-generate >/dev/null
ninja -C $build "${fuzzers[@]/#/unittest/fuzz-}" "${units[@]/#/unittest/unit-}" >$build/coverage-build.log ||
	{ tail -20 $build/coverage-build.log >&2; exit 1; }

profiles=$PWD/$build/profiles objects=()
rm -rf "$profiles"
mkdir -p "$profiles"
for name in "${fuzzers[@]}"; do
	corpus=unittest/fuzz/corpus/$name
	[ -d "$corpus" ] || { echo "coverage.sh: $corpus is missing" >&2; exit 1; }
	LLVM_PROFILE_FILE="$profiles/fuzz-$name" "$build/unittest/fuzz-$name" "$corpus"/* >"$profiles/$name.log" 2>&1 ||
		{ tail "$profiles/$name.log" >&2; exit 1; }
	objects+=(-object "$build/unittest/fuzz-$name")
done
for name in "${units[@]}"; do
	LLVM_PROFILE_FILE="$profiles/unit-$name" "$build/unittest/unit-$name" >"$profiles/$name.log" 2>&1 || { grep FAIL "$profiles/$name.log" >&2; exit 1; }
	objects+=(-object "$build/unittest/unit-$name")
done
llvm-profdata merge -o "$profiles/all" "$profiles"/fuzz-* "$profiles"/unit-*

llvm-cov export -instr-profile="$profiles/all" "${objects[@]:1}" 2>/dev/null >"$profiles/all.json"
python3 - "$profiles/all.json" "$minimum" "$table" "${files[@]}" <<'PYTHON'
import json, os, sys
path, minimum, table, chosen = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
data = json.load(open(path))["data"][0]
files = {os.path.relpath(f["filename"]): f for f in data["files"]}
rows = [(row[0].split(","), int(row[3])) for row in map(str.split, table.splitlines()) if row]
parts = {name: set(functions) for names, _ in rows for name, *functions in (n.split(":") for n in names)}
wrong = [x for x in [*chosen, *parts] if x not in files]
if wrong:
    sys.exit(f"coverage.sh: nothing is known of {', '.join(wrong)}")

def spans(name):
    """First and last lines of the functions that the table names of a file; of all of it, if it names none."""
    wanted = parts.get(name)
    if not wanted:
        return [(0, float("inf"))]
    found = {f["name"].split(":")[-1]: (f["regions"][0][0], f["regions"][0][2]) for f in data["functions"] if os.path.relpath(f["filenames"][0]) == name}
    missing = wanted - set(found)
    if missing:
        sys.exit(f"coverage.sh: {name} has no {', '.join(missing)}")
    return [found[f] for f in wanted]

def branches(name):
    """(line, column, times true, times false): what the compiler decides itself is no branch. A function in several programs counts once."""
    sums, where = {}, spans(name)
    for line, column, _, _, true, false, *_ in files[name]["branches"]:
        if any(first <= line <= last for first, last in where):
            t, u = sums.get((line, column), (0, 0))
            sums[line, column] = t + true, u + false
    return [(*at, *counts) for at, counts in sorted(sums.items())]

for name in chosen:
    text = open(name).read().splitlines()
    for line, column, true, false in branches(name):
        if not (true and false):
            print(f"{name}:{line}:{column}: never {'reached' if not true and not false else 'true' if not true else 'false'}:{text[line - 1]}")
if chosen:
    sys.exit()
total = missed = 0
worse = []
print(f"{'':28} {'lines':>6} {'missed':>7} {'branches':>9} {'missed':>7}")
for names, allowed in rows:
    of_row = 0
    for name in (n.split(":")[0] for n in names):
        lines, b = files[name]["summary"]["lines"], branches(name)
        not_seen = sum((not t) + (not u) for _, _, t, u in b)
        total, of_row = total + 2 * len(b), of_row + not_seen
        shown = ("-", "-") if parts[name] else (lines["count"], lines["count"] - lines["covered"])
        print(f"{name:28} {shown[0]:>6} {shown[1]:>7} {2 * len(b):9} {not_seen:7}")
    missed += of_row
    if of_row > allowed:
        worse.append(f"{', '.join(names)}: {of_row} branches are not reached, {allowed} were; coverage.sh FILE names them")
print(f"{100 * (total - missed) / total:.1f} % of the branches reached")
if minimum and worse:
    sys.exit("\n".join(worse))
PYTHON
