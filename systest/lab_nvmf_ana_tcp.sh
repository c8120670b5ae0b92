#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 600
# Over TCP: that of lab_nvmf_ana.sh in which the transport has a part, which is that I/O follows ANA states, over two connections.
[ $# != 0 ] || set -- knows_the_state ana_log_is follows_the_states moves_to_another nothing_is_left
TRTYPE=tcp
CHECKS=$(dirname "$0")/lab_nvmf_ana.sh
# shellcheck source=systest/lab_nvmf_ana.sh
. "$CHECKS"
