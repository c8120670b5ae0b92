#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# beside
# Debian's own RDMA programs, unmodified, over softverbs: client and server as two processes, by polling and by events, as
# this user and (if this is root) as an ordinary one, and four pairs at once. With data validation where a program has it.
# `softverbs_programs.sh PATTERN` runs what matches.
set -u
top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
build=${VARVE_BUILD:-$top/build}
pattern=${1:-}
failed=0

if [ ! -e "$build/softverbs/libsoftverbs.so" ]; then
  echo "SKIP softverbs_programs: $build/softverbs/libsoftverbs.so is not built"
  exit 0
fi
# The ordinary user may not be allowed into the build folder.
work=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/softverbs"
cp "$build/bin/softverbs" "$work/bin/"
cp "$build/softverbs/libsoftverbs.so" "$work/softverbs/"
chmod -R a+rX "$work"

users=(own)
[ "$(id -u)" != 0 ] || users+=(nobody)

as() { # USER COMMAND...
  local user=$1
  shift
  if [ "$user" = own ]; then
    exec "$work/bin/softverbs" "$@"
  else
    cd / && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$work/bin/softverbs" "$@"
  fi
}

# A TCP or softverbs listener on the port: each program has one of the two when it is ready for its client.
listening() {
  local hex
  hex=$(printf '%04X' "$1")
  grep -qE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 || grep -qE "@softverbs/.*/$1$" /proc/net/unix
}

await_listening() { # PORT PID
  local end=$((SECONDS + 20))
  until listening "$1"; do
    kill -0 "$2" 2> /dev/null && [ $SECONDS -lt $end ] || return 1
    read -r -t 0.02 <> <(:) || :
  done
}

# Processes that keep their name, so that two runs beside each other do not meet: ports from the process id, which the other tests do not use
# (nvmf_lib.py), and which no connection is given (net.ipv4.ip_local_port_range).
next_port=$((13000 + $$ % 150 * 100))

# LOG USER PORT SERVER... -- CLIENT...: 0 if both end well. In the commands PORT stands for the port.
run_pair() {
  local log=$1 user=$2 port=$3 server=() client=() s c pid
  shift 3
  while [ "$1" != -- ]; do server+=("${1/PORT/$port}"); shift; done
  shift
  for c; do client+=("${c/PORT/$port}"); done
  (as "$user" timeout 60 "${server[@]}") > "$log.server" 2>&1 < /dev/null &
  pid=$!
  if ! await_listening "$port" $pid; then
    kill $pid 2> /dev/null
    wait $pid
    echo "the server does not listen on $port" > "$log.client"
    return 1
  fi
  (as "$user" timeout 60 "${client[@]}") > "$log.client" 2>&1 < /dev/null
  c=$?
  wait $pid
  s=$?
  [ $s = 0 ] && [ $c = 0 ] || { echo "server: status $s, client: status $c" >> "$log.client"; return 1; }
}

report() { # NAME STATUS LOG
  if [ "$2" = 0 ]; then
    echo "PASS softverbs_programs.$1"
  else
    failed=1
    echo "FAIL softverbs_programs.$1: $(cat "$3.client" "$3.server" 2> /dev/null | head -c 600 | tr '\n' '|')"
  fi
}

pair() { # NAME SERVER... -- CLIENT...
  local name=$1 user log
  shift
  for user in "${users[@]}"; do
    [[ $name.$user == *$pattern* ]] || continue
    log=$work/$name.$user
    next_port=$((next_port + 1))
    run_pair "$log" "$user" $next_port "$@"
    report "$name.$user" $? "$log"
  done
}

both() { # NAME COMMAND...: the client is the server's command line and the address
  local name=$1
  shift
  pair "$name" "$@" -- "$@" 127.0.0.1
}

four_at_once() { # NAME SERVER... -- CLIENT...
  local name=four_$1 i pids=() status=0 log
  shift
  [[ $name == *$pattern* ]] || return
  log=$work/$name
  for i in 1 2 3 4; do
    next_port=$((next_port + 1))
    run_pair "$log.$i" own $next_port "$@" &
    pids+=($!)
  done
  for i in 0 1 2 3; do
    wait "${pids[i]}" || { status=1; cp "$log.$((i + 1)).client" "$log.client"; }
  done
  report "$name" $status "$log"
}

