#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a bpftrace script on a running varve (or another program with its probes):
#
#   bpftrace.sh PID SCRIPT.bt [ARGUMENT...]      ARGUMENTs are $1, $2 ... of the script
#   bpftrace.sh -n PID SCRIPT.bt                 only prints what would be run
#
# In the script __EXE__ is replaced by the path of PID's program, __PID__ by PID, __TSC_KHZ__ by the rate of the probes' arg0.
# Maps named after a table of state names (@bdev_io_type ...; varve-usdt-names lists them) are filled before the first event. Probes
# usdt:PROGRAM:spdk:NAME become those of PID's program. With BPF_OUTFILE set, bpftrace's output goes to that file; with
# ECHO_SCRIPT set, the script that is run is printed first.
# Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE. Ends when PID does, or by Ctrl-C.
set -euo pipefail

me=${0##*/}
fail() { echo "$me: $*" >&2; exit 1; }
usage() { sed -n '3,12s/^# \?//p' "$0" | sed "s|bpftrace\.sh|$me|"; }
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)

only_print=
if [ "${1:-}" = -n ]; then only_print=1; shift; fi
case ${1:-} in -h | --help) usage; exit ;; esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
pid=$1 script=$2
shift 2

case $pid in '' | *[!0-9]*) fail "'$pid' is not a process id" ;; esac
exe=$(readlink "/proc/$pid/exe") || fail "process $pid does not exist, or is not ours to look at"
exe=${exe% (deleted)}
if [ ! "$exe" -ef "/proc/$pid/exe" ]; then
  # In another mount namespace (a container), or replaced on disk since it started.
  exe=/proc/$pid/root$exe
  [ "$exe" -ef "/proc/$pid/exe" ] || fail "the program of process $pid is no longer at ${exe#/proc/"$pid"/root}: restart it"
fi
[ ! -f "$script" ] || script=$(readlink -f "$script")
for dir in "$here" "$here/../usdt/bt" "$here/../share/varve/bt"; do
  # Guides for operators name a script by its path in a tree: scripts/bpf/nvmf.bt.
  for name in "$script" "${script#scripts/bpf/}"; do
    [ ! -f "$script" ] && [ -f "$dir/$name" ] && script=$dir/$name
  done
done
[ -f "$script" ] || fail "no script '$script', here or in $(cd "$here/../usdt/bt" 2>/dev/null || cd "$here/../share/varve/bt" 2>/dev/null; pwd)"
names=
for dir in "$here" "$here/../lib/varve" "$here/../build/bin" ${VARVE_BUILD:+"$VARVE_BUILD/bin"}; do
  [ -x "$dir/varve-usdt-names" ] && { names=$dir/varve-usdt-names; break; }
done
[ -n "$names" ] || fail "varve-usdt-names is neither beside this script nor in ../lib/varve or ../build/bin: build varve first"

text=$("$names" --script "$script" "$exe" "$pid")
if [ -n "$only_print" ]; then echo "$text"; exit; fi
command -v bpftrace >/dev/null || fail "bpftrace is not installed (apt-get install bpftrace)"
[ -z "${ECHO_SCRIPT:-}" ] || echo "$text"
# There is one process, so what is known of its symbols holds. Without this bpftrace 0.17 reads them again for each usym(), and closes
# descriptors that it still needs, the one that tells whether PID lives among them: it ends early.
export BPFTRACE_CACHE_USER_SYMBOLS=${BPFTRACE_CACHE_USER_SYMBOLS:-1}
# Not bpftrace's -o: it writes the file only at the end.
if [ -n "${BPF_OUTFILE:-}" ]; then exec >"$BPF_OUTFILE"; fi
exec bpftrace -B none -p "$pid" -e "$text" "$@"
