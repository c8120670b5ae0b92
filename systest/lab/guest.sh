# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Functions for commands inside the guest (bash sources this file through BASH_ENV).

T() { # TEXT...: a line with the guest's uptime before it
  local uptime
  read -r uptime _ < /proc/uptime
  echo "@$uptime $*"
}

pause() { # SECONDS, at most some: without a process, which an emulated CPU is long about and which would be $!
  read -r -t "$1" -u "$PAUSE" || :
}

# SECONDS COMMAND...: until the command succeeds; 1 when the seconds have passed. For conditions, in place of sleep. Leaves $! alone.
await() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { echo "waited in vain for: $*" >&2; return 1; }
    pause 0.05
  done
}

monitor() { # COMMAND: of QEMU's human monitor (vm.sh -M); fails if it has anything to say
  local port line id=m$RANDOM fd
  port=$(grep -lx monitor /sys/class/virtio-ports/*/name) || { echo "monitor: there is none" >&2; return 1; }
  exec {fd}<> "/dev/$(basename "$(dirname "$port")")" || return
  # the second time, qmp_capabilities is an error that nobody reads
  printf '%s\n' '{"execute": "qmp_capabilities"}' \
    "{\"execute\": \"human-monitor-command\", \"id\": \"$id\", \"arguments\": {\"command-line\": \"$1\"}}" >&"$fd"
  while read -r -t 30 -u "$fd" line; do
    [[ $line != *"\"id\": \"$id\""* ]] || break
  done
  exec {fd}>&-
  [[ $line == *'"return": "", '* ]] || { echo "monitor: $1: $line" >&2; return 1; }
}

nvmes() { # the PCI addresses of the NVMe controllers
  local d
  for d in /sys/bus/pci/devices/*; do
    grep -q 0x0108 "$d/class" && basename "$d"
  done
}

pcibind() { # ADDRESS DRIVER: hands a PCI function over; DRIVER '' takes it from any
  local d=/sys/bus/pci/devices/$1
  [ -z "$2" ] || modprobe "$2"
  [ ! -e "$d/driver" ] || echo "$1" > "$d/driver/unbind"
  echo "$2" > "$d/driver_override"
  [ -z "$2" ] && return
  echo "$1" > /sys/bus/pci/drivers_probe
  [ "$(basename "$(readlink "$d/driver")")" = "$2" ]
}

# [NETDEV]: soft RoCE rxe0 on NETDEV (address $ADDR), or on a dummy with 10.7.0.1 (rdma_cm does not resolve 127.0.0.1 to
# an rxe). rxe works in softirq: as many busy pollers as CPUs starve it (4 ms a packet), so give the guest -c 4.
vfio_without_iommu() { # vfio in its no-IOMMU mode, which Debian's modules do not have; for guests of scripts that need vm.sh --modules
  local m
  rmmod vfio_pci vfio_pci_core vfio_virqfd vfio_iommu_type1 vfio 2> /dev/null || :
  modprobe irqbypass
  insmod "$EXTRA/vfio.ko" enable_unsafe_noiommu_mode=1
  for m in vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do insmod "$EXTRA/$m.ko"; done
}

rxe_up() {
  modprobe -a rdma_rxe rdma_ucm ib_uverbs || return
  soft_rdma rxe "${1:-}"
}

siw_up() { # [NETDEV]: soft iWARP siw0 in its place; for guests of scripts that need vm.sh --modules
  modprobe -a libcrc32c rdma_ucm ib_uverbs iw_cm || return
  insmod "$EXTRA/siw.ko" || return
  soft_rdma siw "${1:-}"
}

soft_rdma() { # TYPE NETDEV
  local type=$1 netdev=$2 address=${ADDR:-}
  if [ -z "$netdev" ]; then
    netdev=rd0 address=10.7.0.1
    modprobe dummy
    ip link add rd0 type dummy
    ip link set rd0 mtu 4200
  fi
  ip addr add "$address/24" dev "$netdev"
  ip link set "$netdev" up
  rdma link add "${type}0" type "$type" netdev "$netdev"
}

nvmet_up() { # rdma|tcp ADDRESS PORT NQN DEVICE...: a subsystem of the kernel's target, one namespace per block device
  local type=$1 address=$2 port=$3 s=/sys/kernel/config/nvmet/subsystems/$4 nsid=1 d
  modprobe "nvmet-$type" || return
  shift 4
  mkdir "$s" && echo 1 > "$s/attr_allow_any_host"
  for d; do
    mkdir "$s/namespaces/$nsid"
    echo "$d" > "$s/namespaces/$nsid/device_path"
    echo 1 > "$s/namespaces/$nsid/enable"
    nsid=$((nsid + 1))
  done
  nvmet_port "$type" "$address" "$port" "${s##*/}"
}

nvmet_port() { # rdma|tcp ADDRESS PORT NQN: a subsystem's port; it may have several
  local p=/sys/kernel/config/nvmet/ports/$3
  mkdir "$p"
  echo ipv4 > "$p/addr_adrfam"
  echo "$1" > "$p/addr_trtype"
  echo "$2" > "$p/addr_traddr"
  echo "$3" > "$p/addr_trsvcid"
  ln -s "/sys/kernel/config/nvmet/subsystems/$4" "$p/subsystems/"
}
