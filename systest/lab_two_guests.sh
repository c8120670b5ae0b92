#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 900
# Target and host in two guests, soft RoCE over a link between them; the link is cut and restored under I/O. The host goes on, data are
# right, the target forgets the connections that were.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"

# The guests talk by files in a folder that both have as /shared: that is not cut.
if [ -z "${VM:-}" ]; then
  SHARED=$(mktemp -d)
  trap 'kill $TARGET_GUEST 2> /dev/null; wait; rm -rf "$SHARED"' EXIT
  folder="-virtfs local,path=$SHARED,mount_tag=shared,security_model=none"
  export VARVE_BUILD=${VARVE_BUILD:-$(dirname "$(dirname "$SELF")")/build}
  "$(dirname "$SELF")/vm.sh" --setup || { echo "SKIP $NAME: the lab's state folder cannot be made"; exit 0; }
  "$(dirname "$SELF")/vm.sh" -n -c 4 -m 2G -p 0 -t 860 -L "two$$:1" -q "$folder" "$SELF --target" > "$SHARED/target.log" 2>&1 &
  TARGET_GUEST=$!
  (in_guest -n -c 4 -m 2G -p 0 -t 840 -M -L "two$$:2" -q "$folder")
  status=$?
  [ $status = 0 ] || sed 's/^/# target | /' "$SHARED/target.log" | tail -n 40
  exit $status
fi

TARGET=10.9.0.1
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"
modprobe -a virtio_net nvme-rdma sch_netem
await 60 test -e /sys/class/net/eth0
rxe_up eth0
mkdir -p /shared
mount -t 9p -o trans=virtio,version=9p2000.L,cache=none shared /shared

# --- the target's guest: does what the host's asks for, one after the other

serve() {
  local n=1 status
  while await 800 test -e /shared/$n.ask; do
    (eval "$(cat /shared/$n.ask)") > /shared/$n.said 2>&1
    status=$?
    T "$(cat /shared/$n.ask): $status"
    echo $status > /shared/$n.status
    mv /shared/$n.status /shared/$n.done
    n=$((n + 1))
  done
}

on_target() { # COMMAND
  local n
  n=$(($(cat /tmp/asked 2> /dev/null || echo 0) + 1))
  echo $n > /tmp/asked
  echo "$1" > /shared/$n.new
  mv /shared/$n.new /shared/$n.ask
  await 300 test -e /shared/$n.done
  cat /shared/$n.said
  return "$(cat /shared/$n.done)"
}

configure() {
  {
    call nvmf_create_transport '{"trtype":"RDMA"}'
    call bdev_malloc_create '{"name":"M1","block_size":512,"num_blocks":65536}'
    call_subsystem $NQN
    call_add_ns $NQN 1 M1
  } | rpcs
}

# --- the host's

is_not_live() {
  ! is_live $NQN
}

goes_on_after_a_cut() { # COMMAND-THAT-CUTS COMMAND-THAT-RESTORES
  load_start "/dev/$(disk $NQN 1)"
  $1
  await 120 is_not_live
  on_target "await 120 target_has_controllers $NQN 0 && await 120 target_is_empty"
  $2
  await 180 is_live $NQN
  load_goes_on
  load_stop
  compare "/dev/$(disk $NQN 1)" 1048576 $((16 << 20))
  on_target "await 60 target_has_controllers $NQN 1"
}

test_host_connects_to_another_machine() {
  on_target 'target_start && configure'
  await 60 discover
  connect $NQN -k 5
  write_and_compare "$(await_disk $NQN 1)" 1048576 $((16 << 20))
}

cut_link() { monitor 'set_link l off'; }
mend_link() { monitor 'set_link l on'; }

test_link_is_cut_and_restored_under_io() {
  goes_on_after_a_cut cut_link mend_link
}

lose() { tc qdisc replace dev eth0 root netem loss 100%; }
pass() { tc qdisc del dev eth0 root; }

test_packets_are_lost_one_way_under_io() {
  goes_on_after_a_cut lose pass
}

test_nothing_is_left_at_the_end() {
  nvme disconnect -n $NQN
  # shellcheck disable=SC2016  # it is expanded there
  on_target 'await 120 target_is_empty && target_kill TERM && target_is_silent && same status "$(cat /tmp/varve.status)" 0'
}

if [ "${1:-}" = --target ]; then
  serve
else
  run_tests
fi
