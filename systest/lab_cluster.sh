#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab etcd
# limit: 900
# The kernel's NVMe host with native multipath over TCP, two gateways with the same file, and etcd, which decides which of them owns the group of
# the namespace: the group is moved, gateways are restarted one after the other, killed and stopped, etcd goes and comes back. A verifying
# writer on the kernel's block device knows every acknowledged write.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 840 -a nvme_core.multipath=Y

NQN=nqn.2026-11.io.varve:cluster
UUID=3a7c9a52-5f0e-4c1d-9a53-0123456789ac
CLUSTER=$(dirname "$(dirname "$SELF")")/tools/cluster/varve-cluster
ETCD=http://127.0.0.1:2379
A=4420
B=4421
declare -A LETTER=([$A]=a [$B]=b) CORE=([$A]=2 [$B]=3) FIRST=([$A]=1 [$B]=1001)

modprobe nvme-tcp
ip link set lo up
truncate -s 4M /tmp/disk

# --- the gateways: what belongs to one is named by its port

rpc() { # PORT METHOD KEY=VALUE...
  "$VARVE_BUILD/bin/varve-rpc" -s "/tmp/varve$1.sock" "${@:2}"
}

call() { # METHOD PARAMETERS: a request for rpcs
  printf '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' "$1" "$2"
}

configure() { # PORT
  call nvmf_create_transport '{"trtype":"TCP","masked_oncs":["reservs"]}'
  call bdev_uring_create "{\"name\":\"D\",\"filename\":\"/tmp/disk\",\"block_size\":512,\"standby\":true,\"uuid\":\"$UUID\"}"
  call nvmf_create_subsystem "{\"nqn\":\"$NQN\",\"serial_number\":\"CLUSTER\",\"ana_reporting\":true,\"allow_any_host\":true,\"max_namespaces\":8,\
\"min_cntlid\":${FIRST[$1]},\"max_cntlid\":$((FIRST[$1] + 999))}"
  call nvmf_subsystem_add_ns "{\"nqn\":\"$NQN\",\"namespace\":{\"bdev_name\":\"D\",\"nsid\":1,\"uuid\":\"$UUID\",\"anagrpid\":1}}"
  call nvmf_subsystem_add_listener "{\"nqn\":\"$NQN\",\"ana_state\":\"inaccessible\",\
\"listen_address\":{\"trtype\":\"TCP\",\"adrfam\":\"IPv4\",\"traddr\":\"127.0.0.1\",\"trsvcid\":\"$1\"}}"
}

agent_start() { # PORT
  python3 "$CLUSTER" -c "/tmp/cluster$1.json" serve >> "/tmp/agent$1.log" 2>&1 &
  echo $! > "/tmp/agent$1.pid"
}

varve_start() { # PORT
  local answers
  "$VARVE_BUILD/bin/varve" --no-huge --no-pci -m "[${CORE[$1]}]" -s 192 -r "/tmp/varve$1.sock" >> "/tmp/varve$1.log" 2>&1 &
  echo $! > "/tmp/varve$1.pid"
  await 120 rpc "$1" framework_wait_init
  answers=$(configure "$1" | rpc "$1" -)
  [[ $answers != *'"error"'* ]] || fail "a request was refused: $(grep -m 1 '"error"' <<< "$answers")"
}

gateway_start() { # PORT
  varve_start "$1"
  printf '{"cluster":"lab","gateway":"%s","nqn":"%s","rpc_socket":"/tmp/varve%s.sock","lease_s":12,"etcd":{"endpoints":["%s"]}}\n' \
    "${LETTER[$1]}" $NQN "$1" $ETCD > "/tmp/cluster$1.json"
  agent_start "$1"
}

etcd_start() {
  etcd --name a --data-dir /tmp/etcd --listen-client-urls $ETCD --advertise-client-urls $ETCD --listen-peer-urls http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster a=http://127.0.0.1:2380 >> /tmp/etcd.log 2>&1 &
  echo $! > /tmp/etcd.pid
}

send() { # SIGNAL NAME...: to programs, such as varve4420
  local name
  for name in "${@:2}"; do
    kill "-$1" "$(cat "/tmp/$name.pid")"
  done
}

is_gone() { # NAME
  ! kill -0 "$(cat "/tmp/$1.pid")" 2> /dev/null
}

cluster() { # WORD...
  python3 "$CLUSTER" -c /tmp/cluster$A.json "$@"
}

owns() { # PORT
  rpc "$1" bdev_get_owners | grep -q '"state": "owner"'
}

owns_nothing() { # PORT: it says so
  local answer
  answer=$(rpc "$1" bdev_get_owners) && [[ $answer != *'"state": "owner"'* ]]
}

other() { # PORT
  echo $((A + B - $1))
}

owner() {
  if owns $A; then echo $A; else echo $B; fi
}

after_check() { # STATUS
  [ "$1" = 0 ] || tail -n 15 /tmp/agent*.log /tmp/varve$A.log /tmp/varve$B.log /tmp/etcd.log | sed 's/^/# | /'
}

# --- the host

