#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 400
# The whole storage node in one guest: a drive in varve by vfio, exported over soft RoCE, the kernel's initiator on it, a file system on that.
# The trace shows a write as a chain: RDMA request, block device I/O, NVMe command. At last the kernel mounts the drive itself.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -i -c 4 -t 380

NQN=nqn.2026-11.io.varve:node
SOCK=/tmp/varve.sock
SETUP=$TREE/scripts/setup.sh
read -r DRIVE < <(nvmes)

rpc() {
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

after_check() {
  [ "$1" = 0 ] || sed 's/^/# varve | /' /tmp/varve.log | tail -n 20
}

trace() {
  "$VARVE_BUILD/bin/varve-trace" -p "$(cat /tmp/pid)" "$@"
}

connect() {
  nvme connect -t rdma -a 10.7.0.1 -s 4420 -n $NQN -i 2
}

fabric_disk() { # the kernel's disk of our subsystem
  local s
  s=$(grep -lx $NQN /sys/class/nvme-subsystem/*/subsysnqn) || return
  basename "$(dirname "$s")/"nvme*n1
}

is_disk() {
  test -b "/dev/$(fabric_disk)"
}

test_node_exports_its_drive() {
  modprobe nvme-rdma
  "$SETUP" hugepages 1024 | grep -q 'hugepages of 2 MB'
  "$SETUP" bind "$DRIVE"
  rxe_up
  "$VARVE_BUILD/bin/varve" -m '[2]' -s 512 -r $SOCK -e nvmf_rdma,bdev,bdev_nvme,nvme_pcie > /tmp/varve.log 2>&1 &
  echo $! > /tmp/pid
  await 60 rpc framework_wait_init
  rpc bdev_nvme_attach_controller name=N trtype=PCIe traddr="$DRIVE" | grep -q Nn1
  rpc nvmf_create_transport trtype=RDMA max_srq_depth=128
  rpc nvmf_create_subsystem nqn=$NQN allow_any_host=true serial_number=NODE
  rpc nvmf_subsystem_add_ns nqn=$NQN namespace.bdev_name=Nn1
  rpc nvmf_subsystem_add_listener nqn=$NQN listen_address.trtype=RDMA listen_address.adrfam=IPv4 listen_address.traddr=10.7.0.1 \
    listen_address.trsvcid=4420
  await 60 connect
  await 60 is_disk
}

test_file_system_holds_what_was_written() {
  local d
  d=/dev/$(fabric_disk)
  mkfs.ext4 -q -E lazy_itable_init=0,nodiscard "$d" 64M
  mkdir -p /tmp/m
  mount "$d" /tmp/m
  head -c 8M /dev/urandom > /tmp/m/random
  cp -r "$TREE/doc" /tmp/m/
  (cd /tmp/m && find . -type f -exec sha256sum {} + > /tmp/sums)
  sync -f /tmp/m
  umount /tmp/m
  echo 1 > /proc/sys/vm/drop_caches
  mount "$d" /tmp/m
  (cd /tmp/m && sha256sum --quiet -c /tmp/sums)
  umount /tmp/m
  kernel_is_silent 'nvme.*(timeout|error)|I/O error'
}

# One write of the kernel's, by its LBA, from the fabric to the drive's queue.
test_trace_shows_a_write_as_a_chain() {
  local d life offset=100000
  d=/dev/$(fabric_disk)
  dd if="$TREE/LICENSE" of="$d" bs=512 count=1 seek=$offset oflag=direct conv=notrunc status=none
  trace -l tpoint=BDEV_IO_START > /tmp/starts
  grep -E "BDEV_IO_START.*offset: *$offset\b" /tmp/starts > /tmp/start
  cat /tmp/start
  same 'writes at that offset' "$(wc -l < /tmp/start)" 1
  life=$(sed -n 's/.* id: *\(i[0-9]*\) (\(r[0-9]*\)).*/\1 \2/p' /tmp/start)
  trace --life "${life#* }" > /tmp/life
  cat /tmp/life
  set -- $life # the I/O, the request
  grep -qE "RDMA_REQ_NEW .*id: +$2\b" /tmp/life
  grep -qE "RDMA_REQ_EXECUTING .*id: +$2\b" /tmp/life
  grep -qE "BDEV_IO_START .*id: +$1 \($2\)" /tmp/life
  set -- "$@" "$(sed -n "s/.*BDEV_NVME_IO_START .*id: *\([A-Za-z]*[0-9]*\) ($1).*/\1/p" /tmp/life)"
  [ -n "$3" ] || fail "no NVMe I/O for $1"
  set -- "$@" "$(sed -n "s/.*NVME_PCIE_SUBMIT .*id: *\([A-Za-z]*[0-9]*\) ($3).*/\1/p" /tmp/life)"
  [ -n "$4" ] || fail "no NVMe command for $3"
  grep -qE "NVME_PCIE_COMPLETE .*id: +$4\b" /tmp/life
  grep -qE "BDEV_NVME_IO_DONE .*id: +$3\b" /tmp/life
  grep -qE "BDEV_IO_DONE .*id: +$1\b" /tmp/life
  grep -qE "RDMA_REQ_COMPLETED .*id: +$2\b" /tmp/life
}

test_kernel_mounts_the_drive_it_gets_back() {
  nvme disconnect -n $NQN
  kill "$(cat /tmp/pid)"
  await 60 refused kill -0 "$(cat /tmp/pid)"
  "$SETUP" unbind "$DRIVE"
  await 60 bash -c "ls -d /sys/bus/pci/devices/$DRIVE/nvme/nvme*/nvme*n1"
  mount "/dev/$(basename "/sys/bus/pci/devices/$DRIVE/nvme/"nvme*/nvme*n1)" /tmp/m
  (cd /tmp/m && sha256sum --quiet -c /tmp/sums)
  umount /tmp/m
}

run_tests
