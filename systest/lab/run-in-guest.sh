# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Process 1 of the guest (with -S: what systemd starts), in the host's root: runs /out/cmd with its output on the result
# port, leaves the status in /out/rc, and ends the guest (QEMU has -no-reboot).
. /out/vars
export ADDR TREE VARVE_BUILD VARVE_LAB EXTRA VM=1 HOME=/root TERM=dumb LANG=C # a language is files, which each program reads from the host
export BASH_ENV=$TREE/systest/lab/guest.sh # the functions for the command
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited
ulimit -c 0
if [ -n "$SYSTEMD" ] && [ $$ = 1 ]; then
  . "$TREE/systest/lab/systemd.sh" # does not come back
fi
# For who is cut off and wants to know where: that the guest came as far as this, and what runs shortly before the limit.
tell_what_runs() {
  local d command up
  echo "lab: the command begins"
  read -r up _ < /proc/uptime
  sleep $((LIMIT - 30 - ${up%.*}))
  echo "lab: 30 s before the limit; process, state, where in the kernel, command:"
  for d in /proc/[0-9]*; do
    command=$(tr '\0' ' ' < "$d/cmdline")
    [ -z "$command" ] || # a thread of the kernel's
      echo "lab: ${d#/proc/} $(sed -n 's/^State:\t//p' "$d/status") $(cat "$d/wchan") ${command:0:100}"
  done
}
[ "$LIMIT" -lt 60 ] || tell_what_runs > /dev/console 2> /dev/null < /dev/null &
exec {PAUSE}<> <(:) # for await: a pipe into which nobody writes
export PAUSE
cd "$CWD" || cd /
for port in /dev/vport*p1; do
  bash /out/cmd < /dev/null > "$port" 2>&1
done
echo $? > /out/rc
echo b > /proc/sysrq-trigger
