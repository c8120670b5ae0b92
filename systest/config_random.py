#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# once
"""Random valid configurations, saved, loaded into a fresh daemon and saved again, are the same. $VARVE_SEED repeats a run."""
import json
import os
import random
import sys
import time

from appliance_lib import Daemon, RpcError, check, main
from nvmf_lib import ADDRESS, PORT, preload

SECONDS = 12        # no new round begins after that
STATES = ("optimized", "non_optimized", "inaccessible")


class Maker:
    """Makes a random configuration by calls to a daemon, from what the registry says of their parameters."""

    def __init__(self, d, rng):
        self.d, self.rng, self.made, self.names = d, rng, 0, 0
        self.params = {m["name"]: m["params"] for m in d.call("rpc_describe_methods")}
        self.free = []          # bdevs that nobody has claimed

    def optional(self, method, *leave_out, **given):
        """given, and each simple optional parameter of the method with a chance of one in three."""
        for p in self.params[method]:
            if not p["required"] and p["name"] not in given and p["name"] not in leave_out and self.rng.random() < 0.33:
                value = self.value(p)
                if value is not None:
                    given[p["name"]] = value
        return given

    def value(self, p):
        low, high = p.get("min", 0), p.get("max")
        if "only" in p:
            return p["only"]
        if p["type"] == "boolean":
            return self.rng.random() < 0.5
        if p["type"] == "enum":
            return self.rng.choice(p["values"])
        if p["type"] == "uuid":
            return "%08x-%04x-4%03x-8%03x-%012x" % tuple(self.rng.getrandbits(b) for b in (32, 16, 12, 12, 48))
        if high is not None and p["type"].startswith("uint"):
            return self.rng.randint(low, int(high, 16) if isinstance(high, str) else min(high, low + 1000))
        return None

    def call(self, method, **params):
        """Makes it; what is refused for being out of sense together must leave nothing behind."""
        try:
            answer = self.d.call(method, **params)
        except RpcError:
            return None
        self.made += 1
        return answer

    def name(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def metadata(self):
        return {"md_size": 8, "md_interleave": True, "dif_type": self.rng.randint(0, 3)} if self.rng.random() < 0.2 else {}

    def take(self):
        return self.free.pop(self.rng.randrange(len(self.free))) if self.free else None

    def add(self, bdev):
        if bdev is not None:
            self.free.append(bdev)

    def malloc(self):
        size = self.rng.choice((512, 4096))
        self.add(self.call("bdev_malloc_create", **self.optional("bdev_malloc_create", "md_size", "md_interleave", "dif_type", "numa_id", name=self.name("M"),
                                                                 num_blocks=self.rng.choice((8, 64, 2048)) * 8, block_size=size, **self.metadata())))

    def null(self):
        self.add(self.call("bdev_null_create", **self.optional("bdev_null_create", "md_size", "md_interleave", "dif_type", name=self.name("N"),
                                                               num_blocks=self.rng.randint(8, 1 << 30) * 8, block_size=4096, **({k: v for k, v in self.metadata().items() if k != "md_interleave"}))))

    def file(self):
        name = self.name("F")
        path = self.d.files / name
        path.write_bytes(bytes(self.rng.choice((1, 4)) << 20))
        method = self.rng.choice(("bdev_uring_create", "bdev_aio_create"))
        self.add(self.call(method, **self.optional(method, name=name, filename=str(path), block_size=512)))

    def delay(self):
        base = self.take()
        if base is not None:
            latencies = {f"{p}_{op}_latency": low + self.rng.randint(0, 50) for p, low in (("avg", 0), ("p99", 50)) for op in ("read", "write")}
            self.add(self.call("bdev_delay_create", **self.optional("bdev_delay_create", name=self.name("D"), base_bdev_name=base, **latencies)) or base)

    def error(self):
        base = self.take()
        if base is not None and base.startswith("EE_EE"):
            self.add(base)
        elif base is not None:
            made = self.call("bdev_error_create", **self.optional("bdev_error_create", base_name=base))
            self.add(base if made is None else f"EE_{base}")

    def tune(self):
        if self.free:
            bdev = self.rng.choice(self.free)
            self.call("bdev_set_qos_limit", name=bdev, **{self.rng.choice(("rw_ios_per_sec", "rw_mbytes_per_sec")): self.rng.randint(1, 50) * 1000})
            self.call("bdev_set_qd_sampling_period", name=bdev, period=self.rng.choice((0, 1000, 5000)))
            self.call("bdev_set_timeout", name=bdev, timeout_us=self.rng.choice((0, 1000000)))

    def trigger(self):
        kind = self.rng.choice(("io_error", "qpair_error", "keep_alive_loss", "request_age", "reactor_stall"))
        limit = {"limit_us": self.rng.randint(1, 1000) * 1000000} if kind in ("request_age", "reactor_stall") else {}
        self.call("trace_set_trigger", name=self.name("t"), type=kind, **limit, action=self.rng.choice(("copy", "notify")))

    def subsystem(self):
        nqn = f"nqn.2026-11.io.varve:{self.name('s')}"
        if self.call("nvmf_create_subsystem", **self.optional("nvmf_create_subsystem", "tgt_name", "min_cntlid", "max_cntlid", nqn=nqn,
                                                              serial_number=self.name("SN"), max_namespaces=self.rng.randint(4, 40))) is None:
            return
        for _ in range(self.rng.randint(0, 3)):
            host = f"nqn.2026-11.io.varve:{self.name('h')}"
            self.call("nvmf_subsystem_add_host", nqn=nqn, host=host)
            self.namespace(nqn, host)
        if self.rng.random() < 0.7:
            where = {"trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT + self.rng.randint(0, 1))}
            self.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where)
            self.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=where, ana_state=self.rng.choice(STATES))
            self.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=where, ana_state=self.rng.choice(STATES),
                      anagrpid=self.rng.randint(1, 4))

    def namespace(self, nqn, host):
        bdev = self.take()
        if bdev is None:
            return
        hidden = self.rng.random() < 0.4
        options = {"no_auto_visible": hidden}
        if self.rng.random() < 0.5:
            options["nguid"] = "%032x" % self.rng.getrandbits(128)
        if self.rng.random() < 0.5:
            options["anagrpid"] = self.rng.randint(1, 4)
        nsid = self.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": bdev, **options})
        if nsid is not None and hidden:
            self.call("nvmf_ns_add_host", nqn=nqn, nsid=nsid, host=host)

    def referral(self):
        self.call("nvmf_discovery_add_referral", address={"trtype": "RDMA", "adrfam": "IPv4", "traddr": f"192.0.2.{self.rng.randint(1, 254)}",
                                                          "trsvcid": "4420"})

    def run(self):
        self.call("nvmf_create_transport", trtype="RDMA", max_queue_depth=self.rng.choice((16, 64, 128)), io_unit_size=8192,
                  num_shared_buffers=self.rng.choice((256, 1024)))
        makers = (self.malloc, self.malloc, self.null, self.file, self.delay, self.error, self.tune, self.trigger, self.referral, self.subsystem)
        for _ in range(self.rng.randint(10, 40)):
            self.rng.choice(makers)()
        self.subsystem()


