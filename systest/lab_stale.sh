#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1500
# The kernel's NVMe host with native multipath over two varve targets that have one block device. The host does not fence: when a path is lost it
# submits what was outstanding on the other path at once. So what is asserted here is what the target promises alone (doc/host.md): it carries out
# nothing of a connection that it has ended, and ends, after an absence that was longer than a keep-alive time, the connections of before. Writes
# wait in the left target (a rate limit) when it loses its listener, its namespace, its access, the host, its process, or is stopped; a verifying
# writer on the kernel's block device knows every acknowledged write. Not asserted, because this host leaves the window: writes that a store had
# begun and that end after the path was given up, and a target that was away for less than the host's keep-alive time when the host gives it up.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 1400 -a nvme_core.multipath=Y

NQN=nqn.2026-11.io.varve:stale
HOST=nqn.2014-08.org.nvmexpress:uuid:aaaaaaaa-0000-4000-8000-000000000001
UUID=3a7c9a52-5f0e-4c1d-9a53-0123456789ab
LEFT=4420
RIGHT=4421
KATO=5
REGION=256k
SEED=${VARVE_SEED:-$RANDOM}

modprobe -a nvme-rdma dummy
modprobe brd rd_nr=1 rd_size=16384
rxe_up

# --- the targets: what belongs to one is named by its port

rpc() { # PORT METHOD KEY=VALUE...
  "$VARVE_BUILD/bin/varve-rpc" -s "/tmp/varve$1.sock" "${@:2}"
}

call() { # METHOD PARAMETERS: a request for rpcs
  printf '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' "$1" "$2"
}

rpcs() { # PORT: requests from stdin
  local answers
  answers=$(rpc "$1" -)
  [[ $answers != *'"error"'* ]] || fail "a request was refused: $(grep -m 1 '"error"' <<< "$answers")"
}

address() { # PORT
  echo '{"trtype":"RDMA","adrfam":"IPv4","traddr":"10.7.0.1","trsvcid":"'"$1"'"}'
}

namespace() {
  call nvmf_subsystem_add_ns "{\"nqn\":\"$NQN\",\"namespace\":{\"bdev_name\":\"D\",\"nsid\":1,\"uuid\":\"$UUID\",\"anagrpid\":1}}"
}

listener() { # PORT
  call nvmf_subsystem_add_listener "{\"nqn\":\"$NQN\",\"listen_address\":$(address "$1")}"
}

host() { # METHOD
  call "$1" "{\"nqn\":\"$NQN\",\"host\":\"$HOST\"}"
}

set_state() { # PORT STATE
  call nvmf_subsystem_listener_set_ana_state "{\"nqn\":\"$NQN\",\"listen_address\":$(address "$1"),\"ana_state\":\"$2\"}" | rpcs "$1"
}

set_rate() { # PORT IOS_PER_SECOND
  rpc "$1" bdev_set_qos_limit name=D "rw_ios_per_sec=$2"
}

configure() { # PORT
  call nvmf_create_transport '{"trtype":"RDMA"}'
  call bdev_uring_create '{"name":"D","filename":"/dev/ram0","block_size":512,"shared":true}'
  call nvmf_create_subsystem "{\"nqn\":\"$NQN\",\"serial_number\":\"STALE\",\"ana_reporting\":true,\"max_namespaces\":8,\"min_cntlid\":$(($1 - 4419)),\
\"max_cntlid\":$(($1 - 4419))}"
  namespace
  host nvmf_subsystem_add_host
  listener "$1"
}

target_start() { # PORT
  "$VARVE_BUILD/bin/varve" --no-huge --no-pci -m "[$(($1 % 2 + 2))]" -s 192 -r "/tmp/varve$1.sock" >> "/tmp/varve$1.log" 2>&1 &
  echo $! > "/tmp/varve$1.pid"
  await 120 rpc "$1" framework_wait_init
  configure "$1" | rpcs "$1"
}

