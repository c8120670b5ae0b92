#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 400
# Bdevs on the kernel's NVMe-oF target over soft RoCE, exported again by varve: verified I/O through both, and the kernel's target
# going and coming back beneath it.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 360

BACK=nqn.2026-11.io.varve:kernel
FRONT=nqn.2026-11.io.varve:front
NVMET=/sys/kernel/config/nvmet
PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[3]' -s 256 --quiet -j -r
  "trtype:RDMA traddr:10.7.0.1 trsvcid:4421 subnqn:$FRONT")
SOCK=/tmp/varve.sock

modprobe brd rd_nr=2 rd_size=32768
rxe_up
nvmet_up rdma 10.7.0.1 4420 $BACK /dev/ram0 /dev/ram1
"$VARVE_BUILD/bin/varve" --no-huge --no-pci -m '[2]' -s 512 -r $SOCK > /tmp/varve.log 2>&1 &
VARVE=$!

rpc() {
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

after_check() {
  [ "$1" = 0 ] || sed 's/^/# varve | /' /tmp/varve.log | tail -n 20
}

value() { # FILE NAME: a number of varve-perf's result
  sed -n "s/^ *\"$2\": \([0-9.]*\),\?$/\1/p" "$1"
}

packets() {
  cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts
}

packets_came() { # SINCE COUNT
  [ $(($(packets) - $1)) -gt "$2" ]
}

is_in_state() { # STATE
  rpc bdev_nvme_get_controllers | grep -q "\"state\": *\"$1\""
}

is_not_up() {
  ! is_in_state enabled
}

has_bdev() { # NAME
  rpc bdev_get_bdevs "name=$1" > /dev/null 2>&1
}

has_no_bdev() {
  ! has_bdev "$1"
}

no_connections() {
  [ "$(rdma resource show qp link rxe0 | grep -c 'type RC')" = 0 ]
}

test_namespaces_of_the_kernels_target_are_bdevs() {
  await 60 rpc framework_wait_init
  rpc bdev_nvme_attach_controller name=K trtype=RDMA traddr=10.7.0.1 adrfam=IPv4 trsvcid=4420 subnqn=$BACK \
    fabrics_connect_timeout_us=60000000 ctrlr_loss_timeout_sec=-1 reconnect_delay_sec=1 > /tmp/names
  cat /tmp/names
  grep -q Kn1 /tmp/names
  grep -q Kn2 /tmp/names
  rpc bdev_nvme_get_controller_health_info name=K | grep -q temperature
  rpc nvmf_create_transport trtype=RDMA
  rpc nvmf_create_subsystem nqn=$FRONT allow_any_host=true
  rpc nvmf_subsystem_add_ns nqn=$FRONT namespace.bdev_name=Kn1
  rpc nvmf_subsystem_add_listener nqn=$FRONT listen_address.trtype=RDMA listen_address.adrfam=IPv4 listen_address.traddr=10.7.0.1 \
    listen_address.trsvcid=4421
}

test_io_through_both_is_verified() {
  "${PERF[@]}" -t 2 -q 8 -w randrw --verify --region 2M > /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  "${PERF[@]}" -t 2 -q 4 -w randrw --verify -o 64k --region 4M > /tmp/r
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
  kernel_is_silent 'nvmet.*(fail|error|unhandled|unsupp)'
}

test_reset_under_io_loses_nothing() {
  local n perf
  n=$(packets)
  "${PERF[@]}" --ios 3000 -q 8 -w randrw --verify --region 1M > /tmp/r 2> /tmp/e &
  perf=$!
  for _ in 1 2 3; do
    await 60 packets_came "$n" 1500
    n=$(packets)
    rpc bdev_nvme_reset_controller name=K
  done
  wait $perf || { cat /tmp/e; fail "varve-perf failed"; }
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
}

test_kernels_target_that_comes_back_loses_nothing() {
  local n perf
  n=$(packets)
  "${PERF[@]}" --ios 3000 -q 8 -w randrw --verify --region 1M > /tmp/r 2> /tmp/e &
  perf=$!
  await 60 packets_came "$n" 2500
  rm $NVMET/ports/4420/subsystems/$BACK
  await 60 is_not_up
  ln -s $NVMET/subsystems/$BACK $NVMET/ports/4420/subsystems/
  await 60 is_in_state enabled
  wait $perf || { cat /tmp/e; fail "varve-perf failed"; }
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
}

test_namespace_comes_and_goes() {
  echo 0 > $NVMET/subsystems/$BACK/namespaces/2/enable
  await 60 has_no_bdev Kn2
  echo 1 > $NVMET/subsystems/$BACK/namespaces/2/enable
  await 60 has_bdev Kn2
}

test_everything_is_gone_after_detach_and_end() {
  rpc bdev_nvme_detach_controller name=K
  refused has_bdev Kn1
  kill $VARVE
  await 60 refused kill -0 $VARVE
  await 60 no_connections
}

run_tests
