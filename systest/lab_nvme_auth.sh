#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1200
# In-band authentication with those who learned it elsewhere: the kernel's host against varve's target, varve's host against the kernel's target,
# with nvme-cli's keys. Debian's kernel leaves it out, so its modules are built from its source (lab/modules.sh).
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
needs_modules
in_guest -n -c 4 -p 128 -t 1100
# shellcheck source=systest/lab/nvmf.sh
. "$(dirname "$0")/lab/nvmf.sh"

AUTH=$EXTRA/auth
KNQN=nqn.2026-11.io.varve:kernel # the kernel's subsystem
NVMET=/sys/kernel/config/nvmet
HOST_SOCK=/tmp/host.sock # varve as a host

modprobe -a t10-pi configfs rdma_cm ib_core dummy brd
for m in nvme-common nvme-core nvme-fabrics nvme-rdma nvmet nvmet-rdma ffdhe; do insmod "$AUTH/$m.ko"; done
rxe_up
umask 077

# FILE LENGTH HASH: as an administrator makes it; a key of hash 0 is used as it is
make_key() {
  nvme gen-dhchap-key --key-length="$2" --hmac="$3" --nqn=$HOST > "/tmp/$1"
}
make_key host0 32 0
make_key host1 32 1
make_key host2 48 2
make_key host3 64 3
make_key ctrlr 48 0
make_key other 32 0

call_keys() {
  local k
  for k in host0 host1 host2 host3 ctrlr other; do call keyring_file_add_key "{\"name\":\"$k\",\"path\":\"/tmp/$k\"}"; done
}

set_keys() { # of varve's subsystem: HOST-KEY [CONTROLLER'S-KEY]
  rpc nvmf_subsystem_set_keys nqn=$NQN host=$HOST dhchap_key="$1" ${2:+dhchap_ctrlr_key="$2"}
}

# The kernel's host: HOST-KEY [CONTROLLER'S-KEY]
auth_connect() {
  connect $NQN --dhchap-secret "$(cat "/tmp/$1")" ${2:+--dhchap-ctrl-secret "$(cat "/tmp/$2")"}
}

auth_is() { # DIGEST GROUP: how varve's target has authenticated the host
  rpc nvmf_subsystem_get_controllers nqn=$NQN > /tmp/c
  cat /tmp/c
  grep -q '"state": "completed"' /tmp/c && grep -q "\"digest\": \"$1\"" /tmp/c && grep -q "\"dhgroup\": \"$2\"" /tmp/c
}

reads() {
  await 60 disk $NQN 1
  dd "if=/dev/$(disk $NQN 1)" of=/dev/null bs=64k count=16 iflag=direct
}


# A target that allows a digest and a group; --wait-for-rpc: that is said before it starts.
target_with() { # DIGEST GROUP
  [ ! -e /tmp/varve.pid ] || target_kill TERM
  printf '{"subsystems":[{"subsystem":"nvmf","config":[{"method":"nvmf_set_config","params":{"dhchap_digests":["%s"],"dhchap_dhgroups":["%s"]}}]}]}' \
    "$1" "$2" > /tmp/varve.json
  target_start -c /tmp/varve.json
  {
    call_keys
    call nvmf_create_transport '{"trtype":"RDMA"}'
    call bdev_malloc_create '{"name":"M1","block_size":512,"num_blocks":32768}'
    call nvmf_create_subsystem "{\"nqn\":\"$NQN\",\"serial_number\":\"LAB00001\"}"
    call_listener $NQN
    call_add_ns $NQN 1 M1
    call nvmf_subsystem_add_host "{\"nqn\":\"$NQN\",\"host\":\"$HOST\"}"
  } | rpcs
}

# --- the kernel's host

test_kernel_host_with_each_digest_and_kind_of_key() {
  local digest i=0
  for digest in sha256 sha384 sha512; do
    target_with $digest null
    set_keys host$i
    auth_connect host$i
    auth_is $digest null
    reads
    disconnect $NQN
    i=$((i + 1))
    set_keys host$i ctrlr
    auth_connect host$i ctrlr
    auth_is $digest null
    reads
    disconnect $NQN
  done
}

test_kernel_host_with_each_group() {
  local group
  for group in ffdhe2048 ffdhe3072 ffdhe4096 ffdhe6144 ffdhe8192; do
    target_with sha256 $group
    set_keys host1 ctrlr
    auth_connect host1 ctrlr
    auth_is sha256 $group
    reads
    disconnect $NQN
  done
}

