# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by vm.sh: builds what Debian's kernel leaves out (siw, nvme-loop, vfio with no-IOMMU mode; in auth/ the NVMe host and target with
# in-band authentication, in place of Debian's, and the DH groups that it wants) as modules for it, from Debian's own source package, into $LAB_EXTRA; once, also when several runs start together. LAB_EXTRA is named after what it is made from, so
# that trees of different age can share a state folder. Fetches 160 MB, which it does not keep; half a minute.
# In the guest: modprobe what they depend on, then insmod $EXTRA/X.ko.

lab_extra_name() {
  LAB_EXTRA=$LAB/extra-$({ echo "$KVER"; cat "$HERE/lab/modules.sh"; } | sha256sum | cut -c 1-12)
}

lab_modules() {
  local w
  lab_extra_name
  exec 8> "$LAB/lock.modules" # not lab_setup's: other guests may start meanwhile
  flock 8
  [ ! -e "$LAB_EXTRA" ] || return 0
  lab_check_compiler
  w=$(mktemp -d "$LAB/tmp.XXXXXX")
  # shellcheck disable=SC2064  # the folder is known now, and not when the trap runs
  trap "rm -rf '$w'" EXIT
  cd "$w"
  lab_fetch_sources
  lab_build_modules "$w" > log 2>&1 || { tail -n 30 log >&2; echo "vm.sh: the kernel's modules do not build" >&2; exit 1; }
  mv extra "$LAB_EXTRA"
}

lab_check_compiler() {
  local missing='' p
  for p in gcc-12 make; do command -v $p > /dev/null || missing+=" $p"; done
  [ -z "$missing" ] || lab_die "missing on this machine: apt-get install$missing"
}

lab_fetch() { # PACKAGE...
  apt-get download -qq -o APT::Sandbox::User=root "$@" >&2 ||
    lab_die "the kernel's sources cannot be fetched: apt-get download $* failed (a version that the mirror no longer has?)"
}

lab_fetch_sources() { # the source must be that of the headers, or the modules do not fit
  local series version
  series=$(cut -d. -f1,2 <<< "$KVER")
  echo "vm.sh: building the kernel's modules that Debian leaves out (once)" >&2
  lab_fetch "linux-headers-$KVER"
  version=$(dpkg-deb -f linux-headers-*.deb Version)
  lab_fetch "linux-headers-${KVER%-*}-common=$version" "linux-kbuild-$series=$version" "linux-source-$series=$version"
}

lab_build_modules() { # FOLDER, the current one: from its packages to its extra/
  local w=$1 d k=$1/h/usr/src/linux-headers-$KVER
  mkdir h src extra
  for d in linux-headers-*.deb linux-kbuild-*.deb; do dpkg -x "$d" h || return; done
  dpkg --fsys-tarfile linux-source-*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc -T0 |
    tar -x -C src --strip-components=1 --wildcards '*/drivers/infiniband/sw/siw/*' '*/drivers/nvme/*' '*/drivers/vfio/*' \
      '*/crypto/dh.c' '*/crypto/dh_helper.c' || return
  sed -i "s|^include /usr/src|include $w/h/usr/src|" "$k/Makefile"
  cp -r src/drivers/nvme src/drivers/nvme-auth
  printf 'obj-m := nvme-loop.o\nnvme-loop-y := loop.o\n' > src/drivers/nvme/target/Kbuild
  build() { # FOLDER of drivers/, make's arguments
    make -s -j"$(nproc)" -C "$k" M="$w/src/drivers/$1" modules "${@:2}"
  }
  build infiniband/sw/siw CONFIG_RDMA_SIW=m &&
    lab_build_auth &&
    build nvme/target &&
    build vfio CONFIG_VFIO_NOIOMMU=y CONFIG_VFIO_MDEV= CONFIG_VFIO_PLATFORM= CONFIG_VFIO_FSL_MC= KCFLAGS=-DCONFIG_VFIO_NOIOMMU=1 &&
    find src -name '*.ko' -exec cp -t extra {} + &&
    strip -g extra/*.ko
}

# dh.c is in Debian's kernel, but for the groups of RFC 7919: what it has already is taken out of this one.
lab_build_auth() {
  mkdir extra/auth src/drivers/ffdhe || return
  sed 's/err = crypto_register_kpp(&dh);/err = 0;/; s/crypto_unregister_kpp(&dh);//' src/crypto/dh.c > src/drivers/ffdhe/dh.c
  sed '/^EXPORT_SYMBOL/d' src/crypto/dh_helper.c > src/drivers/ffdhe/dh_helper.c
  printf 'obj-m := ffdhe.o\nffdhe-y := dh.o dh_helper.o\n' > src/drivers/ffdhe/Kbuild
  build ffdhe KCFLAGS=-DCONFIG_CRYPTO_DH_RFC7919_GROUPS=1 &&
    build nvme-auth CONFIG_NVME_COMMON=m CONFIG_NVME_AUTH=y CONFIG_NVME_TARGET_AUTH=y CONFIG_BLK_DEV_NVME= CONFIG_NVME_TCP= \
      CONFIG_NVME_FC= CONFIG_NVME_TARGET_TCP= CONFIG_NVME_TARGET_FC= \
      KCFLAGS='-DCONFIG_NVME_COMMON_MODULE=1 -DCONFIG_NVME_AUTH=1 -DCONFIG_NVME_TARGET_AUTH=1' &&
    find src/drivers/nvme-auth src/drivers/ffdhe -name '*.ko' -exec mv -t extra/auth {} + &&
    strip -g extra/auth/*.ko
}
