#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# beside
# The verbs conformance suite over softverbs, as an ordinary user (the unit tests run it as whoever runs them; this is for
# those who run as root). `softverbs_suite.sh PROGRAM [PATTERN...]` runs a part of it.
set -u
top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
build=${VARVE_BUILD:-$top/build}
program=${1:-}
[ $# = 0 ] || shift
failed=0

if [ ! -e "$build/softverbs/libsoftverbs.so" ]; then
  echo "SKIP softverbs_suite: $build/softverbs/libsoftverbs.so is not built"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/softverbs" "$work/unittest"
cp "$build/softverbs/libsoftverbs.so" "$work/softverbs/"
cp "$build"/unittest/unit-softverbs-*"$program" "$work/unittest/" 2> /dev/null
rm -rf "$work"/unittest/*.p
chmod -R a+rX "$work"
user=()
[ "$(id -u)" != 0 ] || user=(setpriv --reuid 65534 --regid 65534 --clear-groups)

for t in "$work"/unittest/unit-softverbs-*; do
  if [ ! -x "$t" ]; then
    echo "FAIL softverbs_suite: no unit-softverbs-*$program in $build/unittest"
    exit 1
  fi
  (cd / && exec "${user[@]}" "$t" "$@")
  case $? in
    0) ;;
    1) failed=1 ;;
    *) echo "FAIL ${t##*/}: ended with status $?"; failed=1 ;;
  esac
done
exit $failed
