#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the target for a long time with everything at random around it (systest/soak.py, and for a fifth of the time two targets that have one file:
# systest/nvmf_stale_soak.py); the last line is a verdict.
#
#   scripts/soak.sh HOURS              for a night: 10
#   scripts/soak.sh --minutes N        shorter
#   scripts/soak.sh --seed N ...       the same events again
#
# The log is build/soak.log. Ends with 0 if nothing was lost, leaked or crashed.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '3,10s/^# \?//p' "$0"; exit "$1"; }
# $1: what it is for; $2: the number
number() {
	[[ ${2:-} =~ ^[1-9][0-9]{0,5}$ ]] || { echo "soak.sh: $1 '${2:-}': allowed is a whole number from 1 to 999999" >&2; exit 2; }
}
seconds=""
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage 0 ;;
	--minutes) number --minutes "${2:-}"; seconds=$(($2 * 60)); shift ;;
	--seed) number --seed "${2:-}"; export VARVE_SEED=$2; shift ;;
	[0-9]*) number HOURS "$1"; seconds=$(($1 * 3600)) ;;
	*) usage 2 >&2 ;;
	esac
	shift
done
[ -n "$seconds" ] || usage 2 >&2
[ -x build/systest/varve-faults ] || { echo "build/systest/varve-faults is missing: scripts/build.sh" >&2; exit 2; }
# As scripts/run_tests.py does, and for the same reason.
autogroups=/proc/sys/kernel/sched_autogroup_enabled
if [ -w $autogroups ]; then
	before=$(cat $autogroups)
	trap 'echo "$before" >$autogroups' EXIT
	echo 0 >$autogroups
fi
export VARVE_SOAK_SECONDS=$((seconds * 4 / 5)) VARVE_STALE_SECONDS=$((seconds / 5)) VARVE_SEED=${VARVE_SEED:-$RANDOM}
if { python3 systest/soak.py && python3 systest/nvmf_stale_soak.py; } 2>&1 | tee build/soak.log; then
	echo "soak: passed, $seconds s"
else
	echo "soak: FAILED; see build/soak.log (the line '# seed' says how to repeat it)"
	exit 1
fi
