#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 400
# varve's NVMe host over soft RoCE against the kernel's target: verified I/O, a target that goes and comes back.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 360

NQN=nqn.2026-11.io.varve:lab
TARGET="trtype:RDMA traddr:10.7.0.1 trsvcid:4420 subnqn:$NQN"
NVMET=/sys/kernel/config/nvmet
PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[3]' -s 256 --quiet -j -r "$TARGET")

modprobe brd rd_nr=2 rd_size=32768
rxe_up
nvmet_up rdma 10.7.0.1 4420 $NQN /dev/ram0 /dev/ram1

value() { # FILE NAME: a number of varve-perf's result
  sed -n "s/^ *\"$2\": \([0-9.]*\),\?$/\1/p" "$1"
}

packets() {
  cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts
}

packets_came() { # SINCE COUNT
  [ $(($(packets) - $1)) -gt "$2" ]
}

no_connections() {
  [ "$(rdma resource show qp link rxe0 | grep -c 'type RC')" = 0 ]
}

test_io_is_verified() {
  "${PERF[@]}" -t 2 -q 8 -w randrw --verify --region 4M > /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  grep -q '"verified": true' /tmp/r
}

test_large_io_on_several_queue_pairs_is_verified() {
  "${PERF[@]}" -t 2 -q 4 -w randrw --verify -o 128k --region 8M -P 2 > /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  kernel_is_silent 'nvmet.*(fail|error|unhandled|unsupp)'
}

test_queue_pairs_are_gone_after_the_end() {
  await 60 no_connections
}

test_unknown_subsystem_is_explained() {
  refused "${PERF[@]}" -r "trtype:RDMA traddr:10.7.0.1 trsvcid:4420 subnqn:nqn.2026-11.io.varve:none" -t 1 2> /tmp/e
  cat /tmp/e
  grep -q 'nqn.2026-11.io.varve:none' /tmp/e
}

test_namespace_that_goes_fails_io_clearly() {
  local n perf
  n=$(packets)
  "${PERF[@]}" -n 2 -t 60 -q 4 > /tmp/r 2> /tmp/e &
  perf=$!
  await 60 packets_came "$n" 2000
  echo 0 > $NVMET/subsystems/$NQN/namespaces/2/enable
  await 60 grep -q 'read of namespace 2 failed: internal path error' /tmp/e # so says the kernel's target
  kill $perf
  refused wait $perf
  echo 1 > $NVMET/subsystems/$NQN/namespaces/2/enable
}

# The target's port is closed, which ends its connections, and opened again: the host reconnects and no I/O is lost.
test_target_that_comes_back_loses_nothing() {
  local n perf
  "${PERF[@]}" -n 1 --ios 6000 -q 8 -w randrw --verify --region 2M --loss-timeout 60 > /tmp/r 2> /tmp/e &
  perf=$!
  for _ in 1 2; do
    n=$(packets)
    await 60 packets_came "$n" 1500
    rm $NVMET/ports/4420/subsystems/$NQN
    await 60 no_connections
    ln -s $NVMET/subsystems/$NQN $NVMET/ports/4420/subsystems/
  done
  wait $perf || { cat /tmp/e; fail "varve-perf failed"; }
  cat /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  same reconnects "$(value /tmp/r reconnects)" 2
}

test_host_gives_up_after_the_loss_timeout() {
  local n perf
  n=$(packets)
  "${PERF[@]}" -n 1 -t 100 -q 8 --loss-timeout 3 > /tmp/r 2> /tmp/e &
  perf=$!
  await 60 packets_came "$n" 1500
  rm $NVMET/ports/4420/subsystems/$NQN
  refused wait $perf
  ln -s $NVMET/subsystems/$NQN $NVMET/ports/4420/subsystems/
  cat /tmp/e
  grep -q "$NQN" /tmp/e
}

run_tests