connect() { # PORT: an I/O queue, reconnects after a second
  nvme connect -t tcp -a 127.0.0.1 -s "$1" -n $NQN -i 1 -Q 32 -c 1 -l 900 -k 5
}

controller() { # PORT: nvme0
  local c address
  for c in /sys/class/nvme/nvme*; do
    read -r address < "$c/address" 2> /dev/null || continue
    [[ $address != *trsvcid="$1"* ]] || { echo "${c##*/}"; return; }
  done
  return 1
}

path_is() { # PORT STATE: of its access, and of the controller
  local c
  c=$(controller "$1") && [ "$(cat /sys/block/nvme*c"${c#nvme}"n1/ana_state)" = "$2" ] && [ "$(cat "/sys/class/nvme/$c/state")" = live ]
}

ios() { # PORT: how many went through a path
  local c stat
  c=$(controller "$1") && read -ra stat 2> /dev/null < "$(echo /sys/block/nvme*c"${c#nvme}"n1/stat)" && echo $((stat[0] + stat[4]))
}

ios_came() { # PORT SINCE
  [ "$(ios "$1")" -gt $(($2 + 50)) ]
}

disk() { # the multipath device
  local d
  for d in /sys/block/nvme*n1; do
    [[ ${d##*/} == *c* ]] || ! test -b "/dev/${d##*/}" || { echo "/dev/${d##*/}"; return; }
  done
  return 1
}

# The group is there, the host knows it, and its I/O comes.
serves() { # PORT
  local since
  await 120 owns "$1" || fail "$1 does not own the group"
  await 60 path_is "$1" optimized || fail "the host does not know that $1 has the group"
  since=$(ios "$1") || fail "there is no path through $1"
  await 60 ios_came "$1" "$since" || fail "no I/O through $1"
  kill -0 "$(cat /tmp/writer.pid)" || { cat /tmp/writer.err; fail "the writer has ended"; }
}

# --- the checks

test_one_of_two_gateways_has_the_group() {
  etcd_start
  gateway_start $A
  gateway_start $B
  await 120 eval "owns $A || owns $B"
  connect $A
  connect $B
  await 120 path_is "$(owner)" optimized
  await 120 path_is "$(other "$(owner)")" inaccessible
  await 120 disk
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[1]' -s 128 -b "file:$(disk)" -w randrw --verify --region 256k -q 8 --rate 200 -t 36000 -j --quiet \
    --ledger /tmp/ledger > /tmp/writer.json 2> /tmp/writer.err &
  echo $! > /tmp/writer.pid
  serves "$(owner)"
}

test_group_is_moved_there_and_back() {
  local from to
  from=$(owner) to=$(other "$(owner)")
  cluster move 1 "${LETTER[$to]}"
  serves "$to"
  await 60 path_is "$from" inaccessible
  cluster move 1 "${LETTER[$from]}"
  serves "$from"
  cluster move 1 any
}

test_gateways_are_restarted_one_after_the_other() {
  local port
  for port in $A $B; do
    send TERM agent$port
    serves "$(other $port)"
    await 60 is_gone agent$port
    send TERM varve$port
    await 60 is_gone varve$port
    gateway_start $port
    await 120 path_is $port inaccessible
  done
}

test_gateway_is_killed() {
  local port
  port=$(owner)
  send KILL "varve$port" "agent$port"
  serves "$(other "$port")"
  gateway_start "$port"
  await 120 path_is "$port" inaccessible
}

# Its daemon stops by itself when its lease ends.
test_agent_is_stopped() {
  local port
  port=$(owner)
  send STOP "agent$port"
  serves "$(other "$port")"
  owns_nothing "$port"
  send CONT "agent$port"
}

nobody_owns() {
  owns_nothing $A && owns_nothing $B
}

test_no_etcd_for_longer_than_a_lease() {
  send KILL etcd
  await 120 nobody_owns
  etcd_start
  await 120 eval "owns $A || owns $B"
  serves "$(owner)"
}

value() { # FILE NAME
  sed -n "s/.*\"$2\": \([0-9]*\),\?$/\1/p" "$1" | head -n 1
}

right_blocks() { # FILE: of varve-perf's results
  same errors "$(value "$1" errors)" 0
  same miscompares "$(value "$1" miscompares)" 0
}

test_nothing_was_lost_and_nothing_is_stale() {
  local status=0 port
  send TERM writer
  await 60 is_gone writer
  cat /tmp/writer.err /tmp/writer.json
  right_blocks /tmp/writer.json
  nvme disconnect -n $NQN
  for port in $A $B; do
    send TERM agent$port
    await 60 is_gone agent$port
    send TERM varve$port
    await 60 is_gone varve$port
  done
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[1]' -s 128 -b file:/tmp/disk -j --check-ledger /tmp/ledger > /tmp/check.json || status=$?
  right_blocks /tmp/check.json
  same status $status 0
  refused grep -E 'Sanitizer|SIGSEGV|Traceback' /tmp/varve$A.log /tmp/varve$B.log /tmp/agent$A.log /tmp/agent$B.log
}

run_tests
