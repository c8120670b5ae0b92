#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1000
# What `meson install` puts into place, run by systemd as process 1 of a guest: the unit's start, watchdog, crash and end, and that its
# restrictions leave drives (vfio, hugepages) and soft RoCE usable, though nothing of both is there at the start. The kernel's host has a file system mounted on it that takes
# restarts and a kill under verified I/O.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
if [ -z "${VM:-}" ]; then
  OUT=$(mktemp -d)
  trap 'rm -rf "$OUT"' EXIT
  meson install -C "${VARVE_BUILD:-$(dirname "$(dirname "$SELF")")/build}" --no-rebuild --quiet --destdir "$OUT/root" || exit 1
fi
in_guest -S -i -c 4 -t 940 -o "${OUT:-}"

NQN=nqn.2026-11.io.varve:service
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"
SOCK=/run/varve/varve.sock
DRIVE=$(nvmes | sed -n 1p)
CONFIG=$(find /out/root -name varve.json)
CONFIG=${CONFIG#/out/root}
BIN=$(dirname "$(find /out/root -path "*/bin/varve-trace" -type f)")
BIN=${BIN#/out/root}

after_check() { # STATUS
  [ "$1" = 0 ] || journalctl --no-pager -o cat -u varve | tail -n 40 | sed 's/^/# varve | /'
}

main_pid() {
  systemctl show -P MainPID varve
}

is_active_again() { # PID that was
  [ "$(systemctl is-active varve)" = active ] && [ "$(main_pid)" != "$1" ]
}

journal_says() { # PATTERN
  journalctl --no-pager -o cat -u varve | grep -E "$1"
}

test_service_becomes_active() {
  cp -r /out/root/. /
  cp "$(find /out/root -name varve.service)" /run/systemd/system/
  mkdir -p /etc/systemd/coredump.conf.d
  echo 'VARVE_OPTIONS="-m [2] -s 256 -e nvmf_rdma,bdev --trace-group disk"' > "${CONFIG%/*}/../default/varve"
  # An emulated CPU compresses a core for minutes.
  printf '[Coredump]\nCompress=no\n' > /etc/systemd/coredump.conf.d/lab.conf
  # Numbers of devices that have none yet.
  refused grep -E ' (vfio|infiniband_verbs)' /proc/devices
  systemctl daemon-reload
  systemctl start varve
  same state "$(systemctl is-active varve)" active
  systemctl show -P StatusText varve | grep 'running, RPC socket /run/varve/varve.sock'
  rpc framework_wait_init
  same 'mode of the folder' "$(stat -c %a /run/varve)" 750
}

test_restrictions_leave_drives_and_rdma_usable() {
  local d
  modprobe nvme-rdma
  rxe_up
  "$TREE/scripts/setup.sh" bind "$DRIVE"
  journal_says 'Memory: hugepages'
  rpc bdev_nvme_attach_controller name=N trtype=PCIe traddr="$DRIVE" | grep -q Nn1
  {
    call nvmf_create_transport '{"trtype":"RDMA","max_srq_depth":128}'
    call_subsystem $NQN
    call_add_ns $NQN 1 Nn1
  } | rpcs
  rpc save_config "$CONFIG"
  connect $NQN
  d=$(await_disk $NQN 1)
  write_and_compare "$d" 1048576 $((512 << 20))
  mkfs.ext4 -q -E lazy_itable_init=0,nodiscard "$d" 64M
  mkdir -p /tmp/m
  mount "$d" /tmp/m
  cp -r "$TREE/doc" /tmp/m/
  (cd /tmp/m && find . -type f -exec md5sum {} +) > /tmp/sums
  sync -f /tmp/m
}

in_its_group() { # COMMAND...
  (echo "$BASHPID" > "/sys/fs/cgroup$(systemctl show -P ControlGroup varve)/cgroup.procs" && exec "$@")
}

test_restrictions_are_in_force() {
  local pid
  pid=$(main_pid)
  grep -qx 'NoNewPrivs:.1' "/proc/$pid/status"
  refused nsenter -t "$pid" -m touch /etc/x
  nsenter -t "$pid" -m test -w "/sys/bus/pci/devices/$DRIVE/resource0"
  refused nsenter -t "$pid" -m test -w /sys/bus/pci/drivers_probe
  refused nsenter -t "$pid" -m test -w /proc/sys/vm/drop_caches
  # All disks, and of other devices those that varve uses.
  in_its_group dd if=/dev/zero of=/dev/null count=1 status=none
  in_its_group dd if="/dev/$(disk $NQN 1)" of=/dev/null count=1 status=none
  dd if=/dev/mem of=/dev/null count=1 status=none
  refused in_its_group dd if=/dev/mem of=/dev/null count=1 status=none
}

read_makes_a_copy() {
  dd if="/dev/$(disk $NQN 1)" of=/dev/null bs=1M count=4 iflag=direct status=none
  ls /var/tmp/*_blackbox.*.request_age.*
}

of_nobody() { # PID
  [ "$(stat -c %U "/proc/$1")" = nobody ]
}

test_restrictions_leave_files_of_others_usable() {
  local pid other loop
  pid=$(main_pid)
  same 'group of the trace' "$(stat -c '%G %a' "/dev/shm/varve_trace.pid$pid")" 'disk 640'
  rpc trace_set_trigger name=T type=request_age limit_us=1000
  await 30 read_makes_a_copy
  rpc trace_remove_trigger name=T
  same 'group of the copy' "$(stat -c '%G %a' /var/tmp/*_blackbox.*.request_age.pid"$pid")" 'disk 640'
  truncate -s 16M /var/lib/varve/of-nobody /tmp/under-loop
  chown nobody /var/lib/varve/of-nobody
  chmod 600 /var/lib/varve/of-nobody
  rpc bdev_uring_create name=F filename=/var/lib/varve/of-nobody block_size=512
  rpc bdev_uring_delete name=F
  # A disk of a module that was not there at the start.
  modprobe loop
  loop=$(losetup --find --show /tmp/under-loop)
  rpc bdev_uring_create name=L filename="$loop" block_size=512
  rpc bdev_uring_delete name=L
  losetup -d "$loop"
  # The log and answers name other processes.
  setpriv --reuid nobody --regid nogroup --clear-groups sleep 1000 &
  other=$!
  await 10 of_nobody $other
  nsenter -t "$pid" -m setpriv --bounding-set=-sys_ptrace cat "/proc/$other/comm"
  refused nsenter -t "$pid" -m setpriv --regid nogroup --clear-groups --bounding-set=-sys_ptrace cat "/proc/$other/comm"
  kill $other
}

all_is_right() {
  echo 1 > /proc/sys/vm/drop_caches
  (cd /tmp/m && md5sum --quiet -c /tmp/sums)
  compare "/dev/$(disk $NQN 1)" 1048576 $((512 << 20))
}

# The kernel's host rides it out, fio on its file system too.
rides_out() { # COMMAND...
  local pid
  pid=$(main_pid)
  load_start /tmp/m/load
  "$@" "$pid"
  await 120 is_active_again "$pid" || { systemctl status varve; fail "it is not started again"; }
  await 120 is_live $NQN
  load_goes_on
  load_stop
  all_is_right
}

restart() { systemctl restart varve; }

test_mounted_file_system_rides_out_a_restart() {
  rides_out restart
  same 'restarts by systemd' "$(systemctl show -P NRestarts varve)" 0
  refused journal_says crashed
}

# The drop-in of doc/security.md.
test_drive_behind_an_iommu_needs_no_rights_beyond() {
  mkdir -p /run/systemd/system/varve.service.d
  sed -n '/^    \[Service\]$/,/^$/s/^    //p' "$TREE/doc/security.md" > /run/systemd/system/varve.service.d/fewer.conf
  grep -c CapabilityBoundingSet=CAP_NET_ADMIN /run/systemd/system/varve.service.d/fewer.conf
  sed -i 's/ --trace-group disk//' "${CONFIG%/*}/../default/varve"
  systemctl daemon-reload
  rides_out restart
  # Of capabilities there is number 12, CAP_NET_ADMIN.
  grep -qx 'CapEff:.0000000000001000' "/proc/$(main_pid)/status"
  rm -r /run/systemd/system/varve.service.d
  systemctl daemon-reload
}

reload() { systemctl reload-or-restart varve; }

# Another process takes over, in the same service.
test_mounted_file_system_rides_out_an_upgrade() {
  rides_out reload
  same 'restarts by systemd' "$(systemctl show -P NRestarts varve)" 0
  journal_says "process $(main_pid) has taken over"
  refused journal_says crashed
  rpc appliance_get_state | grep "\"pid\": *$(main_pid)"
}

test_mounted_file_system_rides_out_a_kill() {
  rides_out kill -9
  same 'restarts by systemd' "$(systemctl show -P NRestarts varve)" 1
}

has_core_and_trace() { # PID SIGNAL: as doc/operations.md says
  coredumpctl info --no-pager "$1" > /tmp/core
  cat /tmp/core
  grep -q 'Storage: .*(present)' /tmp/core
  grep -q "$2" "/var/lib/varve/traces/varve_trace.pid$1.txt"
  cat "/var/lib/varve/traces/varve_trace.pid$1.txt"
  "$BIN/varve-trace" -f "/var/lib/varve/traces/varve_trace.pid$1" -l tpoint=BDEV_IO_START > /tmp/trace
  grep -q 'BDEV_IO_START .*offset' /tmp/trace
}

test_crash_leaves_a_core_and_a_trace_and_is_restarted() {
  local pid
  pid=$(main_pid)
  rides_out kill -SEGV
  journal_says 'crashed: SIGSEGV'
  has_core_and_trace "$pid" SEGV
}

test_watchdog_ends_a_daemon_that_hangs() {
  local pid
  pid=$(main_pid)
  rides_out kill -STOP
  journal_says 'Watchdog timeout'
  journal_says 'crashed: SIGABRT'
  has_core_and_trace "$pid" ABRT
}

test_stop_is_clean() {
  umount /tmp/m
  disconnect $NQN
  systemctl stop varve
  same state "$(systemctl is-active varve || :)" inactive
  same result "$(systemctl show -P Result varve)" success
  [ ! -e /run/varve ]
  kernel_is_silent 'DMAR:.*fault|EXT4-fs (error|warning)'
}

run_tests
