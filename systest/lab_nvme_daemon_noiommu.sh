#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 800
# What lab_nvme_daemon.sh does, on a machine without an IOMMU.
IOMMU='' # vm.sh's option for one
CHECKS=$(dirname "$0")/lab_nvme_daemon.sh
# shellcheck source=systest/lab_nvme_daemon.sh
. "$CHECKS"
