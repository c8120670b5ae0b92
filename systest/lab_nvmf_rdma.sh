#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1600
# varve as the target of the kernel's NVMe host over soft RoCE: discovery, identification and logs, file systems and verified I/O,
# namespaces that come and go, and what the host may do under I/O (rescan, reset, disconnect) or the operator (listeners,
# subsystems). Faults are in lab_nvmf_rdma_faults.sh.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 1500
MEGABYTES=512 # for its RAM disks
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
UUID=3a7c9a52-5f0e-4c1d-9a53-0123456789ab
NGUID=00112233445566778899aabbccddeeff
EUI=0123456789abcdef
HOST2=nqn.2014-08.org.nvmexpress:uuid:22222222-0000-4000-8000-000000000002
HOST2ID=22222222-0000-4000-8000-000000000002
SHARED=nqn.2026-11.io.varve:shared
NVME_COMPLAINS='nvme.*([Ff]ail|[Ee]rror|invalid|unhandled|timeout|abort)'
AEN=/sys/kernel/tracing/events/nvme/nvme_async_event/enable

modprobe -a nvme-rdma dummy
rxe_up

configure() {
  call nvmf_create_transport '{"trtype":"RDMA"}'
  call bdev_malloc_create "{\"name\":\"M1\",\"block_size\":512,\"num_blocks\":98304,\"uuid\":\"$UUID\"}"
  call bdev_malloc_create '{"name":"M2","block_size":4096,"num_blocks":4096}'
  call bdev_malloc_create '{"name":"M3","block_size":512,"num_blocks":32768}'
  call bdev_null_create '{"name":"N4","block_size":512,"num_blocks":32768}'
  call_subsystem $NQN ',"serial_number":"LAB00001","model_number":"Lab model"'
  call_add_ns $NQN 1 M1 ",\"nguid\":\"$NGUID\",\"eui64\":\"$EUI\""
  call_add_ns $NQN 2 M2
}

disk_dev() { # NSID of $NQN
  echo "/dev/$(disk $NQN "$1")"
}

records() { # how many the discovery log has
  discover | sed -n 's/^Discovery Log Number of Records \([0-9]*\),.*/\1/p'
}

generation() {
  discover | sed -n 's/.*Generation counter \([0-9]*\)$/\1/p'
}

test_target_starts() {
  target_start
  configure | rpcs
}

# --- discovery

test_discovery_lists_what_is_configured() {
  discover | tee /tmp/d
  grep -q 'Number of Records 1,' /tmp/d
  grep -qx "subnqn:  $NQN" /tmp/d
  grep -qx 'trtype:  rdma' /tmp/d
  grep -qx 'adrfam:  ipv4' /tmp/d
  grep -qx 'subtype: nvme subsystem' /tmp/d
  grep -qx 'trsvcid: 4420' /tmp/d
  grep -qx "traddr:  $TARGET" /tmp/d
  call nvmf_discovery_add_referral '{"address":{"trtype":"RDMA","traddr":"192.0.2.7","trsvcid":"8009"}}' | rpcs
  discover | tee /tmp/d
  grep -q 'Number of Records 2,' /tmp/d
  grep -qx 'traddr:  192.0.2.7' /tmp/d
  call nvmf_discovery_remove_referral '{"address":{"trtype":"RDMA","traddr":"192.0.2.7","trsvcid":"8009"}}' | rpcs
  await 60 target_is_empty
  kernel_is_silent "$NVME_COMPLAINS"
}

test_generation_counter_changes_with_the_configuration() {
  local before after
  before=$(generation)
  same "the generation counter" "$(generation)" "$before"
  call_subsystem $SHARED | rpcs
  after=$(generation)
  [ "$after" -gt "$before" ]
  call nvmf_delete_subsystem "{\"nqn\":\"$SHARED\"}" | rpcs
  [ "$(generation)" -gt "$after" ]
}

