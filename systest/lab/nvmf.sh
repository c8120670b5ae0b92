# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034
# In the guest: varve as the target on one core, the kernel's nvme-rdma, or nvme-tcp with TRTYPE=tcp, as its host. Sourced after testing.sh. Checks run in
# shells of their own, so what outlives one (the target's process) is kept in files.

NQN=nqn.2026-11.io.varve:lab
HOST=nqn.2014-08.org.nvmexpress:uuid:11111111-0000-4000-8000-000000000001
HOSTID=11111111-0000-4000-8000-000000000001
TARGET=${TARGET:-10.7.0.1}
TRTYPE=${TRTYPE:-rdma}
LISTEN='{"trtype":"'${TRTYPE^^}'","adrfam":"IPv4","traddr":"'$TARGET'","trsvcid":"4420"}'
SOCK=/tmp/varve.sock
VARVE_LOG=/tmp/varve.log
# The target's memory. All of it is registered with the device by the first listener, page by page: with 512 MB of ordinary pages that is two
# seconds of an emulated CPU, and on a machine with other work the listener was not answered for 10 s.
MEGABYTES=${MEGABYTES:-192}

rpc() { # METHOD KEY=VALUE...
  "$VARVE_BUILD/bin/varve-rpc" -s $SOCK "$@"
}

call() { # METHOD [PARAMETERS]: a request for rpcs, or for a list in a configuration
  printf '{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}\n' "$1" "${2:-"{}"}"
}

rpcs() { # one process for many requests (from stdin): a fork costs 70 times what it does outside the guest
  local answers
  answers=$("$VARVE_BUILD/bin/varve-rpc" -s $SOCK -)
  [[ $answers != *'"error"'* ]] || fail "a request was refused: $(grep -m 1 '"error"' <<< "$answers")"
}

# The requests that make a subsystem that any host may use: NQN [MORE-PARAMETERS, each after a comma]
call_subsystem() {
  call nvmf_create_subsystem "{\"nqn\":\"$1\",\"allow_any_host\":true${2:-}}"
  call_listener "$1"
}

call_listener() { # NQN [METHOD]
  call "${2:-nvmf_subsystem_add_listener}" "{\"nqn\":\"$1\",\"listen_address\":$LISTEN}"
}

call_add_ns() { # NQN NSID BDEV [MORE-PARAMETERS]
  call nvmf_subsystem_add_ns "{\"nqn\":\"$1\",\"namespace\":{\"nsid\":$2,\"bdev_name\":\"$3\"${4:-}}}"
}

call_remove_ns() { # NQN NSID
  call nvmf_subsystem_remove_ns "{\"nqn\":\"$1\",\"nsid\":$2}"
}

target_start() { # OPTIONS...: with hugepages if the guest has some (vm.sh -p), which a script wants that starts it often
  local pages=--no-huge
  [ "$(< /proc/sys/vm/nr_hugepages)" = 0 ] || pages=
  {
    # shellcheck disable=SC2086  # it may be nothing
    "$VARVE_BUILD/bin/varve" $pages --no-pci -m '[3]' -s $MEGABYTES -r $SOCK "$@" >> $VARVE_LOG 2>&1 &
    echo $! > /tmp/varve.pid
    wait $! && echo 0 > /tmp/varve.status || echo $? > /tmp/varve.status
  } &
  await 90 rpc framework_wait_init
}

target_pid() {
  cat /tmp/varve.pid
}

target_kill() { # SIGNAL: also waits for its end
  rm -f /tmp/varve.status
  kill "-$1" "$(target_pid)"
  await 90 test -s /tmp/varve.status
}

target_says() { # PATTERN
  grep -E "$1" $VARVE_LOG
}

target_has_controllers() { # NQN NUMBER
  local answer
  answer=$(rpc nvmf_subsystem_get_controllers "nqn=$1") || return
  [ "$(grep -c '"cntlid"' <<< "$answer" || :)" = "$2" ] # grep fails when it counts 0
}

# No host is connected, and nothing of any is left.
target_is_empty() {
  local stats
  stats=$(rpc nvmf_get_stats) || return
  ! grep -E '"(current_(admin|io)_qpairs|pending_bdev_io)": [1-9]' <<< "$stats" && [ "$(rpc nvmf_get_inflight)" = '[]' ]
}

