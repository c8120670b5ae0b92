#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab bpf perf
# limit: 1700
# Debian's bpftrace with each of our scripts, and perf with our probes as SDT events, on a daemon that serves I/O over soft RoCE and has
# an emulated drive come and go.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -i -c 4 -p 0 -t 1600

NQN=nqn.2026-11.io.varve:lab
SOCK=/tmp/varve.sock
WRAPPER=$VARVE_BUILD/bin/bpftrace.sh

rpc() {
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

read -r DRIVE < <(nvmes)
"$TREE/scripts/setup.sh" bind "$DRIVE" > /dev/null
rxe_up
"$VARVE_BUILD/bin/varve" --no-huge -m '[2]' -s 256 -r $SOCK > /tmp/varve.log 2>&1 &
VARVE=$!
await 60 rpc framework_wait_init
rpc bdev_null_create name=Null0 num_blocks=8192 block_size=512 > /dev/null
rpc nvmf_create_transport trtype=RDMA max_srq_depth=128 > /dev/null
rpc nvmf_create_subsystem nqn=$NQN allow_any_host=true > /dev/null
rpc nvmf_subsystem_add_ns nqn=$NQN namespace.bdev_name=Null0 > /dev/null
rpc nvmf_subsystem_add_listener nqn=$NQN listen_address.trtype=RDMA listen_address.adrfam=IPv4 listen_address.traddr=10.7.0.1 \
  listen_address.trsvcid=4420 > /dev/null

io() {
  "$VARVE_BUILD/bin/varve-perf" --no-huge -m '[3]' -s 128 --quiet -r "trtype:RDMA traddr:10.7.0.1 trsvcid:4420 subnqn:$NQN" \
    --ios 200 -q 2 -w randread
}

calls() {
  rpc rpc_get_methods
}

subsystems() {
  rpc nvmf_create_subsystem nqn=$NQN.more
  rpc nvmf_delete_subsystem nqn=$NQN.more
}

controllers() {
  rpc bdev_nvme_attach_controller name=X trtype=PCIe traddr="$DRIVE"
  rpc bdev_nvme_detach_controller name=X
}

messages() {
  rpc thread_get_stats
}

# bpftrace takes an emulated CPU half a minute to start, so that all scripts start together, and those that are chosen by a pattern
# when their turn comes.
start() { # SCRIPT [ARGUMENT...]
  rm -f "/tmp/out.$1"
  BPF_OUTFILE=/tmp/out.$1 "$WRAPPER" $VARVE "$@" > "/tmp/err.$1" 2>&1 &
  echo $! > "/tmp/pid.$1"
}

runs() { # SCRIPT
  kill -0 "$(cat "/tmp/pid.$1")"
}

has_ended() { # SCRIPT
  ! runs "$1"
}

is_attaching() { # SCRIPT
  grep -q Attaching "/tmp/out.$1" || ! runs "$1"
}

# By Ctrl-C, again until it is heard: bpftrace 0.17 misses one that comes while it handles an event, unless another event follows.
ends() { # SCRIPT
  local pid
  pid=$(cat "/tmp/pid.$1")
  for _ in {1..20}; do
    kill -INT "$pid" 2> /dev/null || : # it may have ended by now
    ! await 15 has_ended "$1" || return 0
  done
  grep -E 'State|Sig' "/proc/$pid/status"
  cat "/proc/$pid/stack"
  fail "$1 goes on"
}

# PATTERN WORK SCRIPT [ARGUMENT...]: the script prints the pattern while the work is done again and again
shows() {
  local pattern=$1 work=$2 script=$3 deadline=$((SECONDS + 240))
  shift 2
  [ -e "/tmp/pid.$script" ] || start "$@"
  await 240 is_attaching "$script"
  until grep -qE "$pattern" "/tmp/out.$script"; do
    runs "$script" || { cat "/tmp/err.$script"; fail "bpftrace has ended"; }
    [ $SECONDS -lt $deadline ] || { cat "/tmp/out.$script" "/tmp/err.$script"; fail "no '$pattern'"; }
    "$work" > /tmp/work 2>&1 || :
  done
  ends "$script"
  head -n 20 "/tmp/out.$script"
}

# The same, but it prints when it ends. "Attaching" comes somewhat before it is attached, so that it may take a second time.
shows_at_its_end() {
  local pattern=$1 work=$2 script=$3 deadline=$((SECONDS + 240))
  shift 2
  [ -e "/tmp/pid.$script" ] || start "$@"
  while :; do
    await 240 is_attaching "$script"
    "$work" > /tmp/work 2>&1
    ends "$script"
    ! grep -qE "$pattern" "/tmp/out.$script" || break
    [ $SECONDS -lt $deadline ] || { cat "/tmp/out.$script" "/tmp/err.$script"; fail "no '$pattern'"; }
    start "$@"
  done
  head -n 20 "/tmp/out.$script"
}

test_scripts_start_together() {
  local s
  start iops.bt
  start nvmf.bt
  start nvme.bt
  start rpc.bt
  start send_msg.bt
  start slow.bt 1
  start latency.bt
  start states.bt
  for s in iops nvmf nvme rpc send_msg slow latency states; do await 600 is_attaching $s.bt; done
}

test_iops() { shows '^@submits\[Null0, READ\]: [1-9]' io iops.bt; }
test_nvmf() { shows 'change state from .* to .* done' subsystems nvmf.bt; }
test_nvme() { shows "$DRIVE .*from READ NAMESPACES to READY" controllers nvme.bt; }
test_rpc() { shows 'rpc_get_methods ends with 0 after' calls rpc.bt; }
test_send_msg() { shows '^@messages\[[0-9]+, [0-9]+' messages send_msg.bt; }
test_slow() { shows 'Null0 READ at block [0-9]+, 8 blocks: [0-9]+ us, status 0' io slow.bt 1; }
test_latency() { shows_at_its_end '^@latency_us\[Null0, READ\]' io latency.bt; }
test_states() { shows_at_its_end '^@state_us\[EXECUTING\]' io states.bt; }

test_perf_sees_probes_as_sdt_events() {
  export HOME=/tmp # its cache of probes
  echo 2 > /proc/sys/kernel/kptr_restrict # or perf reads all of the kernel's symbols each time, half a minute of an emulated CPU
  perf buildid-cache --add "$VARVE_BUILD/bin/varve"
  perf list sdt > /tmp/list
  grep -q 'sdt_varve:rpc_begin' /tmp/list
  grep -q 'sdt_varve:bdev_io_submit' /tmp/list
  perf probe -q -x "$VARVE_BUILD/bin/varve" sdt_varve:rpc_begin # one at a time: it makes but the first of several
  perf probe -q -x "$VARVE_BUILD/bin/varve" sdt_varve:rpc_end
  perf record -q -o /tmp/perf.data -p $VARVE -e sdt_varve:rpc_begin -e sdt_varve:rpc_end -- \
    "$VARVE_BUILD/bin/varve-rpc" -s $SOCK rpc_get_methods > /dev/null
  perf script -i /tmp/perf.data > /tmp/script
  head -n 20 /tmp/script
  grep -q 'sdt_varve:rpc_begin' /tmp/script
  grep -q 'sdt_varve:rpc_end' /tmp/script
  perf probe -q -d 'sdt_varve:*'
}

test_daemon_is_none_the_worse() {
  io > /tmp/work
  kill $VARVE
  await 60 refused kill -0 $VARVE
  refused grep -E 'ERROR|crashed' /tmp/varve.log
}

run_tests
