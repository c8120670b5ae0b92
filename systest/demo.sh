#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# apart
# The demo does what it says.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
out=$(VARVE_DEMO_PORT=$((20000 + $$ % 20000)) scripts/demo.sh 2 2>&1)
status=$?

shows() {
	if grep -qE "$2" <<<"$out"; then
		echo "PASS demo.$1"
	else
		failed=1
		echo "FAIL demo.$1: its output has no '$2'"
	fi
}
shows says_which_rdma_device '^This machine has (one|none)'
shows shows_progress '^ +[0-9]+ s +[0-9]+ IOPS'
shows serves_both_transports 'over RDMA at port [0-9]+ and over TCP at port [0-9]+'
shows drives_tcp '^4\. The same over TCP'
shows verifies 'reads, [1-9][0-9]* writes in .* 0 errors; 0 miscompares'
if [ "$(grep -cE 'reads, [1-9][0-9]* writes in .* 0 errors; 0 miscompares' <<<"$out")" = 2 ]; then
	echo "PASS demo.verifies_both_transports"
else
	failed=1
	echo "FAIL demo.verifies_both_transports: its output has not two verified runs"
fi
shows time_per_state '^RDMA_REQ_COMPLETING_C2H( +[0-9.]+){7}'
shows one_life_from_its_beginning '^ +0\.000 +RDMA_REQ_NEW'
shows one_life_with_its_bdev_io '^ +[0-9.]+ +BDEV_IO_START .* for r[0-9]+'
shows one_life_to_its_end '^ +[0-9.]+ +\+[0-9.]+ +RDMA_REQ_COMPLETED'
shows how_to_go_on '^How to go on'
if [ $status -ne 0 ]; then
	failed=1
	echo "FAIL demo.ends_well: status $status"
else
	echo "PASS demo.ends_well"
fi
[ $failed -eq 0 ] || printf '%s\n' "$out"
exit $failed