test_many_subsystems_make_a_long_discovery_log() {
  local i
  for i in {1..40}; do call_subsystem $NQN-$i; done | rpcs
  discover > /tmp/d
  grep -q 'Number of Records 41,' /tmp/d
  for i in '' -{1..40}; do echo "subnqn:  $NQN$i"; done | sort > /tmp/expected
  grep '^subnqn: ' /tmp/d | sort | cmp - /tmp/expected
  connect $NQN-1
  connect $NQN-40
  is_live $NQN-40
  disconnect $NQN-1 $NQN-40
  for i in {1..40}; do call nvmf_delete_subsystem "{\"nqn\":\"$NQN-$i\"}"; done | rpcs
  same records "$(records)" 1
  kernel_is_silent "$NVME_COMPLAINS"
}

event_came() { # CODE
  grep -qi "$1" /sys/kernel/tracing/trace
}

test_persistent_discovery_is_kept_alive_and_hears_of_changes() {
  local c
  discover -p -k 3 > /dev/null
  c=$(controllers $DISCOVERY)
  same "keep-alive timeout" "$(cat "/sys/class/nvme/$c/kato")" 3
  stays 7 target_has_controllers $DISCOVERY 1
  same state "$(cat "/sys/class/nvme/$c/state")" live
  echo 1 > $AEN
  call_subsystem $SHARED | rpcs
  await 60 event_came 'NVME_AEN=0x70f002'
  nvme discover -d "$c" > /tmp/d
  grep -q 'Number of Records 2,' /tmp/d
  call nvmf_delete_subsystem "{\"nqn\":\"$SHARED\"}" | rpcs
  echo 0 > $AEN
  nvme disconnect -d "$c"
  await 60 target_is_empty
  kernel_is_silent "$NVME_COMPLAINS"
}

test_unknown_subsystem_is_refused() {
  refused connect nqn.2026-11.io.varve:none
  kernel_log | grep -q 'Connect Invalid Data Parameter, subsysnqn "nqn.2026-11.io.varve:none"'
}

# --- identification

test_host_connects() {
  connect $NQN
  await_disk $NQN 1
  await_disk $NQN 2
  target_has_controllers $NQN 1
  is_live $NQN
  same queues "$(rpc nvmf_subsystem_get_qpairs nqn=$NQN | grep -c '"enabled"')" 3
  kernel_is_silent "$NVME_COMPLAINS"
}

test_nvme_cli_reads_what_it_identifies() {
  local c
  c=/dev/$(controllers $NQN)
  nvme id-ctrl "$c" | tee /tmp/i
  grep -qx 'sn        : LAB00001 *' /tmp/i
  grep -qx 'mn        : Lab model *' /tmp/i
  grep -qx "subnqn    : $NQN" /tmp/i
  grep -qx 'cntrltype : 1' /tmp/i
  nvme id-ns "$c" -n 1 | tee /tmp/i
  grep -qx 'nsze    : 0x18000' /tmp/i
  grep -qx "nguid   : $NGUID" /tmp/i
  grep -qx "eui64   : $EUI" /tmp/i
  grep -q 'lbads:9 .*(in use)' /tmp/i
  nvme id-ns "$c" -n 2 | grep -q 'lbads:12 .*(in use)'
  nvme list-ns "$c" | tee /tmp/i
  same namespaces "$(tr -d ' ' < /tmp/i | tr '\n' ' ')" '[0]:0x1 [1]:0x2 '
  nvme ns-descs "$c" -n 1 | tee /tmp/i
  grep -q "uuid *: *$UUID" /tmp/i
  grep -q "nguid *: *$NGUID" /tmp/i
  grep -q "eui64 *: *$EUI" /tmp/i
  same "uuid in sysfs" "$(cat "/sys/block/$(disk $NQN 1)/uuid")" $UUID
  nvme list-ctrl "$c" | grep -q '\[ *0\]:'
  refused nvme id-ns "$c" -n 33 2>&1 | grep -i 'invalid namespace'
}

