#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab bpf perf
# limit: 900
# Debian's bpftrace with our scripts, and perf with our probes as SDT events, on a daemon that serves I/O over soft RoCE.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
# bpftrace takes an emulated CPU half a minute to start: without arguments, those scripts that a kernel matters most to (`lab_probes.sh test`: all)
[ -n "${VM:-}" ] || [ $# -gt 0 ] || PATTERNS=(iops nvmf nvme perf worse)
in_guest -n -c 4 -p 0 -t 840

NQN=nqn.2026-11.io.varve:lab
SOCK=/tmp/varve.sock
WRAPPER=$VARVE_BUILD/bin/bpftrace.sh

rpc() {
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

rxe_up
"$VARVE_BUILD/bin/varve" --no-huge --no-pci -m '[2]' -s 256 -r $SOCK > /tmp/varve.log 2>&1 &
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

controllers() { # nobody listens there
  rpc bdev_nvme_attach_controller name=X trtype=RDMA traddr=10.7.0.1 trsvcid=9 subnqn=$NQN
}

messages() {
  rpc thread_get_stats
}

# PATTERN WORK SCRIPT [ARGUMENT...]: the script prints the pattern while the work is done again and again, or when it is ended
shows() {
  local pattern=$1 work=$2 pid deadline=$((SECONDS + 150))
  shift 2
  BPF_OUTFILE=/tmp/out "$WRAPPER" $VARVE "$@" 2> /tmp/err &
  pid=$!
  await 60 test -e /tmp/out
  await 120 grep -q Attaching /tmp/out
  until grep -qE "$pattern" /tmp/out; do
    "$work" > /tmp/work 2>&1 || :
    kill -0 $pid || { cat /tmp/err; fail "bpftrace has ended"; }
    if [ "$1" = latency.bt ] && grep -q 'IOPS' /tmp/work; then # it prints at its end; "Attaching" comes somewhat before it is
      kill -INT $pid
      wait $pid || :
      grep -qE "$pattern" /tmp/out && break
      BPF_OUTFILE=/tmp/out "$WRAPPER" $VARVE "$@" 2> /tmp/err &
      pid=$!
    fi
    [ $SECONDS -lt $deadline ] || { cat /tmp/out /tmp/err; fail "no '$pattern'"; }
  done
  kill -INT $pid 2> /dev/null || :
  wait $pid || :
  head -n 20 /tmp/out
  rm /tmp/out
}

test_iops() { shows '^@submits\[Null0, READ\]: [1-9]' io iops.bt; }
test_latency() { shows '^@latency_us\[Null0, READ\]' io latency.bt; }
test_slow() { shows 'Null0 READ at block [0-9]+, 8 blocks: [0-9]+ us, status 0' io slow.bt 1; }
test_rpc() { shows 'rpc_get_methods ends with 0 after' calls rpc.bt; }
test_send_msg() { shows '^@messages\[[0-9]+, [0-9]+' messages send_msg.bt; }
test_nvmf() { shows 'change state from .* to .* done' subsystems nvmf.bt; }
test_nvme() { shows '10.7.0.1.* from DISCONNECTED to CONNECT' controllers nvme.bt; }

test_perf_sees_probes_as_sdt_events() {
  export HOME=/tmp # its cache of probes
  perf buildid-cache --add "$VARVE_BUILD/bin/varve"
  perf list sdt > /tmp/list
  grep -q 'sdt_varve:rpc_begin' /tmp/list
  grep -q 'sdt_varve:bdev_io_submit' /tmp/list
  perf probe -q sdt_varve:rpc_begin # one at a time: it makes but the first of several
  perf probe -q sdt_varve:rpc_end
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
