#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 500
# varve's NVMe host over TCP against the kernel's target: verified I/O of all sizes with and without digests, a target that goes and
# comes back, discovery.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 460

NQN=nqn.2026-11.io.varve:lab
TARGET="trtype:TCP traddr:127.0.0.1 trsvcid:4420 subnqn:$NQN"
NVMET=/sys/kernel/config/nvmet
PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[3]' -s 256 --quiet -j)

modprobe brd rd_nr=2 rd_size=32768
ip link set lo up
nvmet_up tcp 127.0.0.1 4420 $NQN /dev/ram0 /dev/ram1

value() { # FILE NAME: a number of varve-perf's result
  sed -n "s/^ *\"$2\": \([0-9.]*\),\?$/\1/p" "$1"
}

bytes() { # that have gone over the loopback device
  cat /sys/class/net/lo/statistics/rx_bytes
}

bytes_went() { # SINCE COUNT
  [ $(($(bytes) - $1)) -gt "$2" ]
}

no_connections() {
  [ "$(ss -Htn state established sport = :4420 | wc -l)" = 0 ]
}

verified() { # OPTION...
  "${PERF[@]}" -r "$TARGET" -w randrw --verify "$@" > /tmp/r || fail "varve-perf $*"
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  grep -q '"verified": true' /tmp/r
}

test_io_of_all_sizes_is_verified() {
  local size
  for size in 512 4k 16k 20k 128k 1M; do # the kernel takes 16 KiB in a capsule
    verified --ios 400 -q 8 -o $size --region 8M
  done
  kernel_is_silent 'nvmet.*(fail|error|unhandled|unsupp|bad|unexpected)'
}

test_io_with_digests_is_verified() {
  local size
  for size in 512 20k 128k; do
    verified --ios 300 -q 8 -o $size --region 4M --ddgst
    verified --ios 300 -q 8 -o $size --region 4M --hdgst
    verified --ios 300 -q 8 -o $size --region 4M --hdgst --ddgst
  done
  kernel_is_silent 'nvmet.*(fail|error|unhandled|unsupp|bad|unexpected|digest)'
}

test_several_queue_pairs_are_verified_and_gone_at_the_end() {
  verified -t 2 -q 16 -o 4k --region 8M -P 2
  await 60 no_connections
}

test_discovery_finds_the_subsystem() {
  "${PERF[@]}" -r 'trtype:TCP traddr:127.0.0.1 trsvcid:4420' -n 1 -w randread --ios 200 > /tmp/r
  same errors "$(value /tmp/r errors)" 0
}

test_unknown_subsystem_is_explained() {
  refused "${PERF[@]}" -r "trtype:TCP traddr:127.0.0.1 trsvcid:4420 subnqn:nqn.2026-11.io.varve:none" -t 1 2> /tmp/e
  cat /tmp/e
  grep -q 'nqn.2026-11.io.varve:none' /tmp/e
}

test_nobody_at_the_port_is_explained() {
  refused "${PERF[@]}" -r "trtype:TCP traddr:127.0.0.1 trsvcid:4421 subnqn:$NQN" -t 1 2> /tmp/e
  cat /tmp/e
  grep -q 'TCP connection: Connection refused' /tmp/e
}

# The target's port is closed, which ends its connections, and opened again: the host reconnects and no I/O is lost.
test_target_that_comes_back_loses_nothing() {
  local n perf
  "${PERF[@]}" -r "$TARGET" -n 1 -t 3600 -q 8 -w randrw --verify --region 2M --loss-timeout 60 > /tmp/r 2> /tmp/e &
  perf=$!
  for _ in 1 2; do
    n=$(bytes)
    await 60 bytes_went "$n" 6000000
    rm $NVMET/ports/4420/subsystems/$NQN
    await 60 no_connections
    ln -s $NVMET/subsystems/$NQN $NVMET/ports/4420/subsystems/
  done
  n=$(bytes)
  await 60 bytes_went "$n" 6000000
  kill $perf
  wait $perf || { cat /tmp/e; fail "varve-perf failed"; }
  cat /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  same reconnects "$(value /tmp/r reconnects)" 2
}

run_tests
