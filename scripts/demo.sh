#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The main job in two minutes: builds varve, starts it with a RAM disk and a file, drives both from another process over NVMe-oF
# RDMA and over NVMe/TCP, verifies the data, and shows what the flight recorder saw of it.
#
#   scripts/demo.sh [SECONDS]      seconds of each of the three runs (default 5)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in -h | --help) sed -n '3,6s/^# \?//p' "$0"; exit ;; esac
seconds=${1:-5}
if ! [[ $seconds =~ ^[1-9][0-9]{0,3}$ ]]; then
	echo "demo.sh: SECONDS '$seconds': allowed is a whole number from 1 to 9999" >&2
	exit 2
fi
scripts/build.sh
bin=$(readlink -f "${VARVE_BUILD:-build}")/bin
nqn=nqn.2026-11.io.varve:demo
port=${VARVE_DEMO_PORT:-4420}
tcp_port=$((port + 1)) # the RDMA device may be a network interface whose TCP ports are the same
work=$(mktemp -d)
target=""

finish() {
	[ -z "$target" ] || { kill "$target" 2>/dev/null && wait "$target" 2>/dev/null; } || true
	rm -rf "$work" ${trace:+"$trace"}
}
trap finish EXIT
trap 'exit 130' INT TERM

bold() { if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
rpc() { "$bin/varve-rpc" -s "$work/rpc.sock" "$@"; }
fail() {
	echo "demo.sh: $*" >&2
	[ ! -s "$work/varve.log" ] || { echo "varve said:" >&2; tail -n 15 "$work/varve.log" >&2; }
	exit 1
}

# The first address of a netdev that belongs to an RDMA device, if there is one.
real_address() {
	local f dev
	for f in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/0; do
		dev=$(cat "$f" 2>/dev/null) || continue
		ip -4 -o addr show dev "$dev" 2>/dev/null | awk '{sub("/.*", "", $4); print $4; exit}'
		return
	done
}

bold "1. The RDMA device"
address=$(real_address)
if [ -n "$address" ]; then
	with=()
	echo "This machine has one; varve listens at its address $address."
else
	with=("$bin/softverbs")
	address=127.0.0.1
	echo "This machine has none: softverbs provides one between its processes (the programs are the same)."
fi

bold "2. The target: varve, with a RAM disk and a file"
"${with[@]}" "$bin/varve" --no-pci -m '[0]' -r "$work/rpc.sock" -e bdev,nvmf_rdma,nvmf_tcp 2>"$work/varve.log" &
target=$!
for _ in $(seq 200); do
	rpc framework_wait_init >/dev/null 2>&1 && break
	kill -0 "$target" 2>/dev/null || fail "varve did not start"
	sleep 0.05
done
trace=$(rpc trace_get_info | sed -n 's/.*"tpoint_shm_path": "\(.*\)".*/\1/p')
truncate -s 64M "$work/disk.img"
{
	rpc bdev_malloc_create name=Ram block_size=4096 num_blocks=16384
	rpc bdev_uring_create name=File filename="$work/disk.img" block_size=4096
	rpc nvmf_create_transport trtype=RDMA
	rpc nvmf_create_transport trtype=TCP
	rpc nvmf_create_subsystem nqn=$nqn allow_any_host=true serial_number=DEMO
	rpc nvmf_subsystem_add_ns nqn=$nqn namespace.bdev_name=Ram
	rpc nvmf_subsystem_add_ns nqn=$nqn namespace.bdev_name=File
	rpc nvmf_subsystem_add_listener nqn=$nqn listen_address.trtype=RDMA listen_address.adrfam=IPv4 \
		listen_address.traddr="$address" listen_address.trsvcid=$port
	rpc nvmf_subsystem_add_listener nqn=$nqn listen_address.trtype=TCP listen_address.adrfam=IPv4 \
		listen_address.traddr="$address" listen_address.trsvcid=$tcp_port
} >"$work/rpc.log" 2>&1 || { cat "$work/rpc.log" >&2; fail "the target could not be set up"; }
echo "Process $target serves $nqn at $address, over RDMA at port $port and over TCP at port $tcp_port: namespace 1 is a RAM disk, namespace 2 a file."

perf() { "${with[@]}" "$bin/varve-perf" -r "trtype:RDMA adrfam:IPv4 traddr:$address trsvcid:$port subnqn:$nqn" "$@"; }
perf_tcp() { "$bin/varve-perf" -r "trtype:TCP adrfam:IPv4 traddr:$address trsvcid:$tcp_port subnqn:$nqn" "$@"; }

bold "3. The initiator over RDMA: varve-perf, another process; every block it reads is verified"
perf --progress -w randrw --verify -q 16 -t "$seconds" || fail "the verified run failed"

bold "4. The same over TCP, with data digests"
perf_tcp --progress -w randrw --verify -q 16 -t "$seconds" --ddgst || fail "the verified run over TCP failed"

bold "5. RDMA: 4 KiB random reads of the RAM disk, 32 outstanding; a snapshot is taken meanwhile"
perf --progress -n 1 -w randread -q 32 -t "$seconds" &
run=$!
# Snapshots are good at any time; this one shall show the run at work.
for _ in $(seq 100); do
	[ "$(rpc nvmf_get_inflight | grep -c '"cid"')" -gt 16 ] && break
	sleep 0.02
done
# Where events come faster than the file is copied, a copy has few whole ones: then there is another.
for _ in $(seq 20); do
	cp "$trace" "$work/snapshot"
	"$bin/varve-trace" -f "$work/snapshot" -l tpoint=BDEV_IO_START 2>/dev/null | grep -c BDEV_IO_START >"$work/starts" || true
	[ "$(cat "$work/starts")" -gt 200 ] && break
done
wait $run || fail "the run failed"

# What the tables below leave out: the file's own data, and what is there for one kind of object only once.
bold "6. Where the time went: microseconds in each state, from the snapshot (a plain copy of the trace file)"
"$bin/varve-trace" -f "$work/snapshot" --summary | awk '
	/^time in state/ { title = $0; next }
	/^objects r / { on = 1; print title; next }
	/^objects / { on = 0; next }
	/^$/ { on = 0 }
	on && $1 == "RDMA_REQ_HAVE_BUFFER" { line[1] = line[1] "\n" $0; next } # its number is high, but it comes second
	on { line[++n] = $0 }
	END { for (i = 1; i <= n; i++) print line[i] }'
# One that a block device served, and some way from the end: its life is over.
request=$("$bin/varve-trace" -f "$work/snapshot" -l tpoint=BDEV_IO_START | sed -n 's/.* id: *i[0-9]* (\(r[0-9]*\)) .*/\1/p' | tail -n 200 | head -n 1)
cat <<EOT
NEW: a command has come. EXECUTING: the block device has it. EXECUTED: the answer is being put together. COMPLETING_C2H: data and
answer are with the device, and $(if [ ${#with[@]} -gt 0 ]; then echo "softverbs copies them to the host, one request after the other"; else echo "on their way to the host"; fi).
EOT

bold "7. The life of one request, $request, and of the bdev I/O that served it"
"$bin/varve-trace" -f "$work/snapshot" --life "$request" | awk '
	/^reactor/ {
		for (i = 4; $i !~ /^[A-Z][A-Z0-9]*_[A-Z0-9_]+$/; i++) owner = i == 4 ? $i : owner " " $i
		at = $3; what = $i; more = ""; since = ""
		for (; i <= NF; i++) {
			if ($i == "since:") since = $(i + 1)
			if ($i == "offset:") more = more "  block " $(i + 1)
			if ($i ~ /^offset:./) more = more "  block " substr($i, 8)
			if ($i == "id:" && what == "BDEV_IO_START") more = more "  " $(i + 1) ", for " substr($(i + 2), 2, length($(i + 2)) - 2)
		}
		if (!first) { first = at; printf "%10s %10s  %s\n", "us", "since", "" }
		printf "%10.3f %10s  %-24s%s%s\n", at - first, since ? "+" since : "", what, owner == last ? "" : "  " owner, more
		last = owner
	}'

bold "How to go on"
cat <<EOT
  ${bin#"$PWD"/}/ has varve, varve-rpc (--list, METHOD --help), varve-perf and varve-trace (-h)$( ((${#with[@]})) && echo ", softverbs").
  README.md            a first session by hand, with the same steps
  doc/operations.md    running it; what to do when something is slow or stuck
  doc/tracing.md       the flight recorder; doc/usdt.md: probes for bpftrace
  scripts/test.sh      the tests; scripts/bench.sh: the figures
EOT
