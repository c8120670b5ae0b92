#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 900
# The kernel's NVMe host with two paths to varve over soft RoCE: it follows ANA states under verified I/O, sees the namespaces that
# it is shown, and as two hosts (without multipath) keeps itself out by reservations, over a restart of varve too.
# lab_nvmf_ana_tcp.sh does part of it over TCP.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 840 -a nvme_core.multipath=Y

NQN=nqn.2026-11.io.varve:ana
A=nqn.2014-08.org.nvmexpress:uuid:aaaaaaaa-0000-4000-8000-000000000001
B=nqn.2014-08.org.nvmexpress:uuid:bbbbbbbb-0000-4000-8000-000000000002
UUID=3a7c9a52-5f0e-4c1d-9a53-0123456789ab
SOCK=/tmp/varve.sock
RESV=/tmp/reservation
TRTYPE=${TRTYPE:-rdma}
TARGET=10.7.0.1

modprobe -a "nvme-$TRTYPE" dummy
if [ "$TRTYPE" = rdma ]; then
  rxe_up
else
  TARGET=127.0.0.1
  ip link set lo up
fi

# --- the target

rpc() { # METHOD KEY=VALUE...
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

listen() { # METHOD PORT KEY=VALUE...
  rpc "$1" nqn=$NQN "listen_address.trtype=${TRTYPE^^}" listen_address.adrfam=IPv4 listen_address.traddr=$TARGET \
    "listen_address.trsvcid=$2" "${@:3}"
}

set_state() { # PORT STATE
  listen nvmf_subsystem_listener_set_ana_state "$1" "ana_state=$2"
}

target_start() { # OPTIONS...
  "$VARVE_BUILD/bin/varve" --no-huge --no-pci -m '[3]' -s 512 -r $SOCK "$@" >> /tmp/varve.log 2>&1 &
  echo $! > /tmp/varve.pid
  await 120 rpc framework_wait_init
}

after_check() { # STATUS
  [ "$1" = 0 ] || tail -n 30 /tmp/varve.log | sed 's/^/# varve | /'
}

# --- the host

connect() { # PORT HOSTNQN: two I/O queues, reconnects after a second
  nvme connect -t "$TRTYPE" -a $TARGET -s "$1" -n $NQN -i 2 -Q 32 -c 1 -l 900 --hostnqn "$2" --hostid "${2#*uuid:}"
}

controller() { # PORT HOSTNQN: nvme0
  local c address host
  for c in /sys/class/nvme/nvme*; do
    { read -r address < "$c/address" && read -r host < "$c/hostnqn"; } 2> /dev/null || continue
    [[ $address != *trsvcid="$1"* ]] || [ "$host" != "$2" ] || { echo "${c##*/}"; return; }
  done
  return 1
}

path() { # PORT: where the path to namespace 1 is shown
  local c
  c=$(controller "$1" $A) || return
  echo /sys/block/nvme*c"${c#nvme}"n1
}

path_is() { # PORT STATE
  [ "$(cat "$(path "$1")/ana_state")" = "$2" ]
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

disk() { # NSID: /dev/nvme0n1
  local d nsid
  for d in /sys/block/nvme*; do
    [[ ${d##*/} != *c* ]] && read -r nsid 2> /dev/null < "$d/nsid" && [ "$nsid" = "$1" ] && test -b "/dev/${d##*/}" || continue
    echo "/dev/${d##*/}"
    return
  done
  return 1
}

has_no_disk() { # NSID
  ! disk "$1"
}

call() { # METHOD PARAMETERS: one request of many for `rpc -`; a process each would take its time here
  printf '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' "$1" "$2"
}

configure() {
  local address='{"trtype":"'${TRTYPE^^}'","adrfam":"IPv4","traddr":"'$TARGET'","trsvcid"'
  call nvmf_create_transport "{\"trtype\":\"${TRTYPE^^}\"}"
  call bdev_malloc_create "{\"name\":\"M1\",\"num_blocks\":65536,\"block_size\":512,\"uuid\":\"$UUID\"}"
  call bdev_null_create '{"name":"N2","num_blocks":65536,"block_size":512}'
  call nvmf_create_subsystem "{\"nqn\":\"$NQN\",\"ana_reporting\":true,\"allow_any_host\":true,\"max_namespaces\":8}"
  call nvmf_subsystem_add_ns \
    "{\"nqn\":\"$NQN\",\"namespace\":{\"bdev_name\":\"M1\",\"anagrpid\":3,\"ptpl_file\":\"$RESV\"}}"
  call nvmf_subsystem_add_listener "{\"nqn\":\"$NQN\",\"listen_address\":$address:\"4420\"}}"
  call nvmf_subsystem_add_listener \
    "{\"nqn\":\"$NQN\",\"listen_address\":$address:\"4421\"},\"ana_state\":\"non_optimized\"}"
}

test_host_knows_the_state_of_both_paths() {
  target_start
  configure | rpc - | tee /tmp/c
  refused grep error /tmp/c
  connect 4420 $A
  connect 4421 $A
  await 120 path_is 4420 optimized
  await 120 path_is 4421 non-optimized
  await 120 disk 1
}

test_ana_log_is_what_nvme_cli_expects() {
  nvme ana-log "/dev/$(controller 4421 $A)" -o json | tee /tmp/log
  tr -d ' \n' < /tmp/log | grep -q '"grpid":3,"nnsids":1,"chgcnt":1,"state":"non-optimized","NSIDS":\[{"nsid":1}\]'
}

load_start() { # DEVICE
  fio --thread --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --randrepeat=0 --output=/tmp/fio.out \
    --filename="$1" --rw=randwrite --verify_backlog=32 --time_based --runtime=1000 --name=x --bs=4k --iodepth=8 --size=4M \
    > /tmp/fio.err 2>&1 &
  echo $! > /tmp/fio.pid
}

load_stop() { # and was right until now
  kill "$(cat /tmp/fio.pid)"
  wait "$(cat /tmp/fio.pid)" || : # 128: a signal ended it
  cat /tmp/fio.err /tmp/fio.out
  grep -q 'err= 0:' /tmp/fio.out || fail "fio has errors"
  refused grep -E 'verify: bad|verify failed' /tmp/fio.err /tmp/fio.out
}

# The first path goes, the second is taken; the second goes too, and I/O waits until one of them is there again.
test_io_follows_the_states_without_an_error() {
  local n
  load_start "$(disk 1)"
  takes_io 4420
  n=$(ios 4421)
  set_state 4420 inaccessible
  await 120 path_is 4420 inaccessible
  await 120 ios_came 4421 "$n"
  set_state 4421 inaccessible
  await 120 path_is 4421 inaccessible
  n=$(ios 4420)
  set_state 4420 optimized
  await 120 ios_came 4420 "$n"
  set_state 4421 optimized
  await 120 path_is 4421 optimized
  set_state 4420 non_optimized
  await 120 path_is 4420 non-optimized
  takes_io 4421
  load_stop
  kernel_is_silent 'I/O error|Buffer I/O|critical'
}

test_namespace_moves_to_another_group() {
  set_state 4421 optimized
  listen nvmf_subsystem_listener_set_ana_state 4421 ana_state=inaccessible anagrpid=5
  rpc nvmf_subsystem_set_ns_ana_group nqn=$NQN nsid=1 anagrpid=5
  await 120 path_is 4421 inaccessible
  same group "$(cat "$(path 4421)/ana_grpid")" 5
  set_state 4421 optimized
  await 120 path_is 4421 optimized
}

size_is() { # NSID BLOCKS
  [ "$(cat "/sys/block/$(basename "$(disk "$1")")/size")" = "$2" ]
}

test_host_sees_what_it_is_shown() {
  rpc nvmf_subsystem_add_ns nqn=$NQN namespace.bdev_name=N2 namespace.nsid=2 namespace.no_auto_visible=true
  nvme list-ns "/dev/$(controller 4420 $A)" | tee /tmp/l
  same "namespaces in the list" "$(grep -c '' /tmp/l)" 1
  has_no_disk 2
  rpc nvmf_ns_add_host nqn=$NQN nsid=2 host=$A
  await 120 disk 2
  dd if=/dev/zero of="$(disk 2)" bs=4k count=4 oflag=direct status=none
  rpc bdev_null_resize name=N2 new_size=64
  await 120 size_is 2 131072
  rpc nvmf_ns_remove_host nqn=$NQN nsid=2 host=$A
  await 120 has_no_disk 2
  rpc nvmf_subsystem_remove_ns nqn=$NQN nsid=2
}

# --- two hosts: without multipath each controller has a disk of its own

declare -A PORT=([$A]=4420 [$B]=4421) # nvme connect takes the same port twice for a mistake

disk_of() { # HOSTNQN
  local d
  d=/dev/$(controller "${PORT[$1]}" "$1")n1 && test -b "$d" && echo "$d"
}

is_live() { # HOSTNQN
  [ "$(cat "/sys/class/nvme/$(controller "${PORT[$1]}" "$1")/state")" = live ]
}

try_write() { # HOSTNQN
  dd if=/dev/zero of="$(disk_of "$1")" bs=4k count=1 oflag=direct status=none
}

try_read() { # HOSTNQN
  dd if="$(disk_of "$1")" of=/dev/null bs=4k count=1 iflag=direct status=none
}

conflicts() { # COMMAND...: EBADE
  LC_ALL=C "$@" 2> /tmp/e && fail "went through: $*"
  cat /tmp/e
  grep -q 'Invalid exchange' /tmp/e
}

resv_conflicts() { # COMMAND...
  "$@" > /tmp/e 2>&1 && fail "went through: $*"
  cat /tmp/e
  grep -qi 'Reservation Conflict' /tmp/e
}

report() { # HOSTNQN: the report, on one line
  nvme resv-report "$(disk_of "$1")" -e -o json | tr -d ' \n'
}

test_two_hosts_have_two_disks() {
  nvme disconnect -n $NQN
  set_state 4420 optimized
  modprobe -r "nvme-$TRTYPE"
  modprobe -r nvme-fabrics nvme nvme-core 2> /dev/null || modprobe -r nvme-fabrics nvme-core
  modprobe nvme-core multipath=N
  modprobe "nvme-$TRTYPE"
  connect 4420 $A
  connect 4421 $B
  await 120 disk_of $A
  await 120 disk_of $B
  nvme id-ns "$(disk_of $A)" | grep -qx 'rescap  : 0xff'
}

test_reservation_keeps_the_other_host_from_writing() {
  nvme resv-register "$(disk_of $A)" -k 0xa1 -r 0
  resv_conflicts nvme resv-acquire "$(disk_of $B)" -c 0xb1 -t 1 -a 0
  nvme resv-acquire "$(disk_of $A)" -c 0xa1 -t 1 -a 0
  try_write $A
  try_read $B
  conflicts try_write $B
  report $B | tee /tmp/r
  grep -q '"rtype":1,"regctl":1,"ptpls":0' /tmp/r
  grep -q '"rcsts":1,"rkey":161' /tmp/r
  nvme resv-release "$(disk_of $A)" -c 0xa1 -t 1 -a 0
  try_write $B
}

test_registrants_share_and_preempt() {
  nvme resv-register "$(disk_of $B)" -k 0xb1 -r 0
  nvme resv-acquire "$(disk_of $A)" -c 0xa1 -t 4 -a 0
  try_write $A
  try_write $B
  nvme resv-acquire "$(disk_of $B)" -c 0xb1 -p 0xa1 -t 2 -a 2
  conflicts try_read $A
  conflicts try_write $A
  try_write $B
  nvme resv-notif-log "$(disk_of $A)" | tee /tmp/n
  grep -q 'Type.*: 1 ' /tmp/n # registration preempted; this nvme-cli's name for it is wrong
  nvme resv-release "$(disk_of $B)" -c 0xb1 -t 2 -a 1
  report $B | grep -q '"rtype":0,"regctl":0'
  try_write $A
}

test_reservation_outlives_the_target() {
  nvme resv-register "$(disk_of $A)" -k 0xa1 -r 0 -p 3
  nvme resv-acquire "$(disk_of $A)" -c 0xa1 -t 1 -a 0
  rpc save_config /tmp/saved.json
  kill -9 "$(cat /tmp/varve.pid)"
  target_start -c /tmp/saved.json
  await 120 is_live $A
  await 120 is_live $B
  conflicts try_write $B
  try_write $A
  report $B | grep -q '"rtype":1,"regctl":1,"ptpls":1'
  nvme resv-release "$(disk_of $A)" -c 0xa1 -t 1 -a 1
  try_write $B
}

test_nothing_is_left_at_the_end() {
  nvme disconnect -n $NQN
  kill "$(cat /tmp/varve.pid)"
  await 120 eval '! kill -0 "$(cat /tmp/varve.pid)"'
  refused grep -E '\*ERROR\*|Sanitizer' /tmp/varve.log
}

run_tests
