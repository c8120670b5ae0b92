#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1500
# TLS records by the kernel (its module tls), of the target, of the host and of both: the tests that OpenSSL and varve itself judge, run in a guest
# whose kernel has the module. /proc/net/tls_stat says that the kernel had the records.
# shellcheck source=systest/lab/testing.sh
. "$(dirname "$0")/lab/testing.sh"
in_guest -n -c 4 -p 0 -t 1450

modprobe tls
ip link set lo up
TESTS=$(dirname "$SELF")

kernel_counts() { # NAME
  sed -n "s/^$1[[:space:]]*//p" /proc/net/tls_stat
}

kernel_has_no_connection() {
  [ "$(kernel_counts TlsCurrTxSw)$(kernel_counts TlsCurrRxSw)" = 00 ]
}

# TARGET,HOST SCRIPT PATTERN...: each pattern has a test, and all pass. The number of records that could not be decrypted is in $WRONG then.
passes() {
  local sides=$1 script=$2 status=0 sent received wrong
  shift 2
  sent=$(kernel_counts TlsTxSw) received=$(kernel_counts TlsRxSw) wrong=$(kernel_counts TlsDecryptError)
  VARVE_KTLS=$sides python3 "$TESTS/$script.py" "$@" > /tmp/results 2>&1 || status=$?
  tee < /tmp/results
  refused grep -aE '^(FAIL|SKIP)' /tmp/results
  same "status of $script" $status 0
  [ "$(grep -acE '^PASS' /tmp/results)" -ge $# ] || fail "not all of $* were run"
  [ "$(kernel_counts TlsTxSw)" -gt "$sent" ] || fail "the kernel encrypted for no connection"
  [ "$(kernel_counts TlsRxSw)" -gt "$received" ] || fail "the kernel decrypted for no connection"
  await 60 kernel_has_no_connection
  WRONG=$(($(kernel_counts TlsDecryptError) - wrong))
}

test_records_of_the_host() {
  passes host bdev_nvme_tls test_a_bdev_over_tls test_s_server_takes test_a_key_is_rotated_and_a_lost_connection
  same "records that could not be decrypted" $WRONG 0
}

test_records_of_both() {
  passes target,host bdev_nvme_tls test_a_bdev_over_tls test_a_key_is_rotated_and_a_lost_connection
  same "records that could not be decrypted" $WRONG 0
}

test_records_of_the_target_are_judged_by_openssl() {
  passes target nvmf_tcp_tls test_io_over_tls_is_verified test_commands_under_way test_aes_256 test_groups_of_any_kind test_a_key_is_rotated
  same "records that could not be decrypted" $WRONG 0
}

test_the_target_tells_who_has_the_records() {
  passes '' nvmf_tcp_tls test_the_kernel_has_the_records test_a_key_update_ends
}

test_keys_of_all_kinds_at_a_target() {
  passes target bdev_nvme_tls test_keys_of_all_kinds
  same "records that could not be decrypted" $WRONG 0
}

test_records_that_somebody_changes() {
  passes target nvmf_tcp_tls test_a_record_that_was_changed
  [ "$WRONG" -gt 0 ] || fail "the kernel found no changed record"
  VARVE_CASES=24 passes target nvmf_tcp_tls_records
  [ "$WRONG" -gt 0 ] || fail "the kernel found no changed record among those that were changed at random"
}

run_tests
