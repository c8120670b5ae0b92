# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# In the guest: nvme_pcie.sh [iommu|noiommu|hotplug]... The tests of lab_nvme_pcie.sh, a PASS or FAIL line each.
set -u
perf=$VARVE_BUILD/bin/varve-perf
setup=$TREE/scripts/setup.sh
log=/tmp/log
failed=0

pass() { echo "PASS lab_nvme_pcie.$mode.$1"; }
fail() { # NAME WHY
  echo "FAIL lab_nvme_pcie.$mode.$1: $2: $(tail -n 4 $log | tr '\n' '|')"
  failed=1
}
run() { # NAME COMMAND...: the command's success is the test's
  local name=$1 status
  shift
  "$@" > $log 2>&1
  status=$?
  if [ $status = 0 ]; then pass "$name"; else fail "$name" "status $status"; fi
}
refuses() { # NAME PATTERN COMMAND...: it must fail, and say PATTERN
  local name=$1 pattern=$2
  shift 2
  if "$@" > $log 2>&1; then
    fail "$name" "it was done"
  elif grep -q -- "$pattern" $log; then
    pass "$name"
  else
    fail "$name" "no '$pattern'"
  fi
}
verified_io() { # ADDRESS [OPTION...]
  local a=$1
  shift
  timeout 90 "$perf" -r "trtype:PCIe traddr:$a" --verify --region 8M --ios 4000 -t 60 -w randrw -q 32 "$@"
}
# ADDRESS NSID: its device. The kernel numbers controllers as they come, which is not the order of their addresses.
disk() {
  await 60 bash -c "ls -d /sys/bus/pci/devices/$1/nvme/nvme*/nvme*n$2" || return
  basename "/sys/bus/pci/devices/$1/nvme/"nvme*/nvme*n"$2"
}
kernel_sees() { # ADDRESS NSID BLOCK_SIZE: what varve-perf wrote
  local d
  d=/dev/$(disk "$1" "$2")
  await 60 test -b "$d" && python3 "$TREE/systest/lab/nvme_check.py" "$d" "$3" 8388608
}

mapfile -t drives < <(nvmes)
first=${drives[0]} second=${drives[1]} hot=${drives[2]:-}

iommu() {
  local d0 d1
  modprobe nvme
  d0=$(disk "$first" 1) d1=$(disk "$second" 2)
  run status "$setup" status
  refuses driver_of_the_kernel_is_left_alone 'left alone: scripts/setup.sh bind' verified_io "$first"
  mkfs.ext4 -q "/dev/$d0" && mkdir -p /tmp/m && mount "/dev/$d0" /tmp/m
  refuses mounted_drive_is_left_alone "$d0 is mounted at /tmp/m" "$setup" bind "$first"
  umount /tmp/m
  exec 7< "/dev/$d0"
  refuses opened_drive_is_left_alone "$d0 is open in process" "$setup" bind "$first"
  exec 7<&-
  mkswap -q "/dev/$d1" && swapon "/dev/$d1"
  refuses swap_on_the_second_namespace_is_left_alone "$d1 is swap" "$setup" bind "$second"
  swapoff "/dev/$d1"
  run bind "$setup" bind "$first" "$second"
  run verified_io verified_io "$first"
  run verified_io_on_two_namespaces verified_io "$second"
  run verified_io_without_hugepages verified_io "$first" --no-huge
  run verified_io_large verified_io "$second" -o 128k --region 64M --ios 1000
  refuses other_holder_is_named "is in use by process" \
    bash -c "flock -n -o $(printf '/sys/bus/pci/devices/%s/config' "$first") $perf -r 'trtype:PCIe traddr:$first' -t 1"
  refuses no_such_device 'there is no PCI device' verified_io 0000:7f:1f.0
  verified_io "$first" > $log 2>&1
  verified_io "$second" > $log 2>&1
  run unbind "$setup" unbind "$first" "$second"
  run kernel_reads_what_was_written kernel_sees "$first" 1 512
  run kernel_reads_the_second_namespace kernel_sees "$second" 2 512
  format_4096
}

format_4096() { # QEMU's format 4 has blocks of 4096 bytes
  nvme format -f -l 4 "/dev/$(disk "$first" 1)" > $log 2>&1 || { fail format_4096 'nvme format'; return; }
  "$setup" bind "$first" > $log 2>&1
  run verified_io_in_blocks_of_4096 verified_io "$first"
  "$setup" unbind "$first" > $log 2>&1
  run kernel_reads_blocks_of_4096 kernel_sees "$first" 1 4096
}

noiommu() {
  run bind_to_uio "$setup" bind -d uio_pci_generic "$first"
  run verified_io_by_uio verified_io "$first"
  refuses ordinary_pages_by_uio 'run with hugepages' verified_io "$first" --no-huge
  run unbind_from_uio "$setup" unbind "$first"
  run kernel_reads_what_was_written_by_uio kernel_sees "$first" 1 512
  [ -e "$EXTRA" ] || return # said by lab_nvme_pcie.sh
  vfio_without_iommu
  run bind_to_vfio "$setup" bind -d vfio-pci "$first" "$second"
  run verified_io_by_vfio verified_io "$first"
  run verified_io_on_two_namespaces_by_vfio verified_io "$second"
  run unbind_from_vfio "$setup" unbind "$first" "$second"
  run kernel_reads_what_was_written_by_vfio kernel_sees "$second" 1 512
}

io_runs() { # PID: it has spent a second at work, long past its start
  [ "$(awk '{ print $14 + $15 }' "/proc/$1/stat")" -gt 200 ] && ls -l "/proc/$1/fd" | grep -q vfio-device
}

hotplug() {
  local status pid
  modprobe nvme
  "$setup" bind "$hot" > $log 2>&1
  "$perf" -r "trtype:PCIe traddr:$hot" --region 8M -t 60 -w randrw -q 32 > $log 2>&1 &
  pid=$!
  await 60 io_runs $pid || fail removal_under_io 'there is no I/O'
  monitor 'device_del nvhot'
  wait $pid
  status=$?
  if [ $status = 1 ] && grep -q 'the device has been removed' $log; then pass removal_under_io; else fail removal_under_io "status $status"; fi
  await 60 test ! -e "/sys/bus/pci/devices/$hot" && pass removed_from_the_bus || fail removed_from_the_bus 'it is still there'
  monitor 'device_add nvme,serial=HOT1,id=nvhot2,bus=rp,drive=hot2'
  await 60 test -e "/sys/bus/pci/devices/$hot/driver" || fail insertion 'it does not come'
  run bind_after_insertion "$setup" bind "$hot"
  run verified_io_after_insertion verified_io "$hot"
  echo 1 > "/sys/bus/pci/devices/$hot/reset" 2> $log || :
  run unbind_after_insertion "$setup" unbind "$hot"
}

for mode; do "$mode"; done
exit $failed