test_nvme_cli_reads_the_logs() {
  local c
  c=/dev/$(controllers $NQN)
  nvme smart-log "$c" | tee /tmp/l
  grep -q '^critical_warning[[:space:]]*: 0$' /tmp/l
  nvme effects-log "$c" -c 0 | tee /tmp/l
  grep -q 'ACS2.*Get Log Page' /tmp/l
  grep -q 'IOCS1.*Write' /tmp/l
  grep -q 'IOCS8.*Write Zeroes' /tmp/l
  nvme fw-log "$c" > /dev/null
  nvme supported-log-pages "$c" > /dev/null
  nvme get-property "$c" -o 8 | grep -q 'Version.*: 20000$'
  nvme get-property "$c" -o 0x1c | grep -q 'Controller Status.*: 1$'
  nvme get-feature "$c" -f 7 | grep -q 'Number of Queues'
}

test_access_past_the_end_fails_and_is_logged() {
  local c
  c=/dev/$(controllers $NQN)
  refused nvme read "$(disk_dev 1)" -s 98304 -c 0 -z 512 -d /tmp/x > /tmp/e 2>&1
  cat /tmp/e
  grep -q 'LBA Out of Range' /tmp/e
  refused nvme read "$(disk_dev 1)" -s 98303 -c 1 -z 1024 -d /tmp/x
  refused nvme write "$(disk_dev 1)" -s 98304 -c 0 -z 512 -d /tmp/x
  refused nvme write-zeroes "$(disk_dev 1)" -s 98300 -c 7
  refused nvme dsm "$(disk_dev 1)" -d -s 98304 -b 1
  nvme read "$(disk_dev 1)" -s 98303 -c 0 -z 512 -d /tmp/x
  nvme error-log "$c" -e 4 | tee /tmp/l
  grep -qi 'status_field.*LBA Out of Range' /tmp/l
  grep -qx 'lba.*: 0x18000' /tmp/l
  dd if="$(disk_dev 1)" bs=512 skip=98303 iflag=direct status=none | wc -c | grep -qx 512
}

test_discard_and_write_zeroes() {
  write_and_compare "$(disk_dev 1)" 1048576
  blkdiscard -f -o 65536 -l 65536 "$(disk_dev 1)"
  blkdiscard -z -o 262144 -l 131072 "$(disk_dev 1)"
  head -c 65536 /dev/zero | dd of=/tmp/written bs=64k seek=1 conv=notrunc status=none
  head -c 131072 /dev/zero | dd of=/tmp/written bs=64k seek=4 conv=notrunc status=none
  dd if="$(disk_dev 1)" bs=1M count=1 iflag=direct,fullblock status=none | cmp - /tmp/written
  nvme flush "$(disk_dev 1)" -n 1
  head -c 4096 /tmp/written > /tmp/x
  nvme compare "$(disk_dev 1)" -s 0 -c 7 -z 4096 -d /tmp/x
  refused nvme compare "$(disk_dev 1)" -s 100 -c 7 -z 4096 -d /tmp/x
  kernel_is_silent "$NVME_COMPLAINS"
}