test_kernel_host_without_the_right_key_is_refused() {
  target_with sha512 null
  set_keys host0 ctrlr
  refused auth_connect other
  refused connect $NQN
  refused auth_connect host0 other
  await 60 target_is_empty
  target_says 'authentication .* failed'
  rpc notify_get_notifications all=true > /tmp/n
  grep -q nvmf_auth_failed /tmp/n
  auth_connect host0 ctrlr
  reads
  disconnect $NQN
}

is_reauthenticated() { # NUMBER: so often has the kernel said so
  [ "$(kernel_log | grep -c 'qid 0: authenticated with hash')" -ge "$1" ]
}

test_kernel_host_authenticates_again_under_io() {
  local c before
  target_with sha256 ffdhe2048
  set_keys host1 ctrlr
  auth_connect host1 ctrlr
  await 60 disk $NQN 1
  c=$(controllers $NQN)
  dd "if=/dev/$(disk $NQN 1)" of=/dev/null bs=4k iflag=direct & # all of it
  before=$(kernel_log | grep -c 'qid 0: authenticated with hash')
  set_keys host0 ctrlr
  cat /tmp/host0 > "/sys/class/nvme/$c/dhchap_secret"
  await 60 is_reauthenticated $((before + 1))
  wait $!
  is_live $NQN
  auth_is sha256 ffdhe2048
  reads
  disconnect $NQN
  kernel_is_silent 'nvme.*reconnect'
}

# --- varve's host

host_rpc() { # METHOD KEY=VALUE...
  "$VARVE_BUILD/bin/varve-rpc" -s $HOST_SOCK "$@"
}

attach() { # HOST-KEY [CONTROLLER'S-KEY]
  host_rpc bdev_nvme_attach_controller name=K trtype=RDMA traddr="$TARGET" trsvcid=4421 subnqn=$KNQN hostnqn=$HOST num_io_queues=1 \
    dhchap_key="$1" ${2:+dhchap_ctrlr_key="$2"}
}

detach() {
  host_rpc bdev_nvme_detach_controller name=K
}

kernel_keys() { # HOST-KEY [CONTROLLER'S-KEY] HASH GROUP
  local h=$NVMET/hosts/$HOST
  cat "/tmp/$1" > $h/dhchap_key
  [ -z "$2" ] || cat "/tmp/$2" > $h/dhchap_ctrl_key
  echo "hmac($3)" > $h/dhchap_hash
  echo "$4" > $h/dhchap_dhgroup
}

kernel_target() {
  [ ! -e $NVMET/hosts/$HOST ] || return 0
  modprobe brd rd_nr=1 rd_size=16384
  nvmet_up rdma "$TARGET" 4421 $KNQN /dev/ram0
  mkdir $NVMET/hosts/$HOST
  echo 0 > $NVMET/subsystems/$KNQN/attr_allow_any_host
  ln -s $NVMET/hosts/$HOST $NVMET/subsystems/$KNQN/allowed_hosts/
}

varve_host() {
  [ ! -e /tmp/host.pid ] || return 0
  "$VARVE_BUILD/bin/varve" --no-huge --no-pci -m '[2]' -s 256 -r $HOST_SOCK > /tmp/host.log 2>&1 &
  echo $! > /tmp/host.pid
  await 90 host_rpc framework_wait_init
  call_keys | "$VARVE_BUILD/bin/varve-rpc" -s $HOST_SOCK -
}

test_kernel_target_with_each_digest() {
  local hash
  kernel_target
  varve_host
  for hash in sha256 sha384 sha512; do
    kernel_keys host0 '' $hash null
    attach host0
    host_rpc bdev_get_bdevs name=Kn1 | grep -q '"Kn1"'
    detach
  done
}

test_kernel_target_with_each_group_both_ways() {
  local group
  kernel_target
  varve_host
  for group in null ffdhe2048 ffdhe3072 ffdhe4096 ffdhe6144 ffdhe8192; do
    kernel_keys host1 ctrlr sha384 $group
    attach host1 ctrlr
    detach
  done
}

test_kernel_target_refuses_the_wrong_key_and_is_refused() {
  kernel_target
  varve_host
  kernel_keys host0 ctrlr sha256 null
  refused attach other 2> /tmp/e
  cat /tmp/e
  grep -q 'authenticate: ' /tmp/e # the kernel's target hangs up before the reason can be fetched
  refused attach host0 other 2> /tmp/e
  cat /tmp/e
  grep -q 'does not know its key' /tmp/e
  attach host0 ctrlr
  detach
  tail -n 20 /tmp/host.log
}

run_tests
