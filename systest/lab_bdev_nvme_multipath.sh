#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 600
# A namespace of the kernel's target behind two of its ports, over soft RoCE, is one bdev with two paths, exported again by varve. Under verified
# I/O, active-passive and active-active: access states are changed on the target's side, a port is closed and opened again.
# lab_bdev_nvme_multipath_tcp.sh does part of it over TCP.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 560 -a nvme_core.multipath=N # of the host; the paths here are varve's

BACK=nqn.2026-11.io.varve:kernel
NVMET=/sys/kernel/config/nvmet
[ "${TRTYPE:-rdma}" = rdma ] || TARGET=127.0.0.1
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

modprobe -a "nvme-$TRTYPE" dummy
modprobe brd rd_nr=1 rd_size=16384
if [ "$TRTYPE" = rdma ]; then
  rxe_up
else
  ip link set lo up
fi
nvmet_up "$TRTYPE" "$TARGET" 4430 $BACK /dev/ram0
nvmet_port "$TRTYPE" "$TARGET" 4431 $BACK

# Over TCP the kernel's target tells of each command that it refuses because of an access state.
NVMET_COMPLAINS='nvmet.*(fail|error|unhandled|unsupp)'
[ "$TRTYPE" = rdma ] || NVMET_COMPLAINS='nvmet.*(fail(ed [^c]|[^e])|error|unhandled|unsupp)'

set_state() { # PORT STATE: of the namespace's group
  echo "$2" > "$NVMET/ports/$1/ana_groups/1/ana_state"
}

close_port() {
  rm "$NVMET/ports/$1/subsystems/$BACK"
}

open_port() {
  ln -s $NVMET/subsystems/$BACK "$NVMET/ports/$1/subsystems/"
}

# --- what varve says of its paths

paths() { # a line each: PORT, whether it is taken now, state
  rpc bdev_nvme_get_io_paths name=Kn1 | sed -n 's/.*"current": \(true\|false\),\?$/\1/p; s/.*"ana_state": "\(.*\)",\?$/\1/p
    s/.*"trsvcid": "\(.*\)",\?$/\1/p' | paste -d ' ' - - - | awk '{ print $3, $1, $2 }' | sort
}

paths_are() { # LINES
  paths > /tmp/paths
  [ "$(cat /tmp/paths)" = "$1" ]
}

await_paths() { # LINE...
  await 60 paths_are "$(printf '%s\n' "$@")" || { rpc bdev_nvme_get_io_paths name=Kn1; fail "paths are: $(cat /tmp/paths)"; }
}

told() { # TYPE PORT: how often
  rpc notify_get_notifications all=true | grep -A 1 "\"type\": \"$1\"" | grep -c "K ${TRTYPE^^} $TARGET $2\"" || :
}

is_told() { # TYPE PORT NUMBER
  [ "$(told "$1" "$2")" = "$3" ]
}

completions() { # how many I/O commands each path's queue pair has ended, on a line
  rpc bdev_nvme_get_transport_statistics | sed -n 's/.*"completions": \([0-9]*\),\?$/\1/p' | paste -sd ' '
}

attach() { # PORT
  rpc bdev_nvme_attach_controller name=K "trtype=${TRTYPE^^}" traddr="$TARGET" adrfam=IPv4 trsvcid="$1" subnqn=$BACK \
    fabrics_connect_timeout_us=60000000 ctrlr_loss_timeout_sec=-1 reconnect_delay_sec=1
}

test_two_ports_are_two_paths_of_one_bdev() {
  target_start
  attach 4430 | grep -q Kn1
  attach 4431 | grep -q Kn1
  same bdevs "$(rpc bdev_get_bdevs | grep -c '"name": "Kn[0-9]*"')" 1
  {
    if [ "$TRTYPE" = rdma ]; then
      call nvmf_create_transport '{"trtype":"RDMA","max_srq_depth":128}'
    else
      call nvmf_create_transport '{"trtype":"TCP"}'
    fi
    call_subsystem $NQN
    call_add_ns $NQN 1 Kn1
  } | rpcs
  connect $NQN
  load_start "$(await_disk $NQN 1)"
  await_paths '4430 true optimized' '4431 false optimized'
  rpc bdev_nvme_get_transport_statistics
}

test_access_states_of_the_kernels_target_move_io() {
  set_state 4430 non-optimized
  await_paths '4430 false non_optimized' '4431 true optimized'
  load_goes_on
  set_state 4431 inaccessible
  await_paths '4430 true non_optimized' '4431 false inaccessible'
  load_goes_on
  set_state 4431 optimized
  await_paths '4430 false non_optimized' '4431 true optimized'
  set_state 4430 optimized
  await_paths '4430 true optimized' '4431 false optimized'
  load_goes_on
  kernel_is_silent "$NVMET_COMPLAINS"
}

test_io_waits_until_a_path_is_accessible_again() {
  set_state 4430 inaccessible
  set_state 4431 inaccessible
  await_paths '4430 false inaccessible' '4431 false inaccessible'
  set_state 4431 optimized
  await_paths '4430 false inaccessible' '4431 true optimized'
  load_goes_on
  set_state 4430 optimized
  await_paths '4430 true optimized' '4431 false optimized'
  load_goes_on
}

# A port that is closed ends its connections: I/O takes the other path.
port_goes_and_comes() { # PORT TIMES, this one included
  close_port "$1"
  await 60 is_told bdev_nvme_path_lost "$1" "$2"
  load_goes_on
  open_port "$1"
  await 60 is_told bdev_nvme_path_regained "$1" "$2"
}

test_closed_port_is_survived_and_io_comes_back() {
  port_goes_and_comes 4430 1
  await_paths '4430 true optimized' '4431 false optimized'
  load_goes_on
  target_says "$TARGET $BACK: .*(lost|nobody listens)"
  target_says 'K: ready again'
}

test_active_active_takes_both() {
  local before after
  rpc bdev_nvme_set_multipath_policy name=Kn1 policy=active_active
  await_paths '4430 true optimized' '4431 true optimized'
  read -ra before <<< "$(completions)"
  load_goes_on
  read -ra after <<< "$(completions)"
  same paths "${#after[@]}" 2
  [ "${after[0]}" -gt $((before[0] + 50)) ]
  [ "${after[1]}" -gt $((before[1] + 50)) ]
  set_state 4431 inaccessible
  await_paths '4430 true optimized' '4431 false inaccessible'
  load_goes_on
  set_state 4431 optimized
  await_paths '4430 true optimized' '4431 true optimized'
  port_goes_and_comes 4431 1
  await_paths '4430 true optimized' '4431 true optimized'
  load_goes_on
}

test_both_ports_closed_are_waited_for() {
  close_port 4430
  close_port 4431
  await 60 is_told bdev_nvme_path_lost 4430 2
  await 60 is_told bdev_nvme_path_lost 4431 2
  open_port 4431
  await 60 is_told bdev_nvme_path_regained 4431 2
  load_goes_on
  open_port 4430
  await_paths '4430 true optimized' '4431 true optimized'
  load_goes_on
  load_stop
  disconnect $NQN
}

no_connections() {
  if [ "$TRTYPE" = tcp ]; then
    [ "$(ss -Htn state established | grep -cE ':(4420|4430|4431)')" = 0 ]
    return
  fi
  [ "$(rdma resource show qp link rxe0 | grep -c 'type RC')" = 0 ]
}

test_nothing_is_left_at_the_end() {
  target_kill TERM
  same "varve's exit status" "$(cat /tmp/varve.status)" 0
  await 20 no_connections
}

run_tests
