#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# needs: lab
# limit: 950
# The verbs conformance suite over the kernel's soft RoCE, in a guest: it shows that the suite asks for what an RDMA
# device does, not for what softverbs happens to do. `lab_rxe_suite.sh PROGRAM [PATTERN]` runs a part of it.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
export VARVE_BUILD=${VARVE_BUILD:-$(dirname "$PWD")/build}
program=${1:-} pattern=${2:-}

# Prints one PASS, FAIL or SKIP line for each test. -c 4: rxe starves when every CPU polls.
# shellcheck disable=SC2016  # expanded in the guest
./vm.sh -n -c 4 -p 0 -t 900 "rxe_up || { echo 'FAIL lab_rxe_suite: no rxe in the guest'; exit 1; }
  export VERBS_SUITE_IP=10.7.0.1
  status=0 found=0
  for t in $VARVE_BUILD/unittest/unit-softverbs-*$program; do
    [ -f \$t ] && [ -x \$t ] || continue
    found=1
    \$t $pattern
    case \$? in 0) ;; 1) status=1 ;; *) echo FAIL \${t##*/}: ended with status \$?; status=1 ;; esac
  done
  [ \$found = 1 ] || { echo 'FAIL lab_rxe_suite: no unit-softverbs-* in $VARVE_BUILD/unittest'; status=1; }
  exit \$status" | grep -aE '^(PASS|FAIL|SKIP|#)'
status=${PIPESTATUS[0]}
case $status in
  0 | 1) exit "$status" ;;
  69) echo "SKIP lab_rxe_suite: the lab's state folder cannot be made" ;;
  *) echo "FAIL lab_rxe_suite: the guest ended with status $status"; exit 1 ;;
esac
