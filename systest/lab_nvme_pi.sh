#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 700
# Drives with metadata and protection information, emulated, through vfio with an IOMMU: made and stripped by the drive under verified I/O;
# and passed from a host, by a target that has the drive, over the software RDMA device; what is bad is refused. Blocks of 512 bytes, 4 KiB
# and 64 KiB; metadata with the data and apart from it; types 1 to 3; guards of 16 and 64 bits.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
if [ -z "${VM:-}" ]; then
  DISKS=$(mktemp -d)
  trap 'rm -rf "$DISKS"' EXIT
fi
QEMU="-device nvme,serial=PI0,id=pi"
ns() { # NSID OPTIONS: a namespace
  [ -n "${VM:-}" ] || truncate -s 72M "$DISKS/$1"
  QEMU+=" -drive if=none,id=d$1,format=raw,file=${DISKS:-}/$1 -device nvme-ns,drive=d$1,bus=pi,nsid=$1,$2"
}
# lab/lab_nvme_pi.py has the same list
ns 1 ms=8,mset=1,pi=1
ns 2 ms=8,mset=0,pi=2
ns 3 ms=16,mset=1,pi=3,pil=1,logical_block_size=4096,physical_block_size=4096
ns 4 ms=64,mset=0,pi=1,logical_block_size=4096,physical_block_size=4096
ns 5 ms=8,mset=1,pi=1,logical_block_size=65536,physical_block_size=65536
# pif=2: guards of 64 bits. The emulated drive's Write Zeroes has the guard of 4096 zeroes and nothing else, whatever a block is
ns 6 ms=16,mset=1,pi=1,pif=2,logical_block_size=4096,physical_block_size=4096
ns 7 ms=64,mset=0,pi=2,pif=2,pil=1,logical_block_size=4096,physical_block_size=4096
in_guest -i -n -c 4 -t 660 -q "$QEMU"
DRIVE=$(nvmes)

verified() { # NSID varve-perf's options...
  timeout 90 "$VARVE_BUILD/bin/varve-perf" -r "trtype:PCIe traddr:$DRIVE" --verify --region 4M -t 2 -w randrw -q 16 -n "$@"
}

test_drive_makes_strips_and_checks() {
  "$TREE/scripts/setup.sh" bind "$DRIVE"
  verified 1
  verified 2 -o 64k
  verified 5 -o 128k
  verified 6
}

test_metadata_that_would_be_moved_with_the_data_is_refused() {
  refused verified 3 -o 8k > /tmp/e 2>&1
  grep 'its blocks carry 16 bytes of metadata' /tmp/e
}

test_through_a_target() {
  ulimit -c 0
  PYTHONPATH=$TREE/systest python3 "$TREE/systest/lab/lab_nvme_pi.py" "$DRIVE"
}

run_tests