# It has not complained. [MORE]: lines with this are no complaint. An emulated machine is slow: each call that was late must have been
# answered since. The software devices of the kernel in the lab never report LAST_WQE_REACHED. Guests have few CPUs, which several varves share.
target_is_silent() {
  local line
  line=$(grep -E '\*(ERROR|WARNING)\*|Sanitizer' $VARVE_LOG |
    grep -vE "held the control thread|LAST_WQE_REACHED|CPU core [0-9]+ is used by|$LATE_CALL${1:+|$1}" | head -n 1)
  [ -z "$line" ] || fail "varve complains: $line" || return
  late_calls_were_answered
}

# What varve says of a call that takes more than 10 s, by RPC or in a configuration; in the second case it says the first, too.
LATE_CALL='RPC [a-z0-9_]+ has not been answered for [0-9]+ s$|[(][a-z0-9_]+[)]: still waiting for its answer$'

late_calls_were_answered() { # a call is late once, and is said to be answered once
  local line
  local -A late=()
  while read -r line; do
    if [[ $line =~ RPC\ ([a-z0-9_]+)\ has\ not\ been\ answered ]]; then
      late[${BASH_REMATCH[1]}]=$((${late[${BASH_REMATCH[1]}]:-0} + 1))
    elif [[ $line =~ RPC\ ([a-z0-9_]+)\ answered\ after ]]; then
      late[${BASH_REMATCH[1]}]=$((${late[${BASH_REMATCH[1]}]:-0} - 1))
    fi
  done < <(grep -E 'RPC [a-z0-9_]+ (has not been answered|answered after)' $VARVE_LOG || :)
  for line in "${!late[@]}"; do
    same "number of late calls of $line without an answer" "${late[$line]}" 0 || return
  done
}

after_check() { # STATUS
  [ "$1" != 0 ] || return 0
  [ ! -e /tmp/fio.pid ] || kill -9 "$(cat /tmp/fio.pid)" 2> /dev/null
  tail -n 30 $VARVE_LOG | sed 's/^/# varve | /'
}

# --- the host

discover() { # OPTIONS...
  nvme discover -t "$TRTYPE" -a "$TARGET" -s 4420 --hostnqn $HOST --hostid $HOSTID "$@"
}

connect() { # NQN OPTIONS...: two I/O queues, reconnects after a second; when it returns, the namespaces may still be to come
  nvme connect -t "$TRTYPE" -a "$TARGET" -s 4420 -n "$1" -i 2 -Q 32 -c 1 -l 900 --hostnqn $HOST --hostid $HOSTID "${@:2}"
}

disconnect() { # NQN...: until the target has forgotten it, too
  local nqn
  for nqn; do nvme disconnect -n "$nqn"; done
  await 90 target_is_empty
}

controllers() { # NQN [HOSTNQN]: nvme0 ...
  local c nqn host
  for c in /sys/class/nvme/nvme*; do
    { read -r nqn < "$c/subsysnqn" && read -r host < "$c/hostnqn"; } 2> /dev/null || continue
    [ "$nqn" != "$1" ] || [ "$host" != "${2:-$host}" ] || echo "${c##*/}"
  done
}

is_live() { # NQN: all its controllers
  local c state
  for c in $(controllers "$1"); do
    read -r state < "/sys/class/nvme/$c/state" && [ "$state" = live ] || return
  done
  [ -n "$c" ]
}

