# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# For tests whose checks run in one guest together. The script sources this file, calls in_guest, defines functions
# test_*, and ends with run_tests. A check is a function that fails (set -e is on in it); it runs in a shell of its own.
# A script that is another one under other circumstances names that in CHECKS, and sources it. `script.sh PATTERN...` runs the checks whose names contain a pattern.

SELF=$(readlink -f "$0")
NAME=$(basename "$0" .sh)
PATTERNS=("$@")
MATCHED=() # of each pattern, by its number: a check has it in its name

# To start a program that loads libraries takes an emulated CPU several times as long as busybox, which has none. Not what reads much data
# (cmp, head): busybox is slow at that. No function may have one of these names: an alias is replaced there, too.
if [ -n "${VM:-}" ]; then
  shopt -s expand_aliases
  for tool in cat cut dmesg grep sed tail tr wc; do
    # shellcheck disable=SC2139  # the name is to be expanded now
    alias "$tool=busybox $tool"
  done
fi

# On the host: makes the kernel's modules that Debian leaves out, or says why not, and exits.
needs_modules() {
  [ -z "${VM:-}" ] || return 0
  local why status
  why=$("$(dirname "$SELF")/vm.sh" --modules 2>&1)
  status=$?
  case $status in
    0) return ;;
    69) echo "SKIP $NAME: $(tail -n 1 <<< "$why")" && exit 0 ;;
    *) echo "FAIL $NAME: $(tail -n 1 <<< "$why")" && exit 1 ;;
  esac
}

# OPTIONS of vm.sh...: on the host, runs this script in a guest, shows its result lines (with VARVE_VERBOSE all of its
# output) and exits; in the guest, returns.
in_guest() {
  [ -z "${VM:-}" ] || return 0
  export VARVE_BUILD=${VARVE_BUILD:-$(dirname "$(dirname "$SELF")")/build}
  local status show='^(PASS|FAIL|SKIP|#)'
  [ -z "${VARVE_VERBOSE:-}" ] || show=
  "$(dirname "$SELF")/vm.sh" "$@" "${VARVE_SEED:+VARVE_SEED=$VARVE_SEED }$(printf '%q ' "$SELF" "${PATTERNS[@]}")" | grep -aE --line-buffered "$show"
  status=${PIPESTATUS[0]}
  case $status in
    0 | 1) ;;
    69) echo "SKIP $NAME: the lab's state folder cannot be made" && exit 0 ;;
    *) echo "FAIL $NAME: the guest ended with status $status" ;;
  esac
  exit "$status"
}

is_wanted() { # CHECK
  local i status=1
  [ ${#PATTERNS[@]} = 0 ] && return
  for i in "${!PATTERNS[@]}"; do
    [[ $1 == *${PATTERNS[i]}* ]] || continue
    MATCHED[i]=1
    status=0
  done
  return $status
}

fail() { # WHY...
  echo "why: $*"
  return 1
}

refused() { # COMMAND...: it must fail (`! command` would pass either way under set -e)
  if "$@"; then
    fail "went through: $*"
  fi
}

same() { # WHAT VALUE EXPECTED
  [ "$2" = "$3" ] || fail "$1 is '$2', expected '$3'"
}

# What no test may cause in a kernel, wherever it comes from.
KERNEL_BUGS='WARNING:|BUG:|Oops|Call Trace|general protection|refcount_t|blocked for more than|KASAN|UBSAN'

kernel_log() { # what the kernel said since the check began
  dmesg > /tmp/kernel.log
  grep -q "$LOG_START\$" /tmp/kernel.log || echo "BUG: the kernel's log no longer has '$LOG_START'"
  sed "1,/$LOG_START\$/d" /tmp/kernel.log
}

# shellcheck disable=SC2120  # scripts give it one
kernel_is_silent() { # [WHAT]: no line of the kernel's log since the check began says WHAT (an extended expression)
  local line
  line=$(kernel_log | grep -m 1 -E "${1:-$KERNEL_BUGS}") || return 0
  fail "the kernel complains: $line"
}

# Runs the checks in the order they stand in; after each, after_check (if the script has it) and a look at the kernel's log. A pattern
# that matches none is a failure: a check with another name by now would silently not be run.
run_tests() {
  local t i status failed=0
  # shellcheck disable=SC2013  # names have no spaces
  for t in $(sed -n 's/^\(test_[a-z0-9_]*\)() {.*/\1/p' "${CHECKS:-$SELF}"); do
    is_wanted "$t" || continue
    LOG_START="lab: $t begins"
    echo "$LOG_START" > /dev/kmsg
    T "# $t"
    (
      set -eE
      trap 'echo "line $LINENO: $BASH_COMMAND"' ERR
      "$t"
      kernel_is_silent "$KERNEL_BUGS"
    ) > "/tmp/$t" 2>&1
    status=$?
    if [ $status = 0 ]; then
      echo "PASS $NAME.$t"
    else
      failed=1
      echo "FAIL $NAME.$t: $(grep -aE '^(why|line)' "/tmp/$t" | head -n 2 | tr '\n' ' ')"
      sed 's/^/# | /' "/tmp/$t" | tail -n 40
      kernel_log | grep -E 'nvme|rdma|rxe|siw|WARN|BUG' | tail -n 20 | sed 's/^/# kernel | /'
    fi
    if declare -F after_check > /dev/null; then
      after_check "$status"
    fi
  done
  for i in "${!PATTERNS[@]}"; do
    [ -z "${MATCHED[i]:-}" ] || continue
    failed=1
    echo "FAIL $NAME: no check matches '${PATTERNS[i]}'"
  done
  exit $failed
}
