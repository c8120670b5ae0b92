#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1500
# varve as the target of the kernel's NVMe host over TCP: discovery, verified I/O of all sizes with each combination of digests, files, and
# connections that end in every way they can.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 1400
TRTYPE=tcp TARGET=127.0.0.1
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
# The target's disk is a block device of the guest: what was acknowledged outlives the target.
ip link set lo up
modprobe nvme-tcp
modprobe brd rd_nr=1 rd_size=65536
NVME_COMPLAINS='nvme.*([Ff]ail|[Ee]rror|invalid|unhandled|timeout|abort)'

configure() {
  call nvmf_create_transport '{"trtype":"TCP"}'
  call bdev_aio_create '{"name":"A1","filename":"/dev/ram0","block_size":512}'
  call bdev_malloc_create '{"name":"M2","block_size":4096,"num_blocks":4096}'
  call_subsystem $NQN
  call_add_ns $NQN 1 A1
  call_add_ns $NQN 2 M2
}

lab_disk() {
  echo "/dev/$(disk $NQN 1)"
}

test_target_starts() {
  target_start
  configure | rpcs
  rpc save_config /tmp/saved.json
}

test_discovery_lists_what_is_configured() {
  discover | tee /tmp/d
  grep -q 'Number of Records 1,' /tmp/d
  grep -qx "subnqn:  $NQN" /tmp/d
  grep -qx 'trtype:  tcp' /tmp/d
  grep -qx 'adrfam:  ipv4' /tmp/d
  grep -qx 'subtype: nvme subsystem' /tmp/d
  grep -qx 'trsvcid: 4420' /tmp/d
  grep -qx "traddr:  $TARGET" /tmp/d
  grep -qx 'sectype: none' /tmp/d
  await 60 target_is_empty
  kernel_is_silent "$NVME_COMPLAINS"
}

test_persistent_discovery_is_kept_alive() {
  local c
  discover -p -k 3 > /dev/null
  c=$(controllers $DISCOVERY)
  stays 7 target_has_controllers $DISCOVERY 1
  same state "$(cat "/sys/class/nvme/$c/state")" live
  nvme disconnect -d "$c"
  await 60 target_is_empty
  kernel_is_silent "$NVME_COMPLAINS"
}

test_unknown_subsystem_is_refused() {
  refused connect nqn.2026-11.io.varve:none
  kernel_log | grep -q 'Connect Invalid Data Parameter, subsysnqn "nqn.2026-11.io.varve:none"'
}

# In the capsule and by R2T, out of a file and out of memory that is sent as it lies.
io_is_right() { # OPTIONS of connect...
  local one two
  connect $NQN "$@"
  one=$(await_disk $NQN 1)
  two=$(await_disk $NQN 2)
  is_live $NQN
  write_and_compare "$one" 1048576 $((16 << 20))
  "${FIO[@]}" --rw=randrw --verify_backlog=64 --iodepth=8 --output=/tmp/fio.out \
    --name=sectors --filename="$one" --bs=512 --size=256k --name=pages --filename="$one" --bs=4k --offset=1M --size=1M \
    --name=large --filename="$one" --bs=128k --iodepth=4 --offset=4M --size=4M --name=odd --filename="$one" --bs=20k --offset=10M --size=1M \
    --name=memory --filename="$two" --bs=4k --size=1M --name=big_memory --filename="$two" --bs=64k --offset=4M --size=2M || {
    cat /tmp/fio.out
    fail "fio has errors"
  }
  disconnect $NQN
  kernel_is_silent "$NVME_COMPLAINS"
  target_is_silent
}

test_io_without_digests() {
  io_is_right
}

test_io_with_header_digests() {
  io_is_right --hdr-digest
}

test_io_with_data_digests() {
  io_is_right --data-digest
}

test_io_with_both_digests() {
  io_is_right --hdr-digest --data-digest
}

