#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# vm.sh [options] 'command': runs a bash command as root in a throwaway guest with Debian's kernel (NVMe drives, VFIO,
# soft RoCE, the kernel's NVMe-oF target and host), and gives back its output and its exit status. The guest's root is
# this machine's / (read-only, by 9p) under an overlay in RAM: every program and path is there, nothing written stays.
# No root is needed, nothing is installed; the first run fetches and unpacks Debian's kernel (about 10 s, 410 MB).
#
#   -c 2     CPUs                                  -m 4G    memory
#   -p 512   2 MiB hugepages reserved at boot      -i       intel-iommu: VFIO as on a real machine
#   -n       no NVMe drives (otherwise: LAB0 with one namespace, LAB1 with two)
#   -s 1G    size of each namespace (sparse file)
#   -L X:N   a network card on the link X between two guests; N is 1 or 2, in the guest $ADDR is 10.9.0.N
#   -o DIR   keep the folder that the guest sees read-write as /out
#   -t 120   limit in seconds                      -v       the kernel's console to stderr
#   -a ARGS  more for the kernel's command line    -q ARGS  more for QEMU
#   -M       QEMU's monitor, for the guest's `monitor COMMAND`
#   -S       process 1 is systemd, with few units (lab/systemd.sh); the command is one of them
#   --setup  only make the state folder ready     --modules  that, and the kernel's modules that Debian leaves out
#
# Exit status: the command's own; 124: the limit was hit; 125: the guest died without one (console's tail to stderr: at 124 with what ran);
# 69: something is missing on this machine (stderr names the packages).
# Environment: VARVE_LAB, the state folder (default: .lab in the tree); KVER, the kernel's version; VM_ACCEL (default
# kvm where it runs an ordinary guest, else tcg,thread=multi), VM_CPU (default max, under TCG
# without what is dear there). VARVE_BUILD and the working directory are the same in the guest.
# The command has the functions of lab/guest.sh. Guests run beside each other, also from one state folder.
# Pitfall: a program built with -march=native may die in the guest by SIGILL (TCG has no AVX-512).
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TREE=$(dirname "$HERE")
LAB=${VARVE_LAB:-$TREE/.lab}
. "$HERE/lab/kernel.sh"
. "$HERE/lab/modules.sh"
. "$HERE/lab/accel.sh"

usage() {
  sed -n '3,/^set /{/^set /d;s/^# \?//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

MEM=4G HUGE=512 CPUS=2 LIMIT=120 SIZE=1G
IOMMU='' NVME=1 LINK='' MONITOR='' SYSTEMD='' OUT='' APPEND='' QEMU='' VERBOSE=''
while [ $# -gt 0 ]; do
  case $1 in
    -i) IOMMU=1 ;;
    -n) NVME='' ;;
    -v) VERBOSE=1 ;;
    -M) MONITOR=1 ;;
    -S) SYSTEMD=1 ;;
    --setup) lab_setup; exit ;;
    --modules) lab_setup; lab_modules; exit ;;
    -[cmpstLoaq])
      [ $# -ge 2 ] || usage
      case $1 in
        -c) CPUS=$2 ;; -m) MEM=$2 ;; -p) HUGE=$2 ;; -s) SIZE=$2 ;; -t) LIMIT=$2 ;;
        -L) LINK=$2 ;; -o) OUT=$2 ;; -a) APPEND=$2 ;; -q) QEMU=$2 ;;
      esac
      shift ;;
    --) shift; break ;;
    -*) usage ;;
    *) break ;;
  esac
  shift
done
[ $# -gt 0 ] || usage
case $LINK in
  '' | [A-Za-z0-9]*:[12]) ;;
  *) echo "vm.sh: -L $LINK: expected NAME:1 or NAME:2" >&2; exit 2 ;;
esac
lab_setup
lab_accel
lab_cpu
lab_extra_name
[ -z "$SYSTEMD" ] || lab_coredump

# --- what this guest gets to read: its command, its variables, its drives
W=$(mktemp -d "${TMPDIR:-/tmp}/vm.XXXXXX")
LINKFILE=''
trap 'rm -rf "$W" ${LINKFILE:+"$LINKFILE"}' EXIT
SHARE=${OUT:-$W/out}
mkdir -p "$SHARE"
rm -f "$SHARE/rc"
printf '%s\n' "$*" > "$SHARE/cmd"
cp "$HERE/lab/run-in-guest.sh" "$SHARE/run"
printf '%s=%q\n' MODULES "$LAB_KERNEL/lib/modules" CWD "$PWD" TREE "$TREE" VARVE_LAB "$LAB" EXTRA "$LAB_EXTRA" \
  SYSTEMD "$SYSTEMD" VARVE_BUILD "${VARVE_BUILD:-$TREE/build}" ADDR "${LINK:+10.9.0.${LINK##*:}}" LIMIT "$LIMIT" > "$SHARE/vars"

