#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Hands NVMe drives to varve and back to the kernel, and sets hugepages aside.
#
#   scripts/setup.sh [status]                  drives, who has them, what is on them; hugepages
#   scripts/setup.sh bind ADDRESS...           to vfio-pci, or to uio_pci_generic where there is no VFIO (-d DRIVER chooses)
#   scripts/setup.sh unbind ADDRESS...         back to the kernel's driver
#   scripts/setup.sh hugepages MB              at least so many MB in pages of 2 MB
#
# A drive that is mounted, swapped to, part of a volume, or open in any process is never touched. ADDRESS is a PCI address,
# 0000:5e:00.0 or 5e:00.0. All but status need root.
set -euo pipefail

SYS=${VARVE_SYSFS:-/sys}
PCI=$SYS/bus/pci/devices
me=${0##*/}

die() {
	echo "$me: $*" >&2
	exit 1
}

usage() {
	sed -n '3,12s/^# \?//p' "${BASH_SOURCE[0]}" | sed "s|scripts/setup\.sh|$me|"
}

full_address() {
	local a=$1
	[[ $a =~ ^[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$ ]] && a=0000:$a
	[[ $a =~ ^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$ ]] ||
		die "'$1' is no PCI address (0000:5e:00.0 or 5e:00.0)"
	[ -e "$PCI/$a" ] || die "there is no PCI device $a"
	echo "$a"
}

nvme_addresses() {
	local d
	for d in "$PCI"/*; do
		[ ! -r "$d/class" ] || [ "$(<"$d/class")" != 0x010802 ] || basename "$d"
	done
}

driver_of() {
	[ ! -e "$PCI/$1/driver" ] || basename "$(readlink -f "$PCI/$1/driver")"
}

# The block devices of a controller's namespaces. With multipath they hang from the subsystem, not from the controller.
disks_of() {
	local block parent ctrlr
	for block in "$SYS"/block/nvme*; do
		[ -e "$block/device" ] || continue
		parent=$(readlink -f "$block/device")
		for ctrlr in "$PCI/$1"/nvme/nvme*; do
			[ -e "$ctrlr" ] || continue
			if [ "$parent" = "$(readlink -f "$ctrlr")" ] || [ -e "$parent/$(basename "$ctrlr")" ]; then
				basename "$block"
			fi
		done
	done
}

# A disk and its partitions.
parts_of() {
	local p
	echo "$1"
	for p in "$SYS/block/$1/$1"p*; do
		[ ! -e "$p/partition" ] || basename "$p"
	done
}

open_exclusively() { # as a mount, md, dm or a swap area would: EBUSY if one of them has it
	if command -v python3 >/dev/null; then
		python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)' "$1" 2>/dev/null
	else
		perl -e 'use Fcntl; sysopen(my $f, $ARGV[0], O_RDONLY | O_EXCL) or exit 1' "$1"
	fi
}

opened_by() { # the processes that have a device open
	find /proc/[0-9]*/fd -maxdepth 1 -lname "$1" 2>/dev/null | cut -d/ -f3 | sort -un | tr '\n' ' '
}

# Says why a disk or partition is in use; nothing if it is not.
use_of_part() {
	local name=$1 path dev where holders pids
	path=/dev/$name
	dev=$(<"$(readlink -f "$SYS/class/block/$name")/dev")
	where=$(awk -v d="$dev" '$3 == d { print $5; exit }' /proc/self/mountinfo)
	[ -z "$where" ] || { echo "$name is mounted at $where"; return; }
	if awk -v p="$path" 'NR > 1 && $1 == p { found = 1 } END { exit !found }' /proc/swaps; then
		echo "$name is swap"
		return
	fi
	holders=$(ls "$(readlink -f "$SYS/class/block/$name")/holders" 2>/dev/null | tr '\n' ' ')
	[ -z "$holders" ] || { echo "$name is part of ${holders% }"; return; }
	[ -b "$path" ] || return 0
	pids=$(opened_by "$path")
	[ -z "$pids" ] || { echo "$name is open in process ${pids% }"; return; }
	open_exclusively "$path" || echo "$name is in use (it cannot be opened exclusively)"
}

# Why a controller's disks are in use, one line each; nothing if none is.
use_of() {
	local disk part
	for disk in $(disks_of "$1"); do
		for part in $(parts_of "$disk"); do
			use_of_part "$part"
		done
	done
}

# What is on a disk, for people: varve does not care.
content_of() {
	local disk=$1 type
	type=$(blkid -o value -s TYPE "/dev/$disk" 2>/dev/null || true)
	[ -n "$type" ] || type=$(blkid -o value -s PTTYPE "/dev/$disk" 2>/dev/null | sed 's/$/ partitions/' || true)
	echo "${type:-no known data}"
}

hugepages_status() {
	local d size
	for d in "$SYS"/kernel/mm/hugepages/hugepages-*; do
		[ -e "$d" ] || continue
		size=${d##*-}
		echo "hugepages of $((${size%kB} / 1024)) MB: $(<"$d/nr_hugepages"), $(<"$d/free_hugepages") free"
	done
}

status() {
	local a driver disk use found=''
	for a in $(nvme_addresses); do
		found=1
		driver=$(driver_of "$a")
		echo "$a  $(<"$PCI/$a/vendor"):$(<"$PCI/$a/device")  NUMA $(<"$PCI/$a/numa_node")  driver ${driver:-none}"
		for disk in $(disks_of "$a"); do
			echo "    $disk: $(($(<"$SYS/block/$disk/size") / 2048)) MB, $(content_of "$disk")"
		done
		use=$(use_of "$a")
		[ -z "$use" ] || sed 's/^/    in use: /' <<<"$use"
	done
	[ -n "$found" ] || echo "no NVMe drive"
	if [ -d "$SYS/kernel/iommu_groups" ] && [ -n "$(ls -A "$SYS/kernel/iommu_groups")" ]; then
		echo "IOMMU: yes"
	else
		echo "IOMMU: no (vfio-pci then needs vfio's enable_unsafe_noiommu_mode=1; devices can reach all memory)"
	fi
	hugepages_status
}

need_root() {
	[ "$(id -u)" = 0 ] || die "$1 needs root"
}

choose_driver() {
	modprobe vfio-pci 2>/dev/null || true
	if [ -e "$SYS/bus/pci/drivers/vfio-pci" ] && { [ -e "$PCI/$1/iommu_group" ] ||
		[ "$(cat "$SYS/module/vfio/parameters/enable_unsafe_noiommu_mode" 2>/dev/null)" = Y ]; }; then
		echo vfio-pci
	else
		echo uio_pci_generic
	fi
}

give() { # ADDRESS DRIVER; DRIVER '' is whichever of the kernel's wants it
	local d=$PCI/$1
	[ ! -e "$d/driver" ] || echo "$1" >"$d/driver/unbind"
	echo "${2:-}" >"$d/driver_override"
	echo "$1" >"$SYS/bus/pci/drivers_probe" || true
}

bind_one() {
	local a=$1 driver=$2 use
	[ "$(<"$PCI/$a/class")" = 0x010802 ] || die "$a is no NVMe controller (its class is $(<"$PCI/$a/class"))"
	use=$(use_of "$a")
	[ -z "$use" ] || die "$a is left alone: $use"
	[ -n "$driver" ] || driver=$(choose_driver "$a")
	[ "$(driver_of "$a")" != "$driver" ] || { echo "$a has $driver already"; return; }
	modprobe "$driver" 2>/dev/null || true
	[ -e "$SYS/bus/pci/drivers/$driver" ] || die "the kernel has no driver $driver"
	give "$a" "$driver"
	if [ "$(driver_of "$a")" != "$driver" ]; then
		give "$a" ''
		die "$driver does not take $a (dmesg says why; without an IOMMU see '$me status'); the kernel has it back"
	fi
	echo "$a: $driver"
}

unbind_one() {
	local a=$1
	case $(driver_of "$a") in
	vfio-pci | uio_pci_generic | '') ;;
	*) echo "$a has the kernel's driver $(driver_of "$a") already"; return ;;
	esac
	modprobe nvme 2>/dev/null || true
	give "$a" ''
	[ -n "$(driver_of "$a")" ] || die "no driver of the kernel's takes $a"
	echo "$a: $(driver_of "$a")"
}

# The kernel would give all memory that there is, and leave the machine with none: a tenth of it stays. What is less than was asked for goes back.
hugepages() {
	local pool=$SYS/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages have want got room
	[[ ${1:-} =~ ^(0|[1-9][0-9]{0,8})$ ]] || die "hugepages: '${1:-}' is no number of MB (0 to 999999999)"
	[ $# -eq 1 ] || die "hugepages: '$2' follows the number of MB; nothing may"
	[ -e "$pool" ] || die "this kernel has no hugepages of 2 MB"
	have=$(<"$pool")
	want=$((($1 + 1) / 2))
	room=$(awk '/^MemAvailable:/ { print int($2 / 1024 * 0.9) }' /proc/meminfo)
	[ $(((want - have) * 2)) -le "$room" ] ||
		die "hugepages: '$1' MB: beside the $((have * 2)) MB that there are, memory for $room more is free"
	if [ "$have" -lt "$want" ]; then
		echo "$want" >"$pool"
		got=$(<"$pool")
		if [ "$got" -lt "$want" ]; then
			echo "$have" >"$pool"
			die "only $((got * 2)) MB of hugepages could be had, and went back (memory is fragmented: do it at boot)"
		fi
	fi
	hugepages_status
}

command=${1:-status}
[ $# -eq 0 ] || shift
driver=''
if [ "${1:-}" = -d ]; then
	driver=${2:-}
	case $driver in
	vfio-pci | uio_pci_generic) ;;
	*) die "-d '$driver': vfio-pci or uio_pci_generic" ;;
	esac
	shift 2
fi
case $command in
status) status ;;
bind | unbind)
	need_root "$command"
	[ $# -gt 0 ] || die "$command needs addresses; '$me status' lists them"
	addresses=()
	for a; do
		a=$(full_address "$a")
		addresses+=("$a")
	done
	for a in "${addresses[@]}"; do
		if [ "$command" = bind ]; then bind_one "$a" "$driver"; else unbind_one "$a"; fi
	done
	;;
hugepages)
	need_root hugepages
	hugepages "$@"
	;;
-h | --help) usage ;;
*)
	usage >&2
	exit 2
	;;
esac