test_nvme_cli_sends_admin_commands() {
  local c
  connect $NQN
  await_disk $NQN 2
  c=/dev/$(controllers $NQN)
  nvme smart-log "$c" | grep -q '^critical_warning[[:space:]]*: 0$'
  nvme id-ctrl "$c" | grep -qx "subnqn    : $NQN"
  nvme effects-log "$c" -c 0 | grep -q 'IOCS1.*Write'
  nvme get-feature "$c" -f 7 | grep -q 'Number of Queues'
  refused nvme read "$(lab_disk)" -s 131072 -c 0 -z 512 -d /tmp/x > /tmp/e 2>&1
  grep -q 'LBA Out of Range' /tmp/e
  head -c 4096 /dev/urandom > /tmp/x
  nvme write "$(lab_disk)" -s 0 -c 7 -z 4096 -d /tmp/x
  nvme compare "$(lab_disk)" -s 0 -c 7 -z 4096 -d /tmp/x
  refused nvme compare "$(lab_disk)" -s 100 -c 7 -z 4096 -d /tmp/x
}

test_files_survive_a_reconnect() {
  mkfs.ext4 -q "$(lab_disk)"
  mount_fs "$(lab_disk)"
  write_files a
  umount /tmp/fs
  disconnect $NQN
  connect $NQN
  mount_fs "$(await_disk $NQN 1)"
  files_are_right
  umount /tmp/fs
  kernel_is_silent 'nvme.*timeout|I/O error|EXT4-fs (error|warning)'
}

test_reset_under_io() {
  load_start "$(lab_disk)"
  for _ in 1 2; do
    nvme reset "/dev/$(controllers $NQN)"
    load_goes_on
  done
  load_stop
  target_has_controllers $NQN 1
}

test_listener_goes_and_comes_under_io() {
  load_start "$(lab_disk)"
  call_listener $NQN nvmf_subsystem_remove_listener | rpcs
  await 90 target_has_controllers $NQN 0
  call_listener $NQN | rpcs
  await 120 is_live $NQN
  load_goes_on
  load_stop
}

is_not_live() {
  ! is_live $NQN
}

reconnects() {
  kernel_log | grep -c 'Successfully reconnected' || true
}

has_reconnected() { # BEFORE
  [ "$(reconnects)" -gt "$1" ] && is_live $NQN
}

# The link is away until both sides have given the connection up: TCP's retransmission alone does not bring it back.
test_link_is_lost_under_io() {
  local before
  disconnect $NQN
  connect $NQN -k 2
  await_disk $NQN 1
  load_start "$(lab_disk)"
  before=$(reconnects)
  ip link set lo down
  await 120 target_has_controllers $NQN 0
  await 120 is_not_live
  ip link set lo up
  ip addr show lo | grep -q 127.0.0.1 || ip addr add 127.0.0.1/8 dev lo
  await 120 has_reconnected "$before"
  await 120 target_has_controllers $NQN 1
  load_goes_on
  load_stop
  disconnect $NQN
  connect $NQN
  await_disk $NQN 1
}

test_host_goes_on_after_the_target_was_killed() {
  load_start "$(lab_disk)"
  target_kill KILL
  target_start -c /tmp/saved.json
  await 120 is_live $NQN
  load_goes_on
  load_stop
  write_and_compare "$(lab_disk)" 1048576 $((32 << 20))
}

# The RAM disk begins anew.
test_host_goes_on_after_another_process_has_taken_over() {
  load_start "$(lab_disk)"
  rm -f /tmp/varve.status
  target_start --takeover $SOCK --takeover-force
  await 90 test -s /tmp/varve.status
  same 'exit status of the one before' "$(cat /tmp/varve.status)" 0
  rpc appliance_get_state | grep "\"pid\": *$(target_pid)"
  await 120 is_live $NQN
  load_goes_on
  load_stop
  write_and_compare "$(lab_disk)" 1048576 $((32 << 20))
}

test_disconnect_under_io() {
  load_start "$(lab_disk)"
  nvme disconnect -n $NQN
  load_ends
  await 90 target_is_empty
}

test_nothing_is_left_at_the_end() {
  target_kill TERM
  same "varve's exit status" "$(cat /tmp/varve.status)" 0
  target_is_silent
}

run_tests
