#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 600
# Over TCP: that of lab_bdev_nvme_multipath.sh in which the transport has a part: two connections to the kernel's target are two paths, I/O follows their ANA states,
# and goes on when a port is closed.
[ $# != 0 ] || set -- two_ports access_states waits_until closed_port_is active_active both_ports_closed nothing_is_left
TRTYPE=tcp
CHECKS=$(dirname "$0")/lab_bdev_nvme_multipath.sh
# shellcheck source=systest/lab_bdev_nvme_multipath.sh
. "$CHECKS"