target_pid() { # PORT
  cat "/tmp/varve$1.pid"
}

is_gone() { # PID
  ! kill -0 "$1" 2> /dev/null
}

after_check() { # STATUS
  [ "$1" = 0 ] || tail -n 15 /tmp/varve$LEFT.log /tmp/varve$RIGHT.log | sed 's/^/# varve | /'
}

# --- the host

connect() { # PORT: two I/O queues, reconnects after a second
  nvme connect -t rdma -a 10.7.0.1 -s "$1" -n $NQN -i 2 -Q 32 -c 1 -l 900 -k $KATO --hostnqn $HOST --hostid ${HOST#*uuid:}
}

controller() { # PORT: nvme0
  local c address
  for c in /sys/class/nvme/nvme*; do
    read -r address < "$c/address" 2> /dev/null || continue
    [[ $address != *trsvcid="$1"* ]] || { echo "${c##*/}"; return; }
  done
  return 1
}

path() { # PORT
  local c
  c=$(controller "$1") || return
  ls -d /sys/block/nvme*c"${c#nvme}"n1
}

path_is() { # PORT STATE: of its access, and of the controller
  [ "$(cat "$(path "$1")/ana_state")" = "$2" ] && [ "$(cat "/sys/class/nvme/$(controller "$1")/state")" = live ]
}

ios() { # PORT: how many went through a path
  local path stat
  path=$(path "$1") && read -ra stat < "$path/stat" && echo $((stat[0] + stat[4]))
}

ios_came() { # PORT SINCE
  [ "$(ios "$1")" -gt $(($2 + 50)) ]
}

takes_io() { # PORT
  local since
  await 120 ios "$1" || fail "there is no path through $1"
  since=$(ios "$1")
  await 120 ios_came "$1" "$since" || fail "no I/O through $1"
}

disk() { # the multipath device
  local d
  for d in /sys/block/nvme*n1; do
    [[ ${d##*/} == *c* ]] || ! test -b "/dev/${d##*/}" || { echo "/dev/${d##*/}"; return; }
  done
  return 1
}

writer_is_running() {
  kill -0 "$(cat /tmp/writer.pid)" || { cat /tmp/writer.err; fail "the writer has ended"; }
}

waiting() { # PORT: reads and writes at a target
  local answer
  answer=$(rpc "$1" nvmf_get_inflight) || return
  grep -cE '"command": "(read|write)"' <<< "$answer" || : # it fails when it counts 0
}

waits() { # PORT
  [ "$(waiting "$1")" -ge 6 ]
}

idle() { # PORT
  [ "$(waiting "$1")" = 0 ]
}

# The host's writes wait in the left target.
slow_left() {
  takes_io $LEFT
  set_rate $LEFT 2
  await 60 waits $LEFT
}

# The other path takes I/O; then what may have been left behind at the left target has its time, under I/O that verifies.
left_is_over() {
  takes_io $RIGHT
  set_rate $LEFT 0
  await 60 idle $LEFT
  takes_io $RIGHT
  writer_is_running
}

left_is_back() {
  await 120 path_is $LEFT optimized
  takes_io $LEFT
  writer_is_running
}

# --- the checks

test_two_targets_are_two_paths() {
  target_start $LEFT
  target_start $RIGHT
  set_state $RIGHT non_optimized
  connect $LEFT
  connect $RIGHT
  await 120 path_is $LEFT optimized
  await 120 path_is $RIGHT non-optimized
  await 120 disk
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[1]' -s 128 -b "file:$(disk)" -w randrw --verify --region $REGION -q 8 --rate 200 -t 36000 -j --quiet \
    --ledger /tmp/ledger > /tmp/writer.json 2> /tmp/writer.err &
  echo $! > /tmp/writer.pid
  takes_io $LEFT
}

test_listener_is_removed() {
  slow_left
  call nvmf_subsystem_remove_listener "{\"nqn\":\"$NQN\",\"listen_address\":$(address $LEFT)}" | rpcs $LEFT
  left_is_over
  listener $LEFT | rpcs $LEFT
  left_is_back
}

test_host_is_removed() {
  slow_left
  host nvmf_subsystem_remove_host | rpcs $LEFT
  left_is_over
  host nvmf_subsystem_add_host | rpcs $LEFT
  left_is_back
}

test_access_is_withdrawn() {
  slow_left
  set_state $LEFT inaccessible
  left_is_over
  set_state $LEFT optimized
  left_is_back
}

# Access is withdrawn first: a command for a namespace that is not there is an error for the kernel, not a reason for the other path.
test_namespace_is_removed() {
  slow_left
  set_state $LEFT inaccessible
  takes_io $RIGHT
  call nvmf_subsystem_remove_ns "{\"nqn\":\"$NQN\",\"nsid\":1}" | rpcs $LEFT
  left_is_over
  namespace | rpcs $LEFT
  set_state $LEFT optimized
  left_is_back
}

test_rolling_restart() {
  local port
  slow_left
  for port in $LEFT $RIGHT; do
    kill -TERM "$(target_pid $port)"
    takes_io $((LEFT + RIGHT - port))
    await 60 is_gone "$(target_pid $port)"
    target_start $port
    [ $port = $LEFT ] || set_state $RIGHT non_optimized
    left_is_back
  done
  await 120 path_is $RIGHT non-optimized
}

test_target_is_killed() {
  slow_left
  kill -KILL "$(target_pid $LEFT)"
  takes_io $RIGHT
  target_start $LEFT
  left_is_back
}

# For longer than the keep-alive time, and until the host has given it up.
test_target_is_stopped_and_goes_on() {
  takes_io $LEFT
  kill -STOP "$(target_pid $LEFT)"
  takes_io $RIGHT
  pause $((KATO + 2))
  kill -CONT "$(target_pid $LEFT)"
  takes_io $RIGHT
  left_is_back
}

# In another order than above, and each at another instant of the I/O. VARVE_SEED repeats the choice.
test_events_at_random() {
  local events=(test_listener_is_removed test_host_is_removed test_access_is_withdrawn test_namespace_is_removed test_target_is_killed
    test_target_is_stopped_and_goes_on) event i
  RANDOM=$SEED
  for i in 1 2 3 4 5 6; do
    event=${events[RANDOM % ${#events[@]}]}
    echo "# event $i: $event"
    pause "0.$((RANDOM % 1000))"
    "$event"
  done
}

value() { # FILE NAME
  sed -n "s/.*\"$2\": \([0-9]*\),\?$/\1/p" "$1" | head -n 1
}

right_blocks() { # FILE: of varve-perf's results
  same errors "$(value "$1" errors)" 0
  same miscompares "$(value "$1" miscompares)" 0
}

test_nothing_was_lost_and_nothing_is_stale() {
  local disk status=0
  kill "$(cat /tmp/writer.pid)"
  await 60 is_gone "$(cat /tmp/writer.pid)"
  cat /tmp/writer.err /tmp/writer.json
  right_blocks /tmp/writer.json
  disk=$(disk)
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[1]' -s 128 -b "file:$disk" -j --check-ledger /tmp/ledger > /tmp/check.json || status=$?
  cat /tmp/check.json
  right_blocks /tmp/check.json
  same status $status 0
}

test_the_store_has_the_same() {
  local port
  nvme disconnect -n $NQN
  for port in $LEFT $RIGHT; do
    kill "$(target_pid $port)"
    await 60 is_gone "$(target_pid $port)"
  done
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[1]' -s 128 -b file:/dev/ram0 -j --check-ledger /tmp/ledger > /tmp/check.json
  right_blocks /tmp/check.json
  refused grep -E 'Sanitizer|SIGSEGV' /tmp/varve$LEFT.log /tmp/varve$RIGHT.log
}

echo "# seed $SEED"
run_tests
