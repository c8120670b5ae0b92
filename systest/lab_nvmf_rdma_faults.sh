#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1600
# Faults between varve's target and the kernel's NVMe host over soft RoCE: a target that is killed, stopped, silent or too slow, hosts
# that are silent or die, I/O outstanding when the connection ends. The host goes on, data are right, the target forgets who is gone.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 128 -t 1500
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

SLOW=nqn.2026-11.io.varve:slow
SECOND=1000000

# The target's disk is a block device of the guest: what was acknowledged outlives the target.
modprobe -a nvme-rdma dummy
modprobe brd rd_nr=1 rd_size=32768
rxe_up

configure() {
  call nvmf_create_transport '{"trtype":"RDMA"}'
  call bdev_aio_create '{"name":"A1","filename":"/dev/ram0","block_size":512}'
  call_subsystem $NQN
  call_add_ns $NQN 1 A1
}

target_restarts() { # OPTIONS...: as it was
  target_start -c /tmp/saved.json "$@"
}

is_not_live() {
  ! is_live $NQN
}

test_target_starts() {
  target_start
  configure | rpcs
  rpc save_config /tmp/saved.json
  connect $NQN
  await_disk $NQN 1
}

test_host_goes_on_after_the_target_was_killed() {
  local disk
  disk=/dev/$(disk $NQN 1)
  write_and_compare "$disk" 1048576 $((16 << 20))
  load_start "$disk"
  for _ in 1 2; do
    target_kill KILL
    target_restarts
    await 120 is_live $NQN
    load_goes_on
  done
  load_stop
  compare "$disk" 1048576 $((16 << 20))
}

queues() {
  rpc nvmf_subsystem_get_qpairs nqn=$NQN | grep -c '"enabled"' || :
}

has_queues() { # NUMBER
  [ "$(queues)" = "$1" ]
}

test_number_of_queues_changes_on_reconnect() {
  local n
  await 60 has_queues 3
  load_start "/dev/$(disk $NQN 1)"
  for n in 1 2; do
    target_kill TERM
    sed -i 's/"max_io_qpairs_per_ctrlr": [0-9]*/"max_io_qpairs_per_ctrlr": '$n/ /tmp/saved.json
    target_restarts
    await 120 is_live $NQN
    await 60 has_queues $((n + 1))
    load_goes_on
  done
  load_stop
}

test_target_that_is_silent_is_left_until_it_answers() {
  local pid
  disconnect $NQN
  connect $NQN -k 2
  load_start "$(await_disk $NQN 1)"
  pid=$(target_pid)
  kill -STOP "$pid"
  await 90 is_not_live
  kill -CONT "$pid"
  await 120 is_live $NQN
  target_says 'did not run for'
  load_goes_on
  load_stop
  await 60 target_has_controllers $NQN 1
  await 60 has_queues 3
}

test_target_ends_with_hosts_connected_and_io_outstanding() {
  load_start "/dev/$(disk $NQN 1)"
  target_kill TERM
  same "varve's exit status" "$(cat /tmp/varve.status)" 0
  target_restarts
  await 120 is_live $NQN
  load_goes_on
  load_stop
  disconnect $NQN
}

# --- hosts that fail: varve-perf, for the kernel's cannot be stopped

perf_run() { # NQN OPTIONS...
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[2]' -s 128 --quiet -r "trtype:RDMA traddr:$TARGET trsvcid:4420 subnqn:$1" \
    -q 8 -w randrw --region 1M -t 1000 "${@:2}" > /tmp/perf.out 2>&1 &
  echo $! > /tmp/perf.pid
}

perf_start() { # OPTIONS...
  perf_run $NQN "$@"
  await 90 target_has_controllers $NQN 1
  await 90 target_did_io "$(completed)"
}

completed() {
  rpc nvmf_get_stats | sed -n 's/.*"completed_nvme_io": \([0-9]*\).*/\1/p'
}

target_did_io() { # SINCE
  [ "$(completed)" -gt $(($1 + 100)) ]
}

