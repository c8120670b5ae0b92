# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with delay bdevs: systest/module_lib.py says what these names mean."""


class Steps:
    STEPS = ("delay", "new_latency", "delete_delay")

    def delay(self):
        base = self.take()
        if base is not None:
            latencies = {f"{p}_{op}_latency": low + self.rng.randint(0, 50) for p, low in (("avg", 0), ("p99", 50)) for op in ("read", "write")}
            made = self.call("bdev_delay_create", **self.optional("bdev_delay_create", name=self.name("D"), base_bdev_name=base, **latencies))
            self.add("delay", made)

    def new_delay(self):
        self.malloc()
        self.delay()

    def new_latency(self):
        if not self.of_kind.get("delay"):
            self.new_delay()
        if self.of_kind.get("delay"):
            self.call("bdev_delay_update_latency", delay_bdev_name=self.rng.choice(self.of_kind["delay"]),
                      latency_type=self.rng.choice(("p99_read", "p99_write", "p999_read", "p999_write")), latency_us=self.rng.randint(200, 1000))

    def delete_delay(self):
        self.delete_bdev("delay", self.new_delay)


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=2048, block_size=512)
    call("bdev_delay_create", name="delay0", base_bdev_name="base0", avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
    call("bdev_delay_update_latency", delay_bdev_name="delay0", latency_type="avg_read", latency_us=2)
    call("bdev_delay_delete", name="delay0")
    call("bdev_malloc_delete", name="base0")


def stock(folder):
    return [
        ("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, "name": "Base0"}, "Base0"),
        ("bdev_delay_create", {"base_bdev_name": "Base0", "name": "D0", "avg_read_latency": 10, "p99_read_latency": 20, "avg_write_latency": 10,
                               "p99_write_latency": 20}, "D0"),
        ("bdev_delay_update_latency", {"delay_bdev_name": "D0", "latency_type": "p99_write", "latency_us": 30}, True),
        ("bdev_delay_delete", {"name": "D0"}, True),
    ]
