# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by process 1 of a guest with -S, which becomes systemd. It sees these units of Debian's and no others (a boot of all takes an
# emulated CPU minutes), what the command puts beside them, and one that runs the command and ends the guest.
units=/run/systemd/system
mkdir -p $units
for u in basic shutdown sysinit umount final network-online network remote-fs local-fs sockets; do
  printf '[Unit]\nDescription=%s of the lab\n' $u > $units/$u.target
done
for u in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket modprobe@.service; do
  cp /lib/systemd/system/$u $units/
done
mkdir $units/sysinit.target.wants
ln -s ../systemd-journald.service $units/sysinit.target.wants/

# Core dumps as systemd-coredump's package has them kept.
cp "$VARVE_LAB"/coredump/lib/systemd/system/systemd-coredump* $units/
cp "$VARVE_LAB/coredump/lib/systemd/systemd-coredump" /lib/systemd/
cp "$VARVE_LAB/coredump/usr/bin/coredumpctl" /usr/bin/
mkdir $units/sockets.target.wants
ln -s ../systemd-coredump.socket $units/sockets.target.wants/
sed -n 's/^kernel.core_pattern=//p' "$VARVE_LAB/coredump/usr/lib/sysctl.d/50-coredump.conf" > /proc/sys/kernel/core_pattern

cat > $units/lab.service << EOF
[Unit]
Requires=sysinit.target sockets.target
After=sysinit.target sockets.target
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/bash /out/run
TimeoutStartSec=infinity
LimitMEMLOCK=infinity
EOF
export SYSTEMD_UNIT_PATH=$units container=
exec /lib/systemd/systemd --unit=lab.service --log-target=journal --show-status=no
