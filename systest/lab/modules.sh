#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds what Debian's kernel leaves out (siw, nvme-loop, vfio with no-IOMMU mode) as modules for it, from Debian's own
# source package, into $VARVE_LAB/extra. In the guest: modprobe what they depend on, then insmod $VARVE_LAB/extra/X.ko.
# Optional: nothing else needs them. Needs gcc-12 and make; fetches 160 MB; half a minute.
set -euo pipefail
HERE=$(cd "$(dirname "$0")/.." && pwd)
"$HERE/vm.sh" --setup
LAB=$(cd "${VARVE_LAB:-$(dirname "$HERE")/.lab}" && pwd)
KVER=${KVER:-$(find "$LAB/k/lib/modules" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -n 1)}
SERIES=$(cut -d. -f1,2 <<< "$KVER")

W=$LAB/modbuild
mkdir -p "$W/h" "$W/src" "$LAB/extra"
cd "$W"
apt-get download -qq -o APT::Sandbox::User=root "linux-headers-$KVER" "linux-headers-${KVER%-amd64}-common" \
  "linux-kbuild-$SERIES" "linux-source-$SERIES"
for d in linux-headers-*.deb linux-kbuild-*.deb; do dpkg -x "$d" h; done
dpkg --fsys-tarfile "linux-source-${SERIES}"_*.deb | tar -xO "./usr/src/linux-source-$SERIES.tar.xz" | xz -dc -T0 |
  tar -x -C src --strip-components=1 --wildcards '*/drivers/infiniband/sw/siw/*' \
    '*/drivers/nvme/target/*' '*/drivers/nvme/host/*.h' '*/drivers/vfio/*'

K=$W/h/usr/src/linux-headers-$KVER
sed -i "s|^include /usr/src|include $W/h/usr/src|" "$K/Makefile"
printf 'obj-m := nvme-loop.o\nnvme-loop-y := loop.o\n' > src/drivers/nvme/target/Kbuild
build() { # FOLDER of drivers/, make's arguments
  make -s -j"$(nproc)" -C "$K" M="$W/src/drivers/$1" modules "${@:2}"
}
build infiniband/sw/siw CONFIG_RDMA_SIW=m
build nvme/target
build vfio CONFIG_VFIO_NOIOMMU=y CONFIG_VFIO_MDEV= CONFIG_VFIO_PLATFORM= CONFIG_VFIO_FSL_MC= KCFLAGS=-DCONFIG_VFIO_NOIOMMU=1
find src -name '*.ko' -exec cp -t "$LAB/extra" {} +
strip -g "$LAB"/extra/*.ko