# --- the device says what it is
for user in "${users[@]}"; do
  [[ devinfo.$user == *$pattern* ]] || continue
  (as "$user" ibv_devinfo -v) > "$work/devinfo.client" 2>&1 && grep -q '^hca_id:.*softverbs' "$work/devinfo.client"
  report "devinfo.$user" $? "$work/devinfo"
done

# --- libibverbs' examples: by polling and by events (-e), every byte validated (-c)
both rc_pingpong ibv_rc_pingpong -g 0 -p PORT -c
both rc_pingpong_events ibv_rc_pingpong -g 0 -p PORT -c -e
both rc_pingpong_64k ibv_rc_pingpong -g 0 -p PORT -c -s 65536 -n 200
both rc_pingpong_new_send ibv_rc_pingpong -g 0 -p PORT -c -N
both srq_pingpong ibv_srq_pingpong -g 0 -p PORT -c
both srq_pingpong_events ibv_srq_pingpong -g 0 -p PORT -c -e

# --- librdmacm's: rping validates (-V) what it reads and writes
pair rping rping -s -a 127.0.0.1 -p PORT -V -C 200 -- rping -c -a 127.0.0.1 -p PORT -V -C 200
pair rping_60k rping -s -a 127.0.0.1 -p PORT -V -S 60000 -C 20 -- rping -c -a 127.0.0.1 -p PORT -V -S 60000 -C 20
pair rping_any_address rping -s -p PORT -V -C 20 -- rping -c -a 127.0.0.1 -p PORT -V -C 20
pair ucmatose ucmatose -p PORT -c 10 -C 20 -- ucmatose -p PORT -c 10 -C 20 -s 127.0.0.1
pair rdma_client rdma_server -p PORT -- rdma_client -p PORT -s 127.0.0.1

# --- perftest: every operation over its own TCP exchange, and over rdma_cm (-R)
for op in send read write; do
  both ib_${op}_bw ib_${op}_bw -F -p PORT -n 1000
  both ib_${op}_lat ib_${op}_lat -F -p PORT -n 1000
  both ib_${op}_bw_rdma_cm ib_${op}_bw -F -p PORT -n 1000 -R
  both ib_${op}_lat_rdma_cm ib_${op}_lat -F -p PORT -n 1000 -R
done
both ib_send_bw_events ib_send_bw -F -p PORT -n 1000 -e
both ib_send_lat_events ib_send_lat -F -p PORT -n 1000 -e
both ib_read_bw_events ib_read_bw -F -p PORT -n 1000 -e
both ib_send_bw_both_ways ib_send_bw -F -p PORT -n 1000 -b
both ib_write_bw_both_ways ib_write_bw -F -p PORT -n 1000 -b
both ib_send_bw_srq ib_send_bw -F -p PORT -n 1000 --use-srq -q 2
both ib_write_bw_four_queue_pairs ib_write_bw -F -p PORT -n 1000 -q 4
both ib_send_bw_all_sizes ib_send_bw -F -p PORT -n 20 -a
both ib_write_lat_inline ib_write_lat -F -p PORT -n 1000 -I 64
both ib_atomic_lat ib_atomic_lat -F -p PORT -n 500
both ib_atomic_bw ib_atomic_bw -F -p PORT -n 500

# --- four pairs at once
four_at_once rc_pingpong ibv_rc_pingpong -g 0 -p PORT -c -e -- ibv_rc_pingpong -g 0 -p PORT -c -e 127.0.0.1
four_at_once rping rping -s -a 127.0.0.1 -p PORT -V -C 100 -- rping -c -a 127.0.0.1 -p PORT -V -C 100
four_at_once ib_write_bw ib_write_bw -F -p PORT -n 1000 -- ib_write_bw -F -p PORT -n 1000 127.0.0.1

if compgen -G '/dev/shm/softverbs*' > /dev/null; then
  echo "# left in /dev/shm: $(echo /dev/shm/softverbs*)"
fi
exit $failed
