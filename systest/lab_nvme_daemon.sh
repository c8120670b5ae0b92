#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 800
# The daemon on emulated drives through vfio with an IOMMU, exported over soft RoCE: verified I/O on blocks of 512 and 4096 bytes, with
# protection information too, by a reactor that sleeps until the drive interrupts, and under I/O: controller resets, a drive pulled out and plugged in again, a detach. At last the kernel
# reads what varve wrote. lab_nvme_daemon_noiommu.sh does the same without an IOMMU.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
if [ -z "${VM:-}" ]; then # the drive that goes and comes, and the third namespace of LAB1
  DISK=$(mktemp) PROTECTED=$(mktemp)
  trap 'rm -f "$DISK" "$PROTECTED"' EXIT
  truncate -s 256M "$DISK" "$PROTECTED"
  HOT="if=none,format=raw,file=$DISK,file.locking=off,cache=unsafe"
fi
[ -n "${IOMMU--i}" ] || needs_modules # Debian's vfio cannot do without
in_guest ${IOMMU--i} -M -c 4 -t 760 -q "-device pcie-root-port,id=rp,chassis=1,slot=1 -drive id=hot,${HOT:-} -drive id=hot2,${HOT:-}
  -device nvme,serial=HOT0,id=nvhot,bus=rp,drive=hot,logical_block_size=4096,physical_block_size=4096
  -drive if=none,id=pi,format=raw,file=${PROTECTED:-} -device nvme-ns,drive=pi,bus=n1,nsid=3,ms=8,pi=1"

NQN=nqn.2026-11.io.varve:lab
SOCK=/tmp/varve.sock
SETUP=$TREE/scripts/setup.sh
# the last CPU is the host's, the one before it the daemon's
PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[3]' -s 256 --quiet -j -r "trtype:RDMA traddr:10.7.0.1 trsvcid:4420 subnqn:$NQN")