test_copy_gathers_ranges() {
  local c d
  c=/dev/$(controllers $NQN)
  d=$(disk_dev 1)
  nvme id-ctrl "$c" > /tmp/c
  grep -qE '^oncs +: 0x1af$' /tmp/c
  grep -qE '^ocfs +: 0x3$' /tmp/c
  nvme id-ns "$d" > /tmp/n
  grep -qE '^mssrl +: 16384$' /tmp/n
  grep -qE '^mcl +: 131072$' /tmp/n
  grep -qE '^msrc +: 127$' /tmp/n
  write_and_compare "$d" 1048576
  nvme copy "$d" --sdlba=8192 --slbs=0,256,8 --blocks=127,3,0
  { head -c 65536 /tmp/written; tail -c +$((256 * 512 + 1)) /tmp/written | head -c 2048; tail -c +4097 /tmp/written | head -c 512; } > /tmp/copied
  dd if="$d" bs=512 skip=8192 count=133 iflag=direct,fullblock status=none | cmp - /tmp/copied
  nvme copy "$d" --sdlba=8000 --slbs=0,256,8 --blocks=127,3,0 --force-unit-access
  refused nvme copy "$d" --sdlba=8192 --slbs=0 --blocks=7 --format=1 2> /tmp/x
  grep -qiE 'invalid.namespace|invalid_ns|400b' /tmp/x
  refused nvme copy "$d" --sdlba=98300 --slbs=0 --blocks=7 2> /tmp/x
  grep -qi 'LBA.*Range\|LBA_RANGE' /tmp/x
  refused nvme copy "$d" --sdlba=20000 --slbs=0 --blocks=16384 2> /tmp/x
  grep -qi 'size limit' /tmp/x
  refused nvme copy "$d" --sdlba=4 --slbs=0 --blocks=7
  dd if="$d" bs=512 count=133 skip=8000 iflag=direct,fullblock status=none | cmp - /tmp/copied
}

test_uncorrectable_blocks_fail_until_they_are_written() {
  local d
  d=$(disk_dev 1)
  nvme verify "$d" -s 0 -c 65535
  nvme write-uncor "$d" -s 1000 -c 7
  refused nvme verify "$d" -s 900 -c 127 2> /tmp/x
  grep -qi 'Unrecovered Read Error\|READ_ERROR' /tmp/x
  refused nvme copy "$d" --sdlba=8192 --slbs=0,1000 --blocks=7,0
  refused dd if="$d" of=/dev/null bs=512 skip=1007 count=1 iflag=direct
  kernel_log | grep -q 'critical medium error.*sector 1007'
  dd if="$d" of=/dev/null bs=512 skip=1008 count=1 iflag=direct status=none
  dd if=/dev/zero of="$d" bs=512 seek=1000 count=8 oflag=direct conv=notrunc status=none
  nvme verify "$d" -s 900 -c 127
  refused nvme verify "$d" -s 98300 -c 7
}

test_fio_verifies_random_mixed_io() {
  local one two
  one=$(disk_dev 1)
  two=$(disk_dev 2)
  "${FIO[@]}" --rw=randrw --verify_backlog=64 --iodepth=8 --output=/tmp/fio.out \
    --name=sectors --filename="$one" --bs=512 --size=256k --name=pages --filename="$one" --bs=4k --offset=1M --size=1M \
    --name=large --filename="$one" --bs=128k --iodepth=4 --offset=4M --size=8M --name=blocks --filename="$two" --bs=8k --size=2M || {
    cat /tmp/fio.out
    fail "fio has errors"
  }
  kernel_is_silent "$NVME_COMPLAINS"
  target_is_silent
}

# --- a file system, and what happens beside it

test_files_survive_a_remount() {
  mkfs.ext4 -q "$(disk_dev 1)"
  mount_fs "$(disk_dev 1)" -o discard
  write_files a
  umount /tmp/fs
  mount_fs "$(disk_dev 1)" -o discard
  files_are_right
  kernel_is_silent "$NVME_COMPLAINS|EXT4-fs (error|warning)"
}

test_namespace_comes_and_goes_beside_a_mounted_file_system() {
  local i d
  for i in 1 2; do
    call_add_ns $NQN 3 M3 | rpcs
    d=$(await_disk $NQN 3)
    write_and_compare "$d" 65536
    write_files "b$i"
    call_remove_ns $NQN 3 | rpcs
    await 60 has_no_disk $NQN 3
    files_are_right
  done
  kernel_is_silent "$NVME_COMPLAINS|EXT4-fs (error|warning)"
}