test_host_that_is_silent_is_dropped() {
  local pid
  perf_start --kato 1000 --loss-timeout 600
  pid=$(cat /tmp/perf.pid)
  kill -STOP "$pid"
  await 90 target_is_empty
  target_says 'nothing was heard of it for its keep-alive timeout'
  kill -CONT "$pid"
  await 90 target_has_controllers $NQN 1
  await 90 target_did_io "$(completed)"
  kill "$pid"
  wait "$pid" || { cat /tmp/perf.out; fail "varve-perf has errors"; }
  await 90 target_is_empty
}

test_host_that_is_killed_is_forgotten() {
  for _ in 1 2; do
    perf_start --kato 0
    kill -9 "$(cat /tmp/perf.pid)"
    await 90 target_is_empty
  done
}

# --- commands that take long

slow_down() { # SECONDS that reads and writes take
  local t order='p99_read avg_read p99_write avg_write' # the average is never above the 99th percentile
  [ "$1" != 0 ] || order='avg_read p99_read avg_write p99_write'
  for t in $order; do
    call bdev_delay_update_latency "{\"delay_bdev_name\":\"D1\",\"latency_type\":\"$t\",\"latency_us\":$(($1 * SECOND))}"
  done | rpcs
}

outstanding() { # as many of the target's commands, or more
  local n
  n=$(rpc nvmf_get_inflight "nqn=$SLOW" | grep -c '"lba"' || :)
  echo "outstanding: $n" >> /tmp/outstanding
  [ "$n" -ge "$1" ]
}

test_disconnect_with_io_outstanding() {
  local disk
  {
    call bdev_malloc_create '{"name":"M1","block_size":512,"num_blocks":8192}'
    call bdev_delay_create '{"name":"D1","base_bdev_name":"M1","avg_read_latency":0,"p99_read_latency":0,"avg_write_latency":0,
      "p99_write_latency":0}'
    call_subsystem $SLOW
    call_add_ns $SLOW 1 D1
  } | rpcs
  connect $SLOW -k 60 # the kernel sends no keep-alive while it waits for the I/O
  disk=$(await_disk $SLOW 1)
  slow_down 6
  dd if=/dev/zero of="$disk" bs=16k count=1 oflag=direct status=none &
  await 60 outstanding 1
  nvme disconnect -n $SLOW
  wait $! # the kernel lets it end first
  await 90 target_is_empty
}

test_host_is_killed_with_io_outstanding() {
  perf_run $SLOW --kato 0
  await 60 outstanding 4 || { sort /tmp/outstanding | uniq -c; cat /tmp/perf.out; fail "no I/O"; }
  kill -9 "$(cat /tmp/perf.pid)"
  await 90 target_is_empty
}

test_reset_with_io_outstanding() {
  local disk
  slow_down 0
  connect $SLOW -k 60
  disk=$(await_disk $SLOW 1)
  head -c 16384 /dev/urandom > /tmp/x
  slow_down 6
  dd if=/tmp/x of="$disk" bs=16k count=1 oflag=direct status=none &
  await 60 outstanding 1
  nvme reset "/dev/$(controllers $SLOW)"
  slow_down 0
  wait $!
  dd if="$disk" bs=16k count=1 iflag=direct status=none | cmp - /tmp/x
}

timed_out() {
  kernel_log | grep -qE 'I/O .*timeout|timeout, '
}

test_command_that_times_out_is_sent_again() {
  local disk
  disk=/dev/$(disk $SLOW 1)
  head -c 16384 /dev/urandom > /tmp/x
  echo 2000 > "/sys/block/$(path $SLOW)/queue/io_timeout"
  slow_down 20
  dd if=/tmp/x of="$disk" bs=16k count=1 oflag=direct status=none &
  await 60 outstanding 1
  await 90 timed_out
  slow_down 0
  wait $!
  dd if="$disk" bs=16k count=1 iflag=direct status=none | cmp - /tmp/x
  disconnect $SLOW
}

test_nothing_is_left_at_the_end() {
  target_kill TERM
  same "varve's exit status" "$(cat /tmp/varve.status)" 0
  target_is_silent "did not run for|is being ended"
}

run_tests