rpc() {
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

after_check() {
  [ "$1" = 0 ] || tail -n 30 /tmp/varve.log | sed 's/^/# varve | /'
}

value() { # FILE NAME: a number of varve-perf's result
  sed -n "s/^ *\"$2\": \([0-9.]*\),\?$/\1/p" "$1"
}

address_of() { # SERIAL: of that drive, which the kernel's driver has
  local s
  s=$(grep -lx "$1 *" /sys/bus/pci/devices/*/nvme/nvme*/serial) && cut -d/ -f6 <<< "$s"
}

disk() { # ADDRESS NSID: its device
  await 60 bash -c "ls -d /sys/bus/pci/devices/$1/nvme/nvme*/nvme*n$2" || return
  basename "/sys/bus/pci/devices/$1/nvme/"nvme*/nvme*n"$2"
}

add_ns() { # BDEV NSID
  rpc nvmf_subsystem_add_ns nqn=$NQN namespace.bdev_name="$1" namespace.nsid="$2"
}

has_bdev() {
  rpc bdev_get_bdevs "name=$1" > /dev/null 2>&1
}

has_no_bdev() {
  ! has_bdev "$1"
}

has_controller() {
  rpc bdev_nvme_get_controllers "name=$1" > /dev/null 2>&1
}

has_no_controller() {
  ! has_controller "$1"
}

packets() {
  cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts
}

packets_came() { # SINCE COUNT
  [ $(($(packets) - $1)) -gt "$2" ]
}

interrupts() { # ADDRESS: how often the drive has sent one
  awk -v drive="($1)" '/vfio-msix/ && index($0, drive) { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' /proc/interrupts
}

sleeps() { # how often the daemon's reactor has slept
  rpc framework_get_reactors detail=true | sed -n 's/.*"sleeps": *\([0-9]*\).*/\1/p'
}

verified() { # varve-perf's options...
  "${PERF[@]}" --verify "$@" > /tmp/r 2> /tmp/e || { cat /tmp/e; fail "varve-perf failed"; }
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
}

ended_or_goes_on() { # PID SINCE
  ! kill -0 "$1" 2> /dev/null || packets_came "$2" 100
}

end_of() { # PID of a varve-perf whose namespace is gone: all that was outstanding has ended, and so does what comes after it, with errors
  local status=0
  await 60 ended_or_goes_on "$1" "$(packets)"
  kill "$1" 2> /dev/null || :
  wait "$1" || status=$?
  same "varve-perf's status" "$status" 1
  [ "$(value /tmp/r errors)" -gt 0 ] || { cat /tmp/r /tmp/e; fail "its I/O did not fail"; }
  same miscompares "$(value /tmp/r miscompares)" 0
}

test_drives_are_attached_and_exported() {
  modprobe nvme
  await 60 address_of LAB0
  await 60 address_of LAB1
  await 60 address_of HOT0
  address_of LAB0 > /tmp/lab0
  address_of LAB1 > /tmp/lab1
  address_of HOT0 > /tmp/hot
  [ -n "${IOMMU--i}" ] || vfio_without_iommu
  "$SETUP" bind -d vfio-pci "$(cat /tmp/lab0)" "$(cat /tmp/lab1)" "$(cat /tmp/hot)"
  rmmod nvme # what is plugged in later is nobody's
  rxe_up
  "$VARVE_BUILD/bin/varve" -m '[2]' -s 512 -r $SOCK > /tmp/varve.log 2>&1 &
  echo $! > /tmp/pid
  await 60 rpc framework_wait_init
  rpc bdev_nvme_attach_controller name=A trtype=PCIe traddr="$(cat /tmp/lab0)" | grep -q An1
  rpc bdev_nvme_attach_controller name=B trtype=PCIe traddr="$(cat /tmp/lab1)" prchk_guard=true prchk_reftag=true | grep -q Bn3
  rpc bdev_nvme_attach_controller name=H trtype=PCIe traddr="$(cat /tmp/hot)" | grep -q Hn1
  refused rpc bdev_nvme_attach_controller name=A2 trtype=PCIe traddr="$(cat /tmp/lab0)"
  rpc bdev_nvme_get_controller_health_info name=A | grep -q LAB0
  same 'block size' "$(rpc bdev_get_bdevs name=Hn1 | sed -n 's/.*"block_size": *\([0-9]*\).*/\1/p')" 4096
  # a short receive queue: to make a long one takes an emulated CPU longer than a host waits for its connection
  rpc nvmf_create_transport trtype=RDMA max_srq_depth=128
  rpc nvmf_create_subsystem nqn=$NQN allow_any_host=true
  add_ns An1 1
  add_ns Bn1 2
  add_ns Bn2 3
  add_ns Hn1 4
  add_ns Bn3 5
  rpc nvmf_subsystem_add_listener nqn=$NQN listen_address.trtype=RDMA listen_address.adrfam=IPv4 listen_address.traddr=10.7.0.1 \
    listen_address.trsvcid=4420
}

test_io_on_all_namespaces_is_verified() {
  verified -t 2 -q 4 -w randrw --region 2M
  verified -t 2 -q 2 -w randrw -o 128k --region 8M
}

# LAB0 is made to take 50 ms for a command, and there is one at a time: the reactor sleeps meanwhile, and nothing but the drive's interrupt
# tells it of the end. More than half of them, for on a loaded machine the reactor may be late and find a command's end without having slept.
test_reactor_sleeps_until_the_drive_interrupts() {
  local interrupts sleeps
  same 'poll mode' "$(rpc appliance_get_state | sed -n 's/.*"poll_mode": *"\([a-z]*\)".*/\1/p')" adaptive
  monitor 'block_set_io_throttle a 0 0 0 20 0 0'
  trap "monitor 'block_set_io_throttle a 0 0 0 0 0 0'" EXIT
  interrupts=$(interrupts "$(cat /tmp/lab0)")
  sleeps=$(sleeps)
  verified -n 1 --ios 40 -q 1 -w randrw --region 32k
  interrupts=$(($(interrupts "$(cat /tmp/lab0)") - interrupts))
  sleeps=$(($(sleeps) - sleeps))
  cat /proc/interrupts
  echo "$interrupts interrupts, $sleeps sleeps"
  [ "$interrupts" -gt 20 ]
  [ "$sleeps" -gt 20 ]
}

test_resets_under_io_lose_nothing() {
  local n perf
  n=$(packets)
  "${PERF[@]}" -n 2 --ios 3000 -q 8 -w randrw --verify --region 1M > /tmp/r 2> /tmp/e &
  perf=$!
  for _ in 1 2 3; do
    await 120 packets_came "$n" 1200
    n=$(packets)
    rpc bdev_nvme_reset_controller name=B
  done
  wait $perf || { cat /tmp/e; fail "varve-perf failed"; }
  same miscompares "$(value /tmp/r miscompares)" 0
  same errors "$(value /tmp/r errors)" 0
}

test_drive_that_is_pulled_out_under_io_takes_only_itself_along() {
  local n perf
  rpc bdev_nvme_set_hotplug enable=true
  n=$(packets)
  "${PERF[@]}" -n 4 -t 300 -q 4 -w randread --region 1M > /tmp/r 2> /tmp/e &
  perf=$!
  await 120 packets_came "$n" 1200
  monitor 'device_del nvhot'
  await 60 has_no_bdev Hn1
  await 60 has_no_controller H
  await 60 test ! -e "/sys/bus/pci/devices/$(cat /tmp/hot)"
  end_of $perf
  verified -n 1 -t 1 -q 2 -w randrw --region 1M
}

test_drive_that_is_plugged_in_is_attached_by_itself() {
  monitor 'device_add nvme,serial=HOT1,id=nvhot2,bus=rp,drive=hot2,logical_block_size=4096,physical_block_size=4096'
  await 60 test -e "/sys/bus/pci/devices/$(cat /tmp/hot)/driver_override"
  "$SETUP" bind "$(cat /tmp/hot)"
  await 60 has_bdev HotInNvme0n1
  add_ns HotInNvme0n1 4
  verified -n 4 -t 1 -q 4 -w randrw --region 1M
}

test_detach_under_io_is_answered() {
  local n perf
  n=$(packets)
  "${PERF[@]}" -n 4 -t 300 -q 4 -w randread --region 1M > /tmp/r 2> /tmp/e &
  perf=$!
  await 120 packets_came "$n" 1200
  rpc bdev_nvme_detach_controller name=HotInNvme0
  refused has_bdev HotInNvme0n1
  end_of $perf
  has_bdev An1
}

kernel_sees() { # ADDRESS NSID BLOCK_SIZE
  python3 "$TREE/systest/lab/nvme_check.py" "/dev/$(disk "$1" "$2")" "$3" 1048576
}

test_kernel_reads_what_was_written() {
  verified -n 1 -t 1 -q 4 -w randrw --region 1M
  verified -n 3 -t 1 -q 4 -w randrw --region 1M
  kill "$(cat /tmp/pid)"
  await 60 refused kill -0 "$(cat /tmp/pid)"
  "$SETUP" unbind "$(cat /tmp/lab0)" "$(cat /tmp/lab1)" "$(cat /tmp/hot)"
  kernel_sees "$(cat /tmp/lab0)" 1 512
  kernel_sees "$(cat /tmp/lab1)" 2 512
  kernel_sees "$(cat /tmp/hot)" 1 4096
}

run_tests
