#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1300
# The NVMe driver on emulated drives: through vfio with an IOMMU, without one, through uio; verified I/O, blocks of 512 and 4096
# bytes, one namespace and two; scripts/setup.sh; the drive handed back to the kernel, which reads what was written; removal and
# insertion under I/O. `lab_nvme_pcie.sh [iommu|noiommu|hotplug]...` runs a part of it.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
export VARVE_BUILD=${VARVE_BUILD:-$(dirname "$PWD")/build}
[ $# -gt 0 ] || set -- iommu noiommu hotplug
worst=0

judge() { # MODE STATUS of the guest
  case $2 in
    0) ;;
    1) worst=1 ;;
    69) echo "SKIP lab_nvme_pcie.$1: the lab's state folder cannot be made" ;;
    *) echo "FAIL lab_nvme_pcie.$1: the guest ended with status $2"; worst=1 ;;
  esac
}

results() { grep --line-buffered -aE '^(PASS|FAIL|SKIP) '; }

in_guest() { # MODE, vm.sh's options...
  local mode=$1
  shift
  ./vm.sh -t 400 "$@" "bash \$TREE/systest/lab/nvme_pcie.sh $mode" | results
  judge "$mode" "${PIPESTATUS[0]}"
}

noiommu() { # Debian's vfio has no such mode
  local why
  why=$(./vm.sh --modules 2>&1)
  case $? in
    0) ;;
    69) echo "SKIP lab_nvme_pcie.noiommu.vfio: $(tail -n 1 <<< "$why")" ;;
    *) echo "FAIL lab_nvme_pcie.noiommu.vfio: $(tail -n 1 <<< "$why")"; worst=1 ;;
  esac
  in_guest noiommu
}

# QEMU's monitor, driven by the words that the guest says.
hotplug() {
  local dir status
  dir=$(mktemp -d)
  truncate -s 1G "$dir/disk"
  ./vm.sh -t 400 -i -n -q "-monitor unix:$dir/monitor,server=on,wait=off -device pcie-root-port,id=rp,chassis=1,slot=1
    -drive if=none,id=hot,format=raw,file=$dir/disk,cache=unsafe -device nvme,serial=HOT0,id=nvhot,bus=rp,drive=hot
    -drive if=none,id=hot2,format=raw,file=$dir/disk,file.locking=off" "bash \$TREE/systest/lab/nvme_pcie.sh hotplug" |
    while read -r line; do
      case $line in
        REMOVE) python3 lab/monitor.py "$dir/monitor" 'device_del nvhot' ;;
        INSERT) python3 lab/monitor.py "$dir/monitor" 'device_add nvme,serial=HOT1,id=nvhot2,bus=rp,drive=hot2' ;;
        *) echo "$line" | results ;;
      esac
    done
  status=${PIPESTATUS[0]}
  judge hotplug "$status"
  rm -rf "$dir"
}

for mode; do
  case $mode in
    iommu) in_guest iommu -i ;;
    noiommu) noiommu ;;
    hotplug) hotplug ;;
    *) echo "lab_nvme_pcie.sh: '$mode': iommu, noiommu or hotplug" >&2; exit 2 ;;
  esac
done
exit $worst
