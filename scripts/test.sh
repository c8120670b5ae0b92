#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds varve and runs its tests; the last line is `N passed, N failed, N skipped`.
#
#   scripts/test.sh            everything: unit and system tests, sanitizers, valgrind, fuzzing, the VM lab
#   scripts/test.sh --quick    what takes seconds; with a PATTERN, without what takes minutes
#   scripts/test.sh --list     the names of all jobs
#   scripts/test.sh PATTERN... only the jobs whose names contain a pattern
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
case " $* " in
*" -h "* | *" --help "*) sed -n '3,8s/^# \?//p' "$0"; exit ;;
*" --quick "*) packages_need build test ;;
*) packages_need build test lab ;;
esac
exec python3 scripts/run_tests.py "$@"
