#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 900
# varve as the target of the kernel's NVMe host over soft iWARP. It differs from RoCE in what an RDMA READ may be, in how many there may
# be at a time, in who may speak first, and in how a queue pair ends. Verified I/O, files, and connections that end in every way they can.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
needs_modules
in_guest -n -c 4 -p 0 -t 800
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

# The target's disk is a block device of the guest: what was acknowledged outlives the target.
modprobe -a nvme-rdma dummy
modprobe brd rd_nr=1 rd_size=65536
siw_up

configure() {
  call nvmf_create_transport '{"trtype":"RDMA"}'
  call bdev_aio_create '{"name":"A1","filename":"/dev/ram0","block_size":512}'
  call_subsystem $NQN
  call_add_ns $NQN 1 A1
}

lab_disk() {
  echo "/dev/$(disk $NQN 1)"
}

test_target_starts() {
  target_start
  configure | rpcs
  rpc save_config /tmp/saved.json
  discover | grep -qx "subnqn:  $NQN"
  await 60 target_is_empty
}

test_host_connects() {
  connect $NQN
  await_disk $NQN 1
  target_has_controllers $NQN 1
}

test_data_of_all_sizes_are_right() {
  write_and_compare "$(lab_disk)" 4194304 $((16 << 20))
}

test_fio_verifies_random_mixed_io() {
  "${FIO[@]}" --rw=randrw --verify_backlog=64 --iodepth=8 --output=/tmp/fio.out --filename="$(lab_disk)" \
    --name=pages --bs=4k --size=4M --name=large --bs=32k --offset=4M --size=8M || {
    cat /tmp/fio.out
    fail "fio has errors"
  }
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

test_host_goes_on_after_the_target_was_killed() {
  load_start "$(lab_disk)"
  target_kill KILL
  target_start -c /tmp/saved.json
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
  # What is posted on a queue pair in the error state completes as flushed (ibv_post_send(3)). siw does so for the kernel's queue pairs
  # only: siw_post_send() has no list to flush for user space's, and the entries stay in the queue for ever. So whenever the host was
  # gone before varve knew, varve has to end the queue pair by itself, and says so.
  target_is_silent 'siw0: [0-9]+ work requests .* did not end; its queue pair is destroyed'
}

run_tests
