#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 1100
# kill -9 of a process that writes to an emulated drive through vfio, and flushes: after each restart every block whose write was
# acknowledged and flushed is there. `ROUNDS=10 lab_power_cut.sh` is quicker.
# shellcheck source=systest/lab/testing.sh
ROUNDS=${ROUNDS:-100}
. "$(dirname "$0")/lab/testing.sh"
[ -n "${VM:-}" ] || PATTERNS=("$ROUNDS") # what the script gets as its arguments in the guest
in_guest -i -p 0 -t 1040

ROUNDS=${PATTERNS[0]:-100} PATTERNS=()
read -r DRIVE < <(nvmes)

test_flushed_blocks_outlive_the_process() {
  "$TREE/scripts/setup.sh" bind "$DRIVE"
  python3 "$TREE/systest/power_cut.py" "pcie:$DRIVE" "$ROUNDS" > /tmp/out || { cat /tmp/out; fail "$(grep -a FAIL /tmp/out)"; }
  cat /tmp/out
  grep -q "^# $ROUNDS rounds" /tmp/out
}

test_drive_goes_back_to_the_kernel() {
  "$TREE/scripts/setup.sh" unbind "$DRIVE"
  await 60 bash -c "ls /sys/bus/pci/devices/$DRIVE/nvme/nvme*/nvme*n1"
  kernel_is_silent 'DMAR:.*fault'
}

run_tests
