#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 900
# A target that sends large data without a copy (MSG_ZEROCOPY) over a network that delays packets and loses some: they wait, and are sent again, out
# of the target's data buffers. Hosts verify what they read. The kernel would say that it copies on the loopback interface, after packets have been
# delayed: systest/never_copied.c keeps that from varve.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 800
TRTYPE=tcp TARGET=127.0.0.1
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

modprobe sch_netem
ip link set lo up
tc qdisc add dev lo root netem delay 3ms 2ms loss 2%

retransmitted() {
  awk '/^Tcp:/ && !head { head = 1; next } /^Tcp:/ { print $13 }' /proc/net/snmp
}

zerocopies() { # zerocopy_sends or zerocopy_copied
  rpc nvmf_get_stats | sed -n "s/.*\"$1\": \\([0-9]*\\).*/\\1/p" | head -n 1
}

has_sent() { # NUMBER
  [ "$(zerocopies zerocopy_sends)" -ge "$1" ]
}

PERF=("$VARVE_BUILD/bin/varve-perf" --no-huge -m '[2]' -s 128 -j --quiet -r "trtype:TCP adrfam:IPv4 traddr:$TARGET trsvcid:4420 subnqn:$NQN"
  -w randrw --verify --region 4M)

test_target_starts() {
  echo '{"subsystems":[{"subsystem":"sock","config":[{"method":"sock_impl_set_options","params":{"impl_name":"posix",
    "enable_zerocopy_send_server":true,"zerocopy_threshold":8192}}]}]}' > /tmp/sock.json
  LD_PRELOAD=$VARVE_BUILD/systest/libnever-copied.so target_start -c /tmp/sock.json
  {
    call nvmf_create_transport '{"trtype":"TCP"}'
    call bdev_malloc_create '{"name":"M1","block_size":512,"num_blocks":16384}'
    call_subsystem $NQN
    call bdev_malloc_create '{"name":"M2","block_size":512,"num_blocks":16384}'
    call_add_ns $NQN 1 M1
    call_add_ns $NQN 2 M2
  } | rpcs
}

test_data_that_wait_and_are_sent_again_are_right() {
  "${PERF[@]}" -n 1 -o 64k -q 8 --ios 300 | tee /tmp/result
  grep -q '"miscompares": *0' /tmp/result
  grep -q '"errors": *0' /tmp/result
  [ "$(zerocopies zerocopy_sends)" -gt 50 ] || fail "sends without a copy: $(zerocopies zerocopy_sends)"
  same "sends of which the kernel has said that it copied them" "$(zerocopies zerocopy_copied)" 0
  [ "$(retransmitted)" -gt 0 ] || fail "nothing was sent again"
  await 60 target_is_empty
}

# Their connections end while data are under way; others have the buffers next.
test_hosts_that_go_with_data_under_way_leave_nothing() {
  local i
  "${PERF[@]}" -n 1 -o 64k -q 4 -t 600 > /tmp/steady 2>&1 &
  local steady=$!
  for i in 1 2 3 4; do
    "${PERF[@]}" -n 2 -o 128k -q 16 -t 600 --hostnqn "$NQN:host$i" > /dev/null 2>&1 &
    await 60 target_has_controllers $NQN 2
    await 60 has_sent $(($(zerocopies zerocopy_sends) + 20))
    kill -9 $!
    await 60 target_has_controllers $NQN 1
  done
  kill $steady
  wait $steady || :
  tee < /tmp/steady
  grep -q '"miscompares": *0' /tmp/steady
  grep -q '"errors": *0' /tmp/steady
  await 60 target_is_empty
}

test_target_ends() {
  target_kill TERM
  same "status of varve" "$(cat /tmp/varve.status)" 0
  target_is_silent
}

run_tests