test_write_fails_after_the_namespace_was_removed() {
  local d
  call_add_ns $NQN 3 M3 | rpcs
  d=$(await_disk $NQN 3)
  exec 9<> "$d"
  dd if=/dev/zero of=/dev/fd/9 bs=4k count=1 oflag=direct status=none
  call_remove_ns $NQN 3 | rpcs
  refused dd if=/dev/zero of=/dev/fd/9 bs=4k count=1 oflag=direct
  exec 9>&-
  await 60 has_no_disk $NQN 3
  files_are_right
}

size_is() { # DEVICE SECTORS
  [ "$(cat "/sys/block/$1/size")" = "$2" ]
}

test_host_sees_a_namespace_grow() {
  local d
  call_add_ns $NQN 4 N4 | rpcs
  d=$(basename "$(await_disk $NQN 4)")
  size_is "$d" 32768
  call bdev_null_resize '{"name":"N4","new_size":24}' | rpcs
  await 60 size_is "$d" 49152
  call_remove_ns $NQN 4 | rpcs
  await 60 has_no_disk $NQN 4
}

toggle() { # NSID BDEV TIMES
  local i
  for ((i = 0; i < $3; i++)); do
    call_remove_ns $NQN "$1" | rpcs
    call_add_ns $NQN "$1" "$2" | rpcs
  done
}

test_namespaces_are_disabled_and_enabled_concurrently() {
  local c one two
  call_add_ns $NQN 3 M3 | rpcs
  c=/dev/$(controllers $NQN)
  toggle 2 M2 4 &
  one=$!
  toggle 3 M3 4 &
  two=$!
  while kill -0 $one 2> /dev/null; do nvme ns-rescan "$c"; done
  wait $one
  wait $two
  write_and_compare "$(await_disk $NQN 2)" 65536
  write_and_compare "$(await_disk $NQN 3)" 65536
  files_are_right
  call_remove_ns $NQN 3 | rpcs
  await 60 has_no_disk $NQN 3
}

test_files_are_still_right() {
  umount /tmp/fs
  mount_fs "$(disk_dev 1)" -o discard
  files_are_right
  umount /tmp/fs
  e2fsck -fn "$(disk_dev 1)"
}

# --- under I/O

test_rescan_under_io() {
  local i c
  c=/dev/$(controllers $NQN)
  load_start "$(disk_dev 1)"
  for i in 1 2 3 4 5; do nvme ns-rescan "$c"; done
  load_goes_on
  load_stop
  kernel_is_silent "$NVME_COMPLAINS"
}

test_reset_under_io() {
  local i c
  c=/dev/$(controllers $NQN)
  load_start "$(disk_dev 1)"
  for i in 1 2; do
    nvme reset "$c"
    load_goes_on
  done
  load_stop
  target_has_controllers $NQN 1
}

test_listener_goes_and_comes_under_io() {
  local i
  load_start "$(disk_dev 1)"
  for i in 1 2; do
    call_listener $NQN nvmf_subsystem_remove_listener | rpcs
    target_has_controllers $NQN 0
    call_listener $NQN | rpcs
    await 90 is_live $NQN
    load_goes_on
  done
  load_stop
}

test_subsystem_is_torn_down_and_set_up_under_io() {
  load_start "$(disk_dev 1)"
  call nvmf_delete_subsystem "{\"nqn\":\"$NQN\"}" | rpcs
  target_is_empty
  {
    call nvmf_create_subsystem "{\"nqn\":\"$NQN\",\"allow_any_host\":true,\"serial_number\":\"LAB00001\",\"model_number\":\"Lab model\"}"
    call_add_ns $NQN 1 M1 ",\"nguid\":\"$NGUID\",\"eui64\":\"$EUI\""
    call_listener $NQN
  } | rpcs
  await 90 is_live $NQN
  load_goes_on
  load_stop
}

test_disconnect_under_io() {
  load_start "$(disk_dev 1)"
  nvme disconnect -n $NQN
  load_ends
  await 60 target_is_empty
}

