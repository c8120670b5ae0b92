#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what tls/psk.c should compute, computed here by other means: Python's hmac, hashlib and zlib."""
import base64
import hashlib
import hmac
import struct
import zlib

HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
SUBNQN = "nqn.2026-11.io.varve:tls"
NAMES = {1: "sha256", 2: "sha384"}


def text(key, how):
    return f"NVMeTLSkey-1:{how:02}:{base64.b64encode(key + struct.pack('<I', zlib.crc32(key))).decode()}:"


def hkdf(name, key, info, length):
    """RFC 5869 with any number of blocks."""
    prk = hmac.new(bytes(hashlib.new(name).digest_size), key, name).digest()
    out = block = b""
    while len(out) < length:
        block = hmac.new(prk, block + info + bytes([len(out) // len(prk) + 1]), name).digest()
        out += block
    return out[:length]


def label(length, name, context, compat):
    name, context = b"tls13 " + name, context.encode()
    if compat:
        return struct.pack("<H", length) + name + context
    return struct.pack(">HB", length, len(name)) + name + bytes([len(context)]) + context


def credential(key, how, version, compat=0, hostnqn=HOSTNQN, subnqn=SUBNQN):
    """Identity and TLS PSK."""
    use = how or {32: 1, 48: 2}[len(key)]
    name, length = NAMES[use], len(key)
    retained = key if how == 0 else hkdf(name, key, label(length, b"HostNQN", hostnqn, compat), length)
    digest = base64.b64encode(hmac.new(retained, f"{hostnqn} {subnqn} NVMe-over-Fabrics".encode(), name).digest()).decode()
    identity = f"NVMe{version}R{use:02} {hostnqn} {subnqn}" + (f" {digest}" if version == 1 else "")
    context = f"{use:02} {digest}" if version == 1 else identity
    return identity, hkdf(name, retained, label(length, b"nvme-tls-psk", context, compat), length)


def generated_credential(psk, use, hostnqn=HOSTNQN, subnqn=SUBNQN):
    """The same of a PSK that was generated in an authentication with that hash function."""
    name = NAMES[use]
    digest = base64.b64encode(hmac.new(psk, f"{hostnqn} {subnqn} NVMe-over-Fabrics".encode(), name).digest()).decode()
    return f"NVMe1G{use:02} {hostnqn} {subnqn} {digest}", hkdf(name, psk, label(len(psk), b"nvme-tls-psk", f"{use:02} {digest}", 0), len(psk))


def main():
    print(f'#define HOSTNQN "{HOSTNQN}"\n#define SUBNQN "{SUBNQN}"')
    print("static const struct vector { const char *text; unsigned hash, len, version; int compat; const char *identity; unsigned char key[48]; }"
          " vectors[] = {")
    for how, length in ((0, 32), (0, 48), (1, 32), (2, 48)):
        key = bytes((3 + 11 * i) & 0xff for i in range(length))
        for version in (0, 1):
            for compat in (0, 1):
                identity, psk = credential(key, how, version, compat)
                print(f'{{"{text(key, how)}", {how}, {length}, {version}, {compat}, "{identity}", {{{", ".join(map(hex, psk))}}}}},')
    print("};")
    print("static const struct { unsigned hash; unsigned char psk[48]; const char *identity; unsigned char key[48]; } generated[] = {")
    for use, length in ((1, 32), (2, 48)):
        psk = bytes((5 + 17 * i) & 0xff for i in range(length))
        identity, key = generated_credential(psk, use)
        print(f'{{{use}, {{{", ".join(map(hex, psk))}}}, "{identity}", {{{", ".join(map(hex, key))}}}}},')
    print("};")


if __name__ == "__main__":
    main()
