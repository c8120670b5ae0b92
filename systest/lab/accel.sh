# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by vm.sh: what runs the guest. lab_accel sets ACCEL to $VM_ACCEL, to kvm, or to TCG, which always works; lab_cpu sets CPU.
# There are machines whose /dev/kvm opens and then interprets an ordinary kernel or dies: so it is tried, once per boot of this
# machine, with the guest's kernel without a root, whose panic is the end of a boot that worked.

lab_accel_trial() { # KVM needs a second or two for it
  local console
  console=$(mktemp "${TMPDIR:-/tmp}/vm.XXXXXX")
  { timeout 10 qemu-system-x86_64 -machine q35 -accel kvm -cpu max -m 512M -display none -nodefaults -no-user-config -no-reboot \
    -kernel "$LAB_VMLINUX" -append 'console=ttyS0 panic=-1' -serial "file:$console" < /dev/null; } > /dev/null 2>&1 # its "Aborted" too
  grep -aq 'VFS: Unable to mount root fs' "$console"
  local found=$?
  rm -f "$console"
  return $found
}

lab_accel() {
  local file boot
  ACCEL=${VM_ACCEL:-}
  [ -z "$ACCEL" ] || return 0
  ACCEL=tcg,thread=multi
  [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 0
  boot=$(cat /proc/sys/kernel/random/boot_id)
  file=$LAB/accel-$boot
  (
    flock 9
    [ -s "$file" ] && exit
    rm -f "$LAB"/accel-*
    verdict=$ACCEL
    lab_accel_trial && verdict=kvm
    echo "$verdict" > "$file"
  ) 9> "$LAB/lock.accel"
  ACCEL=$(cat "$file")
}

# Under TCG some features make a guest slower, because programs take them for fast: string instructions (erms, fsrm) work byte by byte, each
# change of SMAP's flag ends a translated block, and a fifth level of page tables (la57) is walked after each switch of processes.
lab_cpu() {
  CPU=${VM_CPU:-max}
  case $ACCEL in
    tcg*) CPU=${VM_CPU:-max,-erms,-fsrm,-smap,-smep,-umip,-la57,-pku} ;;
  esac
}