def save(d):
    status, out, err = d.rpc("save_config")
    check(status == 0, err)
    return out


def one(seed):
    """How many calls the configuration took."""
    with Daemon("-s", "256", env=preload()) as d:
        d.files = d.folder
        maker = Maker(d, random.Random(seed))
        maker.run()
        saved = save(d)
        config = d.folder / "config.json"
        config.write_text(saved)
        check(d.stop() == 0, d.log())       # gives its ports back
        with Daemon("-s", "256", "-c", config, env=preload()) as other:
            again = save(other)
            if again != saved:
                different = [(a, b) for a, b in zip(entries(saved), entries(again)) if a != b]
                check(False, f"seed {seed}: {len(entries(saved))} and {len(entries(again))} calls; first: {different[:1]}")
            check(other.stop() == 0, f"seed {seed}: {other.log()}")
    return maker.made


def entries(text):
    return [e for s in json.loads(text)["subsystems"] for e in s["config"] or []]


def test_saving_loading_and_saving_random_configurations_gives_the_same():
    given = os.environ.get("VARVE_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    end, calls, rounds = time.monotonic() + SECONDS, 0, 0
    while rounds == 0 or time.monotonic() < end and not given:
        print(f"# seed {seed}", flush=True)
        calls += one(seed)
        rounds += 1
        seed += 1
    print(f"# {rounds} configurations of {calls} calls")
    check(calls >= 5 * rounds, f"{calls} calls in {rounds} rounds: too little was made")


if __name__ == "__main__":
    main(sys.modules[__name__])
