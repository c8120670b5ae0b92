# SPDX-License-Identifier: BSD-3-Clause
# Debian packages by purpose, and packages_need PURPOSE...: installs those of them that are missing.
# Sourced by the other scripts.

packages_build="gcc libc6-dev meson ninja-build pkg-config python3 libdpdk-dev librdmacm-dev libibverbs-dev
  libnuma-dev libjansson-dev libcunit1-dev libnvme-dev libncurses-dev liburing-dev libisal-dev libbsd-dev libssl-dev
  systemtap-sdt-dev libmicrohttpd-dev libgnutls28-dev"
# What only speeds up one kind of CPU is there for no other.
[ "$(uname -m)" != x86_64 ] || packages_build+=" libipsec-mb-dev"
packages_test="ibverbs-utils rdmacm-utils perftest bpftrace gdb valgrind clang libclang-rt-14-dev libasan8 libubsan1
  libtsan2 linux-perf binutils procps util-linux xz-utils babeltrace2 chromium chromium-driver prometheus mandoc lintian debhelper
  clang-format universal-ctags doxygen git openssl ccache bash-completion zsh fish librbd-dev ceph-mon ceph-mgr ceph-osd
  ceph-common tshark libavahi-client-dev avahi-daemon avahi-utils dbus-daemon iproute2 nftables etcd-server gnutls-bin"
# llvm-cov and llvm-profdata, for scripts/coverage.sh.
packages_cover="clang llvm"
packages_lab="qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 rdma-core ibverbs-providers ibverbs-utils
  rdmacm-utils perftest nvme-cli fio bpftrace pciutils e2fsprogs xfsprogs
  gcc-12 make libelf1 systemd"

packages_need() {
	local missing="" p list
	for list in "$@"; do
		list=packages_$list
		for p in ${!list}; do
			dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing+=" $p"
		done
	done
	[ -n "$missing" ] || return 0
	if ! command -v apt-get >/dev/null; then
		echo "These packages (Debian's names) are needed and missing:$missing" >&2
		return 1
	fi
	local sudo="" log
	[ "$(id -u)" = 0 ] || sudo=sudo
	echo "Installing what is missing:$missing"
	log=$(mktemp)
	if ! { $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q \
		--no-install-recommends $missing; } >"$log" 2>&1; then
		tail -n 15 "$log" >&2
		echo "apt-get could not install them; its output is in $log" >&2
		return 1
	fi
	rm -f "$log"
}
