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

in_guest() { # MODES, vm.sh's options...
  local modes=$1
  shift
  ./vm.sh -t 600 "$@" "bash \$TREE/systest/lab/nvme_pcie.sh $modes" | results
  judge "${modes// /_}" "${PIPESTATUS[0]}"
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

with_iommu() { # MODES, in one guest
  local disk drive
  disk=$(mktemp)
  # shellcheck disable=SC2064  # the name is to be expanded now
  trap "rm -f '$disk'" EXIT
  truncate -s 1G "$disk"
  drive="if=none,format=raw,file=$disk,file.locking=off,cache=unsafe"
  in_guest "$1" -i -M -q "-device pcie-root-port,id=rp,chassis=1,slot=1 -drive id=hot,$drive -drive id=hot2,$drive
    -device nvme,serial=HOT0,id=nvhot,bus=rp,drive=hot"
  rm -f "$disk"
}

with=() without=''
for mode; do
  case $mode in
    iommu | hotplug) with+=("$mode") ;;
    noiommu) without=1 ;;
    *) echo "lab_nvme_pcie.sh: '$mode': iommu, noiommu or hotplug" >&2; exit 2 ;;
  esac
done
[ ${#with[@]} = 0 ] || with_iommu "${with[*]}"
[ -z "$without" ] || noiommu
exit $worst
