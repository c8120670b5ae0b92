#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what dhchap/ should compute, computed here by other means: Python's hmac, hashlib, zlib and pow()."""
import base64
import hashlib
import hmac
import struct
import zlib

HOSTNQN = "nqn.2024-01.io.varve:host"
SUBNQN = "nqn.2024-01.io.varve:test"
HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
# RFC 7919, appendix A: bits, X
GROUPS = {1: (2048, 560316), 2: (3072, 2625351), 3: (4096, 5736041), 4: (6144, 15705020), 5: (8192, 10965728)}


def secret_bytes(length, seed):
    return bytes((seed + 7 * i) & 0xff for i in range(length))


def secret_text(secret, transform):
    crc = struct.pack("<I", zlib.crc32(secret))
    return f"DHHC-1:{transform:02}:{base64.b64encode(secret + crc).decode()}:"


def transform(secret, how, nqn):
    return secret if how == 0 else hmac.new(secret, nqn.encode() + b"NVMe-over-Fabrics", HASHES[how]).digest()


def respond(key, name, challenge, seqnum, t_id, who, first, second, shared, sc_c=0):
    if shared:
        challenge = hmac.new(hashlib.new(name, shared).digest(), challenge, name).digest()
    message = challenge + struct.pack("<IHB", seqnum, t_id, sc_c) + who.encode() + first.encode() + b"\0" + second.encode()
    return hmac.new(key, message, name).digest()


def generate_psk(name, shared, of_ctrlr, of_host):
    return hmac.new(hashlib.new(name, shared).digest(), of_ctrlr + of_host, name).digest()


def euler(bits):
    """floor(2**bits * e)"""
    guard = bits + 64
    total = term = 1 << guard
    n = 1
    while term:
        term //= n
        total += term
        n += 1
    return total >> 64


def prime(bits, x):
    return (1 << bits) - (1 << bits - 64) + (euler(bits - 130) + x) * (1 << 64) - 1


def c_bytes(data):
    return "{" + ", ".join(f"0x{x:02x}" for x in data) + "}"


def responses():
    for number in range(12):
        length, how = (32, 48, 64)[number % 3], number % 4
        hash_id = 1 + number % 3
        name, of_host = HASHES[hash_id], number % 2 == 0
        secret = secret_bytes(length, number)
        challenge = secret_bytes(hashlib.new(name).digest_size, 100 + number)
        shared = secret_bytes(256, 200 + number) if number >= 6 else b""
        seqnum, t_id = 0x10203040 + number, 0xfff0 + number
        first, second = (HOSTNQN, SUBNQN) if of_host else (SUBNQN, HOSTNQN)
        key = transform(secret, how, first)
        sc_c = (0, 2, 3)[number % 3] if shared else 0
        answer = respond(key, name, challenge, seqnum, t_id, "HostHost" if of_host else "Controller", first, second, shared, sc_c)
        print(f'\t{{"{secret_text(secret, how)}", {how}, {length}, {c_bytes(secret)}, {c_bytes(key)}, {len(key)}, {hash_id}, '
              f'{str(of_host).lower()},\n\t 0x{seqnum:08x}, 0x{t_id:04x}, {c_bytes(challenge)}, {c_bytes(shared or bytes(1))}, {len(shared)}, '
              f'{c_bytes(answer)}, {sc_c}}},')


def psks():
    for number, (hash_id, name) in enumerate(HASHES.items()):
        shared, size = secret_bytes((256, 384, 1024)[number], 30 + number), hashlib.new(name).digest_size
        of_ctrlr, of_host = secret_bytes(size, 40 + number), secret_bytes(size, 50 + number)
        print(f"\t{{{hash_id}, {c_bytes(shared)}, {len(shared)}, {c_bytes(of_ctrlr)}, {c_bytes(of_host)}, "
              f"{c_bytes(generate_psk(name, shared, of_ctrlr, of_host))}}},")


def main():
    print(f'#define VECTOR_HOSTNQN "{HOSTNQN}"\n#define VECTOR_SUBNQN "{SUBNQN}"')
    print("static const struct response_vector response_vectors[] = {")
    responses()
    print("};\nstatic const struct psk_vector psk_vectors[] = {")
    psks()
    print("};\nstatic const struct group_vector group_vectors[] = {")
    for group, (bits, x) in GROUPS.items():
        p = prime(bits, x)
        private = int.from_bytes(hashlib.sha512(bytes([group])).digest(), "big")
        print(f'\t{{{group}, {bits // 8}, "{p:X}", "{private:X}", "{pow(2, private, p):X}"}},')
    print("};")


if __name__ == "__main__":
    main()