# --- QEMU's arguments
# The result goes through a virtio-serial port: 20 MB/s and byte-exact, where a UART would add CRs and kernel messages.
# A file chardev on a pipe: stdio would see the end of stdin, count as closed, and block the guest's write for ever.
A=(-machine "q35${IOMMU:+,kernel-irqchip=split}" -accel "$ACCEL" -cpu "$CPU" -smp "$CPUS" -m "$MEM"
   -display none -nodefaults -no-user-config -no-reboot -kernel "$LAB_VMLINUX" -initrd "$LAB_INITRD"
   -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
   -virtfs "local,path=$SHARE,mount_tag=out,security_model=none"
   -device virtio-serial -chardev "file,id=o,path=/dev/stdout,append=on" -device "virtserialport,chardev=o")
# The last four spare two to four seconds of the boot.
C="console=ttyS0 quiet panic=-1 tsc=reliable hugepages=$HUGE audit=0"
C+=" mitigations=off init_on_alloc=0 cryptomgr.notests"
C+=" log_buf_len=1M" # a check looks at all that was said in its time
# On a busy host the kernel waits for its timer in vain at boot, and panics ("timer does not work ...").
C+=" no_timer_check"
# ... or it takes the counter that its clock goes by for several times slower than it is, and all deadlines pass too early.
case $ACCEL in
  tcg*)
    khz=$(python3 "$HERE/lab/tsc.py" 2> /dev/null) && C+=" tsc_early_khz=$khz"
    # TCG knows translated code by its address. If each process has other addresses, its libraries are translated again for each.
    C+=" norandmaps" ;;
esac
if [ -n "$IOMMU" ]; then
  A+=(-device "intel-iommu,intremap=on,caching-mode=on")
  C+=" intel_iommu=on"
fi
if [ -n "$NVME" ]; then
  for d in a b1 b2; do
    truncate -s "$SIZE" "$W/$d"
    A+=(-drive "if=none,id=$d,format=raw,file=$W/$d")
  done
  A+=(-device "nvme,serial=LAB0,id=n0,drive=a" -device "nvme,serial=LAB1,id=n1"
      -device "nvme-ns,drive=b1,bus=n1,nsid=1" -device "nvme-ns,drive=b2,bus=n1,nsid=2")
fi
if [ -n "$LINK" ]; then # datagrams: by TCP (-netdev socket) Nagle's algorithm makes each round trip 44 ms
  n=${LINK##*:} base=/tmp/vmlink-$UID.${LINK%:*}
  LINKFILE=$base.$n
  rm -f "$LINKFILE"
  A+=(-netdev "dgram,id=l,local.type=unix,local.path=$LINKFILE,remote.type=unix,remote.path=$base.$((3 - n))"
      -device "virtio-net-pci,netdev=l,romfile=,mac=52:54:00:00:00:0$n")
fi
if [ -n "$MONITOR" ]; then # a socket between the monitor and a second port: QEMU talks to itself
  A+=(-chardev "socket,id=m,path=$W/monitor,server=on,wait=off" -mon "chardev=m,mode=control"
      -chardev "socket,id=n,path=$W/monitor" -device "virtserialport,chardev=n,name=monitor")
fi
if [ -n "$VERBOSE" ]; then
  A+=(-chardev "file,id=c,path=/dev/stderr,append=on" -serial chardev:c)
else
  A+=(-serial "file:$W/console")
fi

# --- run it; whatever ends this script, kill -9 included, ends the guest too
set +e
# shellcheck disable=SC2086  # $QEMU is words
setpriv --pdeathsig TERM timeout --foreground -k 5 "$LIMIT" \
  setpriv --pdeathsig KILL qemu-system-x86_64 "${A[@]}" -append "$C $APPEND" $QEMU < /dev/null | cat
q=${PIPESTATUS[0]}
[ -s "$SHARE/rc" ] && exit "$(cat "$SHARE/rc")"
if [ -z "$VERBOSE" ]; then # the console's tail without registers and code bytes
  grep -av '^\[[^]]*\]  [? ]\|\] R[A-Z0-9]*: \|\] Code:' "$W/console" 2>&1 | tail -n 50 >&2
fi
if [ "$q" = 124 ]; then
  echo "vm.sh: the limit of $LIMIT s has passed (-t)" >&2
  exit 124
fi
echo "vm.sh: the guest ended without a status (QEMU's: $q)" >&2
exit 125
