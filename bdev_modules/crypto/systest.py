# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with crypto bdevs: systest/module_lib.py says what these names mean."""
from appliance_lib import wait_for
from stock_lib import NO_DEVICE, Error

PASSING = {"accel_crypto_keys_get", "bdev_crypto_rekey_stop"}
KEY, KEY2 = "0123456789abcdef" * 2, "fedcba9876543210" * 2


class Steps:
    STEPS = ("crypto", "delete_crypto", "crypto_key", "destroy_crypto_key", "rekey_crypto")

    def crypto_key(self):
        """In the keyring, and so in the saved configuration."""
        ring, name = self.name("ring"), self.name("K")
        path = self.d.folder / f"{ring}.hex"
        path.touch(mode=0o600)
        path.write_text(self.rng.randbytes(self.rng.choice((32, 64))).hex() + "\n")
        self.call("keyring_file_add_key", name=ring, path=str(path))
        self.call("accel_crypto_key_create", name=name, cipher="AES_XTS", keyring_key=ring)
        return name

    def destroy_crypto_key(self):
        self.call("accel_crypto_key_destroy", key_name=self.crypto_key())

    def crypto(self):
        base = self.take()
        if base is not None:
            made = self.call("bdev_crypto_create", name=self.name("C"), base_bdev_name=base, key_name=self.crypto_key())
            if made is None:
                self.free.append(base)      # its blocks have metadata
            else:
                self.add("crypto", made)

    def new_crypto(self):
        base = self.call("bdev_malloc_create", num_blocks=2048, block_size=512, name=self.name("M"))
        self.add("crypto", self.call("bdev_crypto_create", name=self.name("C"), base_bdev_name=base, key_name=self.crypto_key()))

    def rekey_crypto(self):
        base = self.call("bdev_malloc_create", num_blocks=2048, block_size=512, name=self.name("M"))
        journal = self.call("bdev_malloc_create", num_blocks=4096, block_size=512, name=self.name("M"))
        old, new = self.crypto_key(), self.crypto_key()
        name = self.call("bdev_crypto_create", name=self.name("C"), base_bdev_name=base, key_name=old)
        self.call("bdev_crypto_rekey", name=name, key_name=new, journal_bdev_name=journal)
        wait_for(lambda: "rekey" not in self.d.call("bdev_get_bdevs", name=name)[0]["driver_specific"]["crypto"], "the rekey to end")
        self.call("accel_crypto_key_destroy", key_name=old)
        self.call("bdev_malloc_delete", name=journal)
        self.add("crypto", name)

    def delete_crypto(self):
        self.delete_bdev("crypto", self.new_crypto)


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=32768, block_size=512)
    call("accel_crypto_key_create", name="key0", cipher="AES_XTS", key=KEY, key2=KEY2)
    call("accel_crypto_keys_get")
    call("bdev_crypto_create", name="crypto0", base_bdev_name="base0", key_name="key0")
    call("bdev_get_bdevs", name="crypto0")
    call("bdev_malloc_create", name="journal0", num_blocks=4096, block_size=512)
    call("accel_crypto_key_create", name="key1", cipher="AES_XTS", key=KEY2, key2=KEY)
    call("bdev_crypto_rekey", name="crypto0", key_name="key1", journal_bdev_name="journal0", mib_per_second=1)
    call("bdev_get_bdevs", name="crypto0")
    call("bdev_crypto_rekey_stop", name="crypto0")
    call("bdev_get_bdevs", name="crypto0")
    call("bdev_crypto_delete", name="crypto0")
    call("accel_crypto_key_destroy", key_name="key0")
    call("accel_crypto_key_destroy", key_name="key1")
    call("bdev_malloc_delete", name="journal0")
    call("bdev_malloc_delete", name="base0")


def stock(folder):
    key = {"cipher": "AES_XTS", "key": KEY, "key2": KEY2, "name": "Key0"}
    return [
        ("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, "name": "Base0"}, "Base0"),
        ("bdev_crypto_create", {"base_bdev_name": "Base0", "name": "C0", "key_name": "Key0"}, Error(-2, "Key0")),
        ("accel_crypto_key_create", key, True),
        ("accel_crypto_key_create", key, Error(-17, "Key0")),
        ("accel_crypto_keys_get", {}, lambda a: [k["name"] for k in a] == ["Key0"] and KEY not in str(a)),
        ("bdev_crypto_create", {"base_bdev_name": "Base0", "name": "C0", "key_name": "Key0"}, "C0"),
        ("bdev_get_bdevs", {"name": "C0"}, lambda a: a[0]["product_name"] == "crypto" and
         a[0]["driver_specific"] == {"crypto": {"base_bdev_name": "Base0", "name": "C0", "key_name": "Key0"}}),
        ("accel_crypto_key_destroy", {"key_name": "Key0"}, Error(-16, "in use")),
        ("bdev_crypto_delete", {"name": "C0"}, True),
        ("bdev_crypto_delete", {"name": "C0"}, Error(NO_DEVICE, "C0")),
        ("accel_crypto_key_destroy", {"key_name": "Key0"}, True),
        ("bdev_crypto_create", {"base_bdev_name": "Base0", "name": "C0", "crypto_pmd": "crypto_aesni_mb", "key": KEY, "key2": KEY2, "cipher": "AES_XTS"}, "C0"),
        ("bdev_crypto_delete", {"name": "C0"}, True),
        ("accel_crypto_keys_get", {}, []),
        ("bdev_malloc_delete", {"name": "Base0"}, True),
    ]
