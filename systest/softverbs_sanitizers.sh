#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# long
# beside
# asan
# The verbs conformance suite with softverbs built for AddressSanitizer and UndefinedBehaviorSanitizer, and for
# ThreadSanitizer: no finding in either process. The test programs find their sanitizer's runtime and preload it before
# the library. `softverbs_sanitizers.sh [address,undefined|thread] [PROGRAM] [PATTERN...]` runs a part of it.
set -u
top=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
only=${1:-} program=${2:-}
shift $(($# < 2 ? $# : 2))
patterns=("$@")
failed=0

export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:log_path=stderr
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=0:exitcode=66:history_size=4
unset VERBS_SUITE_IP SOFTVERBS_LIBRARY

build() { # SANITIZERS FOLDER: only what is run here
  [ -e "$2/build.ninja" ] || meson setup -Db_sanitize="$1" -Db_lundef=false "$2" "$top" || return
  ninja -C "$2" build.ninja || return # so that the list of targets is of today
  # shellcheck disable=SC2046
  ninja -C "$2" softverbs/libsoftverbs.so \
    $(ninja -C "$2" -t targets all | sed -n 's/^\(unittest\/unit-softverbs-[a-z_]*\): .*/\1/p')
}

run() { # SANITIZERS FOLDER
  local log t name status
  [[ $1 == *"$only"* ]] || return 0
  log=$(mktemp)
  if ! build "$1" "$2" > "$log" 2>&1; then
    echo "FAIL softverbs_sanitizers.$1: it does not build: $(tail -n 5 "$log" | tr '\n' '|')"
    failed=1
  else
    for t in "$2"/unittest/unit-softverbs-*"$program"; do
      [ -f "$t" ] || continue
      name=$1.${t##*-}
      if [ "$name" = thread.hostile ]; then
        echo "SKIP softverbs_sanitizers.$name: it writes over what others use, which is a race by intent"
        continue
      fi
      "$t" "${patterns[@]}" > "$log" 2>&1
      status=$?
      # A finding in the other process shows in the log only.
      if [ $status != 0 ] || grep -qE 'Sanitizer|runtime error:' "$log"; then
        echo "FAIL softverbs_sanitizers.$name: status $status: $(grep -E '^FAIL|Sanitizer|runtime error:|^ +#[0-3] ' "$log" |
          head -n 8 | tr '\n' '|')"
        failed=1
      else
        echo "PASS softverbs_sanitizers.$name ($(grep -c ^PASS "$log") tests)"
      fi
    done
  fi
  rm -f "$log"
}

run address,undefined "$top/build-asan"
run thread "$top/build-tsan"
exit $failed
