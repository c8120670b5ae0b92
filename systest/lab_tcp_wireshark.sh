#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab tshark
# limit: 900
# Wireshark judges what varve and the kernel send each other over TCP: the kernel's host and varve's target, varve's host and the kernel's target, with
# data in capsules and by R2T, without and with digests. It may find no malformed PDU and no wrong digest.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 800
TRTYPE=tcp TARGET=127.0.0.1
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

KERNELS=nqn.2026-11.io.varve:kernel
PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[2]' -s 128 --quiet -j -n 1 -w randrw --verify --region 4M -q 8
  -r "trtype:TCP traddr:127.0.0.1 trsvcid:4421 subnqn:$KERNELS")
ip link set lo up
modprobe nvme-tcp
modprobe brd rd_nr=1 rd_size=16384

# Packets of a port are captured while a function runs. PORT FUNCTION, and what Wireshark has to find (lab_wireshark.py)
watched() {
  local pid
  rm -f /tmp/until
  mkfifo /tmp/until
  PYTHONPATH=$(dirname "$SELF") python3 "$(dirname "$SELF")/lab/lab_wireshark.py" "$1" "${@:3}" < /tmp/until > /tmp/seen 2>&1 &
  pid=$!
  exec 9> /tmp/until
  await 90 grep -q begun /tmp/seen
  "$2"
  exec 9>&-
  wait $pid || { cat /tmp/seen; fail "Wireshark: $(tail -n 1 /tmp/seen)"; }
  cat /tmp/seen
}

seen() { # SIDE PDU
  sed -n "s/^$1 $2 //p" /tmp/seen
}

counted() { # NAME: by varve's target
  rpc nvmf_get_stats | sed -n "s/.*\"$1\": \\([0-9]*\\).*/\\1/p" | awk '{ n += $1 } END { print n }'
}

kernels_host() { # with each combination of digests: data in a capsule (4 KiB), by R2T (32 KiB), and to the host
  local digests d
  for digests in '' --hdr-digest --data-digest '--hdr-digest --data-digest'; do
    # shellcheck disable=SC2086  # two options, or none
    connect $NQN $digests
    d=$(await_disk $NQN 1)
    write_and_compare "$d" $((1 << 20)) $((1 << 20))
    "${FIO[@]}" --output=/tmp/fio.out --filename="$d" --rw=randrw --iodepth=8 --name=small --bs=4k --size=128k --name=large --bs=32k --size=1M \
      --offset=2M
    disconnect $NQN
  done
}

test_the_kernels_host_and_varves_target() {
  target_start
  {
    call nvmf_create_transport '{"trtype":"TCP"}'
    call bdev_malloc_create '{"name":"M1","block_size":512,"num_blocks":16384}'
    call_subsystem $NQN
    call_add_ns $NQN 1 M1
  } | rpcs
  watched 4420 kernels_host sent:ICREQ:8 sent:H2C_DATA:60 answered:R2T:60 answered:C2H_DATA:100 sent:hdgst:200 answered:hdgst:200 sent:ddgst:50 answered:ddgst:50
  # Wireshark has dissected all of them.
  same commands "$(seen sent CAPSULE_CMD)" "$(counted requests)"
  same R2Ts "$(seen answered R2T)" "$(counted r2ts)"
  target_is_silent
  target_kill TERM
}

varves_host() {
  local size
  for size in 512 4k 20k 128k; do # the kernel takes 16 KiB in a capsule
    "${PERF[@]}" -o $size --ios 40
    "${PERF[@]}" -o $size --ios 40 --hdgst --ddgst
  done > /tmp/result
  same "runs without a miscompare" "$(grep -c '"miscompares": *0' /tmp/result)" 8
  same "runs without an error" "$(grep -c '"errors": *0' /tmp/result)" 8
}

test_varves_host_and_the_kernels_target() {
  nvmet_up tcp 127.0.0.1 4421 $KERNELS /dev/ram0
  watched 4421 varves_host sent:ICREQ:16 sent:CAPSULE_CMD:320 sent:H2C_DATA:40 answered:R2T:40 answered:C2H_DATA:100 sent:hdgst:160 answered:hdgst:160 \
    sent:ddgst:40 answered:ddgst:40
}

run_tests
