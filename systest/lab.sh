#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 600
# What the VM lab promises: output and status of the command, the limit, a panic told from an error, NVMe drives, VFIO,
# soft RoCE, the kernel's NVMe-oF target and host, eBPF, two guests on one link. `lab.sh PATTERN` runs what matches.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
PATTERN=${1:-}
failed=0

./vm.sh --setup || { echo "SKIP lab: the state folder cannot be made (above)"; exit 0; }

check() { # NAME STATUS EXPECTED-LINE vm.sh's arguments...
  local name=$1 want=$2 line=$3 status
  shift 3
  [[ $name == *$PATTERN* ]] || return 0
  ./vm.sh "$@" > "$OUT/$name" 2>&1
  status=$?
  if [ $status != "$want" ]; then
    echo "FAIL lab.$name: status $status, expected $want: $(tail -n 3 "$OUT/$name" | tr '\n' '|')"
    failed=1
  elif ! grep -aqE -- "$line" "$OUT/$name"; then
    echo "FAIL lab.$name: no line like '$line': $(tail -n 3 "$OUT/$name" | tr '\n' '|')"
    failed=1
  else
    echo "PASS lab.$name"
  fi
}

check status 7 '^out$' -n -c 1 'echo out; exit 7'
check limit 124 'limit of 6 s' -n -c 1 -t 6 'read -r < <(tail -f /dev/null)'
check panic 125 'sysrq triggered crash' -n -c 1 'echo c > /proc/sysrq-trigger'
check host_is_read_only_and_unchanged 0 '^mine$' -n -c 1 'echo mine > /etc/hostname; cat /etc/hostname'
check nvme 0 '^3$' 'modprobe nvme; n() { ls /dev/nvme?n? | wc -l; }; await 20 test -e /dev/nvme1n2; n'
check vfio_under_iommu 0 '^/dev/vfio/[0-9]+$' -i 'for d in $(nvmes); do pcibind $d vfio-pci || exit; done; ls /dev/vfio/[0-9]*'
check hugepages 0 'HugePages_Free: *64' -n -c 1 -p 64 'cat /proc/meminfo'
check bpftrace 0 '^@: [1-9]' -n "bpftrace -e 'kprobe:vfs_read /pid == cpid/ { @ = count(); }' -c '/bin/cat /etc/hostname'"
check rxe 0 'done' -n -c 4 'rxe_up || exit
  rping -s -P -a 10.7.0.1 & await 20 rping -c -a 10.7.0.1 -C 1 && timeout 30 rping -c -V -v -a 10.7.0.1 -C 10 && echo done'

nvmf='
  modprobe -a nvme-$type brd; nqn=nqn.2026-01.lab:a
  nvme connect -t $type -a $address -s 4420 -n $nqn || exit
  await 20 test -b /dev/nvme0n1 || exit
  head -c 1M /dev/urandom > /tmp/x
  dd if=/tmp/x of=/dev/nvme0n1 bs=256k oflag=direct status=none
  dd if=/dev/nvme0n1 bs=256k count=4 iflag=direct status=none | cmp - /tmp/x && nvme disconnect -n $nqn'
target='modprobe brd rd_nr=1 rd_size=65536; nvmet_up $type $address 4420 nqn.2026-01.lab:a /dev/ram0;'
check nvmf_rdma 0 'disconnected 1' -n -c 4 "type=rdma address=10.7.0.1; rxe_up; $target $nvmf"
check nvmf_tcp 0 'disconnected 1' -n -c 4 "type=tcp address=127.0.0.1; $target $nvmf"

output_is_byte_exact() {
  [[ output_is_byte_exact == *$PATTERN* ]] || return 0
  ./vm.sh -n -c 1 'printf "a\r\nb\0\377\n"; head -c 1000000 /bin/bash' > "$OUT/bytes" 2>&1
  if { printf 'a\r\nb\0\377\n'; head -c 1000000 /bin/bash; } | cmp -s - "$OUT/bytes"; then
    echo "PASS lab.output_is_byte_exact"
  else
    echo "FAIL lab.output_is_byte_exact: $(wc -c < "$OUT/bytes") bytes came, 1000007 expected, or they differ"
    failed=1
  fi
}
output_is_byte_exact

two_guests() { # the first serves until the second says over TCP that it is done
  [[ two_guests == *$PATTERN* ]] || return 0
  ./vm.sh -n -m 2G -p 0 -L "lab$$:1" "type=rdma address=\$ADDR; modprobe virtio_net; rxe_up eth0; $target
    cd /tmp; await 100 timeout 3 busybox nc -l -p 9" > "$OUT/first" 2>&1 &
  local first=$!
  check two_guests 0 'disconnected 1' -n -m 2G -p 0 -L "lab$$:2" "type=rdma address=10.9.0.1; modprobe virtio_net; rxe_up eth0
    modprobe nvme-rdma; await 60 nvme discover -t rdma -a 10.9.0.1 -s 4420 || exit; $nvmf; s=\$?
    await 20 busybox nc -w 1 10.9.0.1 9 < /dev/null; exit \$s"
  wait $first || { echo "FAIL lab.two_guests: the first ended with $?: $(tail -n 3 "$OUT/first" | tr '\n' '|')"; failed=1; }
}
two_guests
exit $failed