disk() { # NQN NSID: nvme0n1; fails if the host has none
  local d nqn nsid
  for d in /sys/block/nvme*; do
    [[ ${d##*/} != *c* ]] || continue # a path to a namespace
    { read -r nqn < "$d/device/subsysnqn" && read -r nsid < "$d/nsid"; } 2> /dev/null || continue
    [ "$nqn $nsid" != "$1 $2" ] || { echo "${d##*/}"; return; }
  done
  return 1
}

path() { # NQN: nvme0c0n1, the path to its namespace 1
  local d nqn
  for d in /sys/block/nvme*c*n1; do
    { read -r nqn < "$d/device/subsysnqn"; } 2> /dev/null || continue
    [ "$nqn" != "$1" ] || echo "${d##*/}"
  done
}

has_no_disk() { # NQN NSID
  ! disk "$1" "$2"
}

shopt -s extglob

has_disks() { # NUMBER, of all subsystems; looks at no file, for there may be hundreds
  local d=(/sys/block/nvme+([0-9])n+([0-9]))
  [ ${#d[@]} = "$1" ]
}

await_disk() { # NQN NSID: its device, when the host has it
  local d
  await 90 disk "$1" "$2" || return
  d=/dev/$(disk "$1" "$2")
  await 90 test -b "$d" || return
  echo "$d"
}

stays() { # SECONDS COMMAND...: it is true as long
  local end=$((SECONDS + $1))
  shift
  while [ $SECONDS -lt $end ]; do
    "$@" > /dev/null || fail "no longer: $*"
    pause 0.2
  done
}

# --- a file system on a disk. Whatever becomes of the disk, its files are compared with what was written.

mount_fs() { # DEVICE OPTIONS...
  mkdir -p /tmp/fs
  mount "${@:2}" "$1" /tmp/fs
}

write_files() { # FOLDER
  local i
  mkdir -p "/tmp/fs/$1"
  for i in 1 2 3 4 5 6; do head -c $((i * 100000)) /dev/urandom > "/tmp/fs/$1/$i"; done
  (cd /tmp/fs && md5sum "$1"/*) >> /tmp/sums
}

files_are_right() {
  (cd /tmp/fs && md5sum --quiet -c /tmp/sums)
}

# --- I/O that goes on while something happens. Two jobs write and soon read again what they have written: one with blocks that
# travel with the command, one with blocks that the target fetches.

FIO=(fio --thread --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --randrepeat=0 --group_reporting)

load_start() { # DEVICE, or a file
  [[ -b $1 || $1 != /dev/* ]] || fail "there is no disk '$1'"
  "${FIO[@]}" --output=/tmp/fio.out --filename="$1" --rw=randwrite --verify_backlog=32 --time_based --runtime=1000 \
    --name=small --bs=4k --iodepth=8 --size=4M --name=large --bs=32k --iodepth=4 --offset=4M --size=8M > /tmp/fio.err 2>&1 &
  echo $! > /tmp/fio.pid
  load_goes_on
}

written() { # by fio, bytes
  local name value
  while read -r name value; do
    [ "$name" != write_bytes: ] || echo "$value"
  done < "/proc/$(cat /tmp/fio.pid)/io"
}

has_written() { # BYTES SINCE: more than can be outstanding
  local w
  w=$(written)
  [ -n "$w" ] && [ "$w" -gt $(($1 + $2)) ]
}

load_goes_on() {
  await 120 has_written 500000 "$(written)" || { cat /tmp/fio.err; fail "the I/O does not go on"; }
}

load_is_over() { # perhaps nobody has waited for it: it may be another check's child
  local stat
  stat=$(cat "/proc/$(cat /tmp/fio.pid)/stat") || return 0
  [[ $stat == *') Z '* ]]
}

load_ends() { # it has failed, as it should
  await 120 load_is_over
  refused grep -q 'err= 0:' /tmp/fio.out
}

load_stop() { # and was right until now
  kill "$(cat /tmp/fio.pid)"
  await 120 load_is_over
  cat /tmp/fio.err /tmp/fio.out
  grep -q 'err= 0:' /tmp/fio.out || fail "fio has errors"
  refused grep -E 'verify: bad|verify failed' /tmp/fio.err /tmp/fio.out
}

# Random bytes through the page cache's side; later they can be compared again.
write_and_compare() { # DEVICE BYTES [OFFSET, a multiple of 64 KiB]
  head -c "$2" /dev/urandom > /tmp/written
  dd if=/tmp/written of="$1" bs=64k seek=$((${3:-0} >> 16)) oflag=direct conv=notrunc status=none
  compare "$@"
}

compare() { # the same arguments
  dd if="$1" bs=64k skip=$((${3:-0} >> 16)) count=$(($2 >> 16)) iflag=direct,fullblock status=none | cmp - /tmp/written
}
