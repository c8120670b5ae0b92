# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by vm.sh: makes the state folder $LAB ready, once, also when several runs start together:
#   k/                the unpacked kernel package     vmlinux-VERSION   the kernel as an ELF file
#   initrd-HASH       made of lab/init and modules; HASH is of what it is made from, so that trees of different age
#                     can share a state folder
# Sets LAB_KERNEL, LAB_VMLINUX and LAB_INITRD.

lab_die() {
  echo "vm.sh: $1" >&2
  exit 69
}

lab_check_host() { # says all that is missing at once, by Debian package
  local missing='' tool package
  [ "$(uname -m)" = x86_64 ] || lab_die "the lab is for x86_64; this machine is $(uname -m)"
  while read -r tool package; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" > /dev/null || missing+=" $package"
  done <<< 'qemu-system-x86_64 qemu-system-x86
            cpio cpio
            modprobe kmod
            xz xz-utils
            setpriv util-linux
            flock util-linux
            apt-get apt'
  if [ ! -x /bin/busybox ] || readelf -l /bin/busybox 2> /dev/null | grep -q INTERP; then
    missing+=' busybox-static'
  fi
  [ -z "$missing" ] || lab_die "missing on this machine: apt-get install$missing"
}

lab_kernel_version() { # $KVER, else the one that was unpacked, else what linux-image-amd64 stands for now
  local v=${KVER:-}
  [ -n "$v" ] || v=$(find "$LAB_KERNEL/lib/modules" -mindepth 1 -maxdepth 1 -printf '%f\n' 2> /dev/null | sort -V | tail -n 1)
  [ -n "$v" ] || v=$(apt-cache depends linux-image-amd64 2> /dev/null | sed -n 's/.*Depends: linux-image-//p' | head -n 1)
  [ -n "$v" ] || lab_die "apt knows no linux-image-amd64: run apt-get update (or give a Debian kernel's version in KVER)"
  echo "$v"
}

lab_fetch_kernel() { # into k/; the cloud kernel would not do: it has no 9p and no rdma_rxe
  [ -e "$LAB_KERNEL/lib/modules/$KVER/modules.dep" ] && return
  echo "vm.sh: fetching linux-image-$KVER into $LAB (once)" >&2
  (cd "$LAB_TMP" && apt-get download -qq -o APT::Sandbox::User=root "linux-image-$KVER" >&2) ||
    lab_die "apt-get download linux-image-$KVER failed (apt-get update? a version that the mirror no longer has?)"
  dpkg -x "$LAB_TMP"/linux-image-*.deb "$LAB_KERNEL"
  depmod -b "$LAB_KERNEL" "$KVER"
}

lab_unpack_vmlinux() { # out of the bzImage; QEMU starts it by PVH, which spares 5 s of xz in the guest
  [ -s "$LAB_VMLINUX" ] && return
  local f=$LAB_KERNEL/boot/vmlinuz-$KVER offset length
  number() { od -An -tu"$2" -j"$1" -N"$2" "$f" | tr -d ' '; }
  # Linux' boot protocol: setup_sects at 497, payload_offset at 584, payload_length at 588 (its last 4 bytes: a size)
  offset=$((($(number 497 1) + 1) * 512 + $(number 584 4)))
  length=$(($(number 588 4) - 4))
  dd if="$f" iflag=skip_bytes,count_bytes skip=$offset count=$length bs=64k status=none | xz -dc > "$LAB_TMP/vmlinux"
  mv "$LAB_TMP/vmlinux" "$LAB_VMLINUX"
}

lab_build_initrd() { # static busybox, the modules on the way to the 9p root, lab/init
  [ -s "$LAB_INITRD" ] && return
  local i=$LAB_TMP/initrd.d m f
  mkdir -p "$i/bin" "$i/m"
  cp /bin/busybox "$i/bin/"
  for m in sh mkdir mount insmod ln ip hostname switch_root; do ln -s busybox "$i/bin/$m"; done
  for m in virtio_pci 9pnet_virtio 9p overlay virtio_console configfs; do
    modprobe -d "$LAB_KERNEL" -S "$KVER" --show-depends "$m"
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r f; do
    cp "$f" "$i/m/"
    basename "$f"
  done > "$i/m/order"
  cp "$HERE/lab/init" "$i/init"
  chmod +x "$i/init"
  (cd "$i" && find . | cpio -o -H newc --quiet -R 0:0) > "$LAB_TMP/initrd"
  mv "$LAB_TMP/initrd" "$LAB_INITRD"
}

lab_setup() {
  lab_check_host
  PATH=$PATH:/usr/sbin:/sbin
  mkdir -p "$LAB"
  LAB=$(cd "$LAB" && pwd)
  LAB_KERNEL=$LAB/k
  exec 8> "$LAB/lock"
  flock 8
  KVER=$(lab_kernel_version)
  LAB_VMLINUX=$LAB/vmlinux-$KVER
  LAB_INITRD=$LAB/initrd-$({ echo "$KVER"; cat "$HERE/lab/init" "$HERE/lab/kernel.sh" /bin/busybox; } | sha256sum | cut -c 1-12)
  LAB_TMP=$(mktemp -d "$LAB/tmp.XXXXXX")
  trap 'rm -rf "$LAB_TMP"' EXIT
  lab_fetch_kernel
  lab_unpack_vmlinux
  lab_build_initrd
  rm -rf "$LAB_TMP"
  trap - EXIT
  exec 8>&-
}

lab_coredump() { # systemd's handler of core dumps, which a machine may well be without, into coredump/
  [ ! -e "$LAB/coredump/usr/bin/coredumpctl" ] || return 0
  local d
  [ -x /lib/systemd/systemd ] || lab_die "missing on this machine: apt-get install systemd"
  d=$(mktemp -d "$LAB/tmp.XXXXXX")
  (cd "$d" && apt-get download -qq -o APT::Sandbox::User=root systemd-coredump >&2) || lab_die "apt-get download systemd-coredump failed (apt-get update?)"
  dpkg -x "$d"/systemd-coredump_*.deb "$d/x"
  mv -T "$d/x" "$LAB/coredump" 2> /dev/null || [ -e "$LAB/coredump/usr/bin/coredumpctl" ] # another run was first
  rm -rf "$d"
}