# --- metadata. rxe has no integrity offload: the kernel then has protection information made and stripped (PRACT), with both checks.

test_kernel_has_protection_information_made_and_checked() {
  local d c
  {
    call bdev_malloc_create '{"name":"P1","block_size":4096,"num_blocks":8192,"md_size":8,"md_interleave":true,"dif_type":1}'
    call bdev_malloc_create '{"name":"P2","block_size":512,"num_blocks":32768,"md_size":16,"md_interleave":true,"dif_type":2}'
    call bdev_malloc_create '{"name":"P3","block_size":512,"num_blocks":65536,"md_size":16,"md_interleave":true,"dif_type":1,"dif_pi_format":2}'
    call_subsystem $SHARED
    call_add_ns $SHARED 1 P1
    call_add_ns $SHARED 2 P2 ',"hide_metadata":true'
    call_add_ns $SHARED 3 P3
  } | rpcs
  connect $SHARED
  d=$(await_disk $SHARED 1)
  await_disk $SHARED 2
  await_disk $SHARED 3 # its guard has 64 bits
  c=/dev/$(controllers $SHARED)
  nvme id-ns "$c" -n 1 | tee /tmp/i
  grep -qx 'flbas   : 0x10' /tmp/i
  grep -qx 'mc      : 0x1' /tmp/i
  grep -qx 'dpc     : 0x11' /tmp/i
  grep -qx 'dps     : 0x1' /tmp/i
  grep -q 'ms:8 .*lbads:12 .*(in use)' /tmp/i
  nvme id-ns "$c" -n 2 | grep -q 'ms:0 .*lbads:9 .*(in use)'
  nvme id-ns "$c" -n 3 | grep -q 'ms:16 .*lbads:9 .*(in use)'
  same "size in sectors" "$(cat "/sys/block/${d##*/}/size")" 65536
  same "size in sectors, guards of 64 bits" "$(cat "/sys/block/$(disk $SHARED 3)/size")" 65536
  "${FIO[@]}" --rw=randrw --verify_backlog=64 --iodepth=8 --output=/tmp/fio.out --name=pages --filename="$d" --bs=4k --size=1M \
    --name=large --filename="$d" --bs=128k --offset=4M --size=4M --name=hidden --filename="/dev/$(disk $SHARED 2)" --bs=512 --size=128k \
    --name=longer --filename="/dev/$(disk $SHARED 3)" --bs=16k --size=512k || {
    cat /tmp/fio.out
    fail "fio has errors"
  }
  mkfs.ext4 -q "$d"
  mkdir -p /tmp/fs
  mount "$d" /tmp/fs
  head -c 1M /dev/urandom | tee /tmp/random > /tmp/fs/random
  umount /tmp/fs
  mount "$d" /tmp/fs
  cmp /tmp/random /tmp/fs/random
  umount /tmp/fs
  kernel_is_silent "$NVME_COMPLAINS|EXT4-fs (error|warning)"
  target_is_silent "is not allowed to connect"
}

# A block is stored as it should not be, by a command that has it unchecked.
test_kernel_learns_of_a_block_that_is_not_what_was_written() {
  local d
  d=/dev/$(disk $SHARED 1)
  { head -c 4096 /dev/urandom; printf '\0\0\0\0\0\0\100'; printf '\0'; } > /tmp/x
  nvme io-passthru "$d" -o 1 -n 1 --cdw10=64 -l 4104 -w -i /tmp/x
  refused dd if="$d" of=/dev/null bs=4k skip=64 count=1 iflag=direct
  kernel_log | grep -q 'protection error.*sector 512'
  target_says 'bdev P1: read of block 64: the guard is'
  dd if=/dev/zero of="$d" bs=4k seek=64 count=1 oflag=direct conv=notrunc status=none
  dd if="$d" of=/dev/null bs=4k skip=64 count=1 iflag=direct status=none
  disconnect $SHARED
  {
    call nvmf_delete_subsystem "{\"nqn\":\"$SHARED\"}"
    call bdev_malloc_delete '{"name":"P1"}'
    call bdev_malloc_delete '{"name":"P2"}'
    call bdev_malloc_delete '{"name":"P3"}'
  } | rpcs
}

# --- hosts

test_host_that_is_not_allowed_is_refused_clearly() {
  {
    call nvmf_create_subsystem "{\"nqn\":\"$SHARED\",\"allow_any_host\":false}"
    call nvmf_subsystem_add_host "{\"nqn\":\"$SHARED\",\"host\":\"$HOST2\"}"
    call bdev_null_create '{"name":"P1","block_size":512,"num_blocks":32768}'
    call bdev_null_create '{"name":"P2","block_size":512,"num_blocks":32768}'
    call_add_ns $SHARED 1 P1
    call_add_ns $SHARED 2 P2 ',"no_auto_visible":true'
    call nvmf_ns_add_host "{\"nqn\":\"$SHARED\",\"nsid\":2,\"host\":\"$HOST2\"}"
    call_listener $SHARED
  } | rpcs
  same records "$(records)" 1
  refused connect $SHARED
  kernel_log | grep -q "Connect for subsystem $SHARED is not allowed, hostnqn: $HOST"
  target_says "$HOST.* is not allowed to connect to $SHARED"
  target_has_controllers $SHARED 0
}

test_hosts_are_told_apart_by_their_nqn() {
  local a b
  connect $SHARED --hostnqn $HOST2 --hostid $HOST2ID
  call nvmf_subsystem_add_host "{\"nqn\":\"$SHARED\",\"host\":\"$HOST\"}" | rpcs
  # nvme-cli, which does not look at the host's name, takes this for the same connection.
  echo "transport=rdma,traddr=$TARGET,trsvcid=4420,nqn=$SHARED,hostnqn=$HOST,hostid=$HOSTID,nr_io_queues=2" > /dev/nvme-fabrics
  target_has_controllers $SHARED 2
  a=$(controllers $SHARED $HOST)
  b=$(controllers $SHARED $HOST2)
  nvme list-ns "/dev/$a" | grep -c 'x' | grep -qx 1
  nvme list-ns "/dev/$b" | grep -c 'x' | grep -qx 2
  # A host that is allowed no longer is disconnected; the other is not.
  call nvmf_subsystem_remove_host "{\"nqn\":\"$SHARED\",\"host\":\"$HOST\"}" | rpcs
  target_has_controllers $SHARED 1
  same "the other's state" "$(cat "/sys/class/nvme/$b/state")" live
  nvme disconnect -d "$a"
  disconnect $SHARED
  call nvmf_delete_subsystem "{\"nqn\":\"$SHARED\"}" | rpcs
}

test_two_hundred_namespaces_come_and_go() {
  local i
  {
    for i in {1..200}; do call bdev_null_create "{\"name\":\"H$i\",\"block_size\":4096,\"num_blocks\":256}"; done
    call_subsystem $SHARED ',"max_namespaces":256'
    for i in {1..180}; do call_add_ns $SHARED "$i" "H$i"; done
  } | rpcs
  connect $SHARED
  await 300 has_disks 180
  for i in {181..200}; do call_add_ns $SHARED "$i" "H$i"; done | rpcs
  await 300 has_disks 200
  for i in {1..199}; do call_remove_ns $SHARED "$i"; done | rpcs
  await 300 has_disks 1
  disk $SHARED 200
  disconnect $SHARED
  call nvmf_delete_subsystem "{\"nqn\":\"$SHARED\"}" | rpcs
  kernel_is_silent 'nvme.*(timeout|abort|unhandled)' # that a namespace it looks at is gone already, it may say
}

test_nothing_is_left_at_the_end() {
  target_kill TERM
  target_is_silent "is not allowed to connect|the guard is"
  tail -n 1 $VARVE_LOG
}

run_tests
