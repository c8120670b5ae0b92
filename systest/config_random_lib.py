# SPDX-License-Identifier: BSD-3-Clause
"""Makers of random configurations: each step is one thing that an operator may do, with what it may be done to chosen at random."""
from appliance_lib import RpcError, check, wait_for
from auth import DIGESTS, GROUPS, secret
from module_lib import of_modules
from nvmf_lib import ADDRESS, PORT, Target
from nvmf_tls_lib import KEYS as TLS_KEYS
from nvmf_tls_lib import add_keys as add_tls_keys

DOMAIN = "nqn.2026-11.io.varve"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOST = f"{DOMAIN}:front"
STATES = ("optimized", "non_optimized", "inaccessible", "persistent_loss", "change")
SECRETS = {f"key{i}": secret(i, length, transform) for i, (length, transform) in enumerate(((32, 0), (32, 1), (48, 2), (64, 3)))}
BACK_PORTS = (PORT + 20000, PORT + 20001)
LISTED_PORT = PORT + 20002
TRANSPORTS = ("RDMA", "TCP")


def write_keys(folder):
    """Their paths by name."""
    paths = {}
    for name, text in SECRETS.items():
        paths[name] = folder / f"{name}.key"
        paths[name].touch(mode=0o600)
        paths[name].write_text(text + "\n")
    return paths


class Back(Target):
    """What remote controllers are: two subsystems on two ports each, one that wants to be convinced, and one that a discovery service lists. All
    are served over each transport."""

    def __init__(self):
        super().__init__(port=BACK_PORTS[0])
        try:
            self.call("nvmf_create_transport", trtype="TCP")
            for name, path in write_keys(self.folder).items():
                self.call("keyring_file_add_key", name=name, path=str(path))
            for n in range(2):
                self.export(f"{DOMAIN}:b{n}", BACK_PORTS)
            self.export(f"{DOMAIN}:secret", BACK_PORTS[:1], allow_any_host=False)
            self.call("nvmf_subsystem_add_host", nqn=f"{DOMAIN}:secret", host=HOST, dhchap_key="key0", dhchap_ctrlr_key="key3")
            self.call("nvmf_create_target", name="listed")
            for trtype in TRANSPORTS:
                self.call("nvmf_create_transport", trtype=trtype, tgt_name="listed")
            self.export(f"{DOMAIN}:listed", (LISTED_PORT,), tgt_name="listed")
            self.listen(DISCOVERY, LISTED_PORT, "listed")
        except BaseException:
            self.__exit__()
            raise

    def export(self, nqn, ports, tgt_name="nvmf_tgt", **params):
        self.call("nvmf_create_subsystem", nqn=nqn, tgt_name=tgt_name, **{"serial_number": "BACK", "allow_any_host": True, "ana_reporting": True, **params})
        for n in range(2):
            name = f"{nqn.rsplit(':', 1)[1]}-{n}"
            self.add_malloc(name, mb=1)
            self.call("nvmf_subsystem_add_ns", nqn=nqn, tgt_name=tgt_name, namespace={"bdev_name": name})
        for port in ports:
            self.listen(nqn, port, tgt_name)

    def listen(self, nqn, port, tgt_name):
        for trtype in TRANSPORTS:
            self.call("nvmf_subsystem_add_listener", nqn=nqn, tgt_name=tgt_name, listen_address=where(port, trtype))


def where(port, trtype):
    return {"trtype": trtype, "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(port)}


def saved(d):
    """What save_config makes its file of."""
    client = d.client()
    try:
        return {s["subsystem"]: client.call("framework_get_config", name=s["subsystem"], whole=True) for s in client.call("framework_get_subsystems")}
    finally:
        client.close()


class Session:
    """Calls to a daemon, random values for what the registry says of parameters, and which methods have changed what is saved."""

    def __init__(self, d, rng):
        self.d, self.rng, self.made, self.names = d, rng, 0, 0
        self.params = {m["name"]: m["params"] for m in d.call("rpc_describe_methods")}
        self.effective = set()      # methods that were seen to change what is saved
        self.before = None

    def optional(self, method, *leave_out, **given):
        """given, and each simple optional parameter of the method with a chance of one in three."""
        for p in self.params[method]:
            if not p["required"] and p["name"] not in given and p["name"] not in leave_out and self.chance(0.33):
                value = self.value(p)
                if value is not None:
                    given[p["name"]] = value
        return given

    def value(self, p):
        low, high = p.get("min", 0), p.get("max")
        if "only" in p:
            return p["only"]
        if p["type"] == "boolean":
            return self.chance(0.5)
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
        now = saved(self.d)
        if now != self.before:
            self.effective.add(method)
            self.before = now
        return answer

    def chance(self, part):
        return self.rng.random() < part

    def some(self, of):
        return [x for x in of if self.chance(0.5)] or [self.rng.choice(of)]

    def name(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def spare(self, things, make):
        """Takes one of several things, and makes more of them first if it would be the last."""
        for _ in range(20):
            if len(things) >= 2:
                break
            make()
        check(len(things) >= 2, f"20 times in vain: {make.__name__}")
        return things.pop(self.rng.randrange(len(things)))


class Bdevs(Session):
    """What the Steps of modules stand on (module_lib.py)."""

    def __init__(self, *args):
        super().__init__(*args)
        self.free = []              # bdevs that nobody has claimed
        self.qos_groups = []
        self.of_kind = {}           # made by bdev_KIND_create, and not claimed by what bdev_*_delete would take along

    def metadata(self):
        if not self.chance(0.2):
            return {}
        longer = {"md_size": 16, "dif_pi_format": self.rng.randint(0, 2)} if self.chance(0.5) else {"md_size": 8}
        return {**longer, "md_interleave": self.chance(0.5), "dif_type": self.rng.randint(0, 3)}

    def take(self):
        if not self.free:
            return None
        bdev = self.free.pop(self.rng.randrange(len(self.free)))
        for names in self.of_kind.values():
            names[:] = [n for n in names if n != bdev]
        return bdev

    def add(self, kind, bdev):
        if bdev is not None:
            self.free.append(bdev)
            self.of_kind.setdefault(kind, []).append(bdev)

    def tune(self):
        if self.free:
            bdev = self.rng.choice(self.free)
            limits = self.some(("rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec"))
            self.call("bdev_set_qos_limit", name=bdev, **{limit: self.rng.randint(1, 50) * 1000 for limit in limits})
            self.call("bdev_set_qd_sampling_period", name=bdev, period=self.rng.choice((0, 1000, 5000)))
            self.call("bdev_set_timeout", name=bdev, timeout_us=self.rng.choice((0, 1000000)))
            self.call("bdev_enable_histogram", **self.optional("bdev_enable_histogram", name=bdev, enable=self.chance(0.8),
                                                               **({"opc": self.rng.choice(("read", "write"))} if self.chance(0.5) else {})))

    def qos_group(self):
        name, limits = self.name("qg"), ("rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec")
        if self.call("bdev_qos_group_create", name=name, **({"rw_ios_per_sec": self.rng.randint(1, 1000)} if self.chance(0.5) else {})):
            self.qos_groups.append(name)
            self.call("bdev_qos_group_set_limit", name=name, rw_ios_per_sec=self.rng.randint(1000, 50000), burst_ms=self.rng.randint(5, 1000),
                      **{limit: self.rng.randint(1000, 50000) for limit in self.some(limits[1:])})

    def join_qos_group(self):
        """Or leave it, or change the minimums."""
        if not self.qos_groups:
            self.qos_group()
        if self.free:
            bdev = self.rng.choice(self.free)
            minimums = self.some(("min_rw_ios_per_sec", "min_rw_mbytes_per_sec", "min_r_mbytes_per_sec", "min_w_mbytes_per_sec"))
            self.call("bdev_set_qos_group", name=bdev, group=self.rng.choice(self.qos_groups), **{m: self.rng.randint(0, 100) for m in minimums})
            if self.chance(0.3):
                self.call("bdev_set_qos_group", name=bdev, min_rw_ios_per_sec=self.rng.randint(1, 100))
            if self.chance(0.2):
                self.call("bdev_set_qos_group", name=bdev, group="")

    def delete_qos_group(self):
        self.call("bdev_qos_group_delete", name=self.spare(self.qos_groups, self.qos_group))

    def delete_bdev(self, kind, make):
        """Deletes one of a kind; make() makes another if there is only one."""
        name = self.spare(self.of_kind.setdefault(kind, []), make)
        self.free.remove(name)
        self.call(f"bdev_{kind}_delete", name=name)


class Keys(Session):
    def __init__(self, *args):
        super().__init__(*args)
        self.key_files = write_keys(self.d.folder)
        self.unused_keys = []
        for name, path in self.key_files.items():
            self.call("keyring_file_add_key", name=name, path=str(path))
        add_tls_keys(self.d)

    def key(self):
        name = self.name("k")
        if self.call("keyring_file_add_key", name=name, path=str(self.rng.choice(list(self.key_files.values())))):
            self.unused_keys.append(name)

    def remove_key(self):
        self.call("keyring_file_remove_key", name=self.spare(self.unused_keys, self.key))

    def some_keys(self):
        """For a host: none, its own, or also the controller's."""
        names = ("dhchap_key", "dhchap_ctrlr_key")[:self.rng.randint(0, 2)]
        return {n: self.rng.choice(list(self.key_files)) for n in names}

    def some_psk(self):
        return {"psk": self.rng.choice(list(TLS_KEYS))} if self.chance(0.3) else {}


class Subsystems(Bdevs, Keys):
    """Two targets, and what they have. A subsystem here is {"nqn", "tgt_name"}; what it has, a list of parameters that find it again."""

    def __init__(self, *args):
        super().__init__(*args)
        self.targets, self.subsystems, self.hosts, self.namespaces, self.listeners, self.hidden, self.referrals = [], [], [], [], [], [], []
        self.transport("nvmf_tgt")
        self.target()

    def transport(self, tgt):
        self.call("nvmf_create_transport", **self.optional(
            "nvmf_create_transport", "acceptor_backlog", "num_cqe", trtype="RDMA", tgt_name=tgt,
            max_queue_depth=self.rng.choice((16, 64, 128)), io_unit_size=8192, num_shared_buffers=self.rng.choice((256, 1024)),
            masked_oncs=self.some(("nvmcmps", "nvmdsmsv", "nvmwzsv", "reservs", "nvmcpys")), masked_fuses=self.some(("fcws",))))
        self.call("nvmf_create_transport", **self.optional(
            "nvmf_create_transport", "acceptor_backlog", "num_cqe", trtype="TCP", tgt_name=tgt, max_queue_depth=self.rng.choice((16, 64, 128)),
            num_shared_buffers=256, in_capsule_data_size=self.rng.choice((0, 4096, 8192, 16384)), c2h_success=self.chance(0.5),
            sock_priority=self.rng.randint(0, 6)))

    def target(self):
        name = self.name("target")
        words = self.some(("transport", "address", "svcid"))
        how = {"discovery_filter": ",".join(words)} if self.chance(0.5) else {"discovery_filters": words}
        how["dup_host_policy"] = self.rng.choice(("allow", "restrict_per_listener"))
        if self.call("nvmf_create_target", **self.optional("nvmf_create_target", "max_subsystems", name=name, **how)):
            self.targets.append(name)
            self.transport(name)

    def delete_target(self):
        gone = self.spare(self.targets, self.target)
        self.call("nvmf_delete_target", name=gone)
        for things in (self.subsystems, self.hosts, self.namespaces, self.listeners, self.hidden, self.referrals):
            things[:] = [t for t in things if t["tgt_name"] != gone]

    def some_target(self):
        """Its name, and its ports, which are its own."""
        number = self.rng.randint(0, min(len(self.targets), 4))
        return self.targets[number - 1] if number else "nvmf_tgt"

    def number_of(self, tgt):
        return 0 if tgt == "nvmf_tgt" else 1 + int(tgt[len("target"):])

    def port_of(self, tgt):
        return PORT + (2 * self.number_of(tgt) + self.rng.randint(0, 1)) % 16

    def secure_port_of(self, tgt):
        """For TLS only: one address is not both."""
        return PORT + 20003 + self.number_of(tgt) % 13

    def subsystem(self):
        s = {"nqn": f"{DOMAIN}:{self.name('s')}", "tgt_name": self.some_target()}
        if self.call("nvmf_create_subsystem", **self.optional("nvmf_create_subsystem", "min_cntlid", "max_cntlid", **s, serial_number=self.name("SN"),
                                                              ana_reporting=self.chance(0.7), admin_label=self.rng.choice(("", "rack 7")),
                                                              max_namespaces=self.rng.randint(4, 40))) is None:
            return
        self.subsystems.append(s)
        for _ in range(self.rng.randint(0, 3)):
            self.host(s)
            self.namespace(s)
        if self.chance(0.7):
            self.listener(s)

    def some_subsystem(self):
        if not self.subsystems:
            self.subsystem()
        return self.rng.choice(self.subsystems) if self.subsystems else None

    def delete_subsystem(self):
        gone = self.spare(self.subsystems, self.subsystem)
        self.call("nvmf_delete_subsystem", **gone)
        for things in (self.hosts, self.namespaces, self.listeners, self.hidden):
            things[:] = [t for t in things if t["nqn"] != gone["nqn"]]

    def peer(self):
        """Processes that may not exist: nobody is asked."""
        s = self.some_subsystem()
        if s is not None:
            for path in (f"/run/{self.name('peer')}.sock" for _ in range(2)):
                self.call("nvmf_subsystem_add_peer", **s, path=path, timeout_ms=self.rng.randint(100, 60000))
            self.call("nvmf_subsystem_remove_peer", **s, path=path)

    def any_host(self):
        s = self.some_subsystem()
        if s is not None:
            for allowed in self.rng.sample((True, False), 2):
                self.call("nvmf_subsystem_allow_any_host", **s, allow_any_host=allowed)

    def host(self, s=None):
        s = s or self.some_subsystem()
        if s is not None:
            h = {**s, "host": f"{DOMAIN}:{self.name('h')}"}
            if self.call("nvmf_subsystem_add_host", **h, **self.some_keys(), **self.some_psk()):
                self.hosts.append(h)

    def host_limits(self):
        """Of a subsystem, and of one of its hosts."""
        s = self.some_subsystem()
        for host in ({}, {"host": f"{DOMAIN}:{self.name('h')}"}) if s is not None else ():
            minimum = {"min_rw_ios_per_sec": self.rng.randint(0, 100)} if host else {}
            self.call("nvmf_subsystem_set_qos_limit", **s, **host, **minimum, rw_ios_per_sec=self.rng.randint(1, 50) * 1000)

    def host_keys(self):
        h = self.spare(self.hosts, self.host)
        self.hosts.append(h)
        for number in self.rng.sample(range(4), 2):
            self.call("nvmf_subsystem_set_keys", **h, dhchap_key=f"key{number}")
        self.call("nvmf_subsystem_set_keys", **h, **self.some_keys())

    def remove_host(self):
        self.call("nvmf_subsystem_remove_host", **self.spare(self.hosts, self.host))

    def namespace(self, s=None):
        s, bdev = s or self.some_subsystem(), self.take()
        if bdev is None or s is None:
            return
        options = {"no_auto_visible": self.chance(0.4), "hide_metadata": self.chance(0.3)}
        for option, value in (("nguid", "%032x" % self.rng.getrandbits(128)), ("eui64", "%016x" % self.rng.getrandbits(64)),
                              ("uuid", self.value({"type": "uuid"})), ("anagrpid", self.rng.randint(1, 4)), ("nsid", self.rng.randint(1, 8)),
                              ("ptpl_file", str(self.d.folder / self.name("ptpl")))):
            if self.chance(0.4):
                options[option] = value
        if bdev.startswith("R"):
            options.update(passthru_io=self.some((128, 129, 253)), passthru_admin=self.some((192, 200, 254)))
        nsid = self.call("nvmf_subsystem_add_ns", **s, namespace={"bdev_name": bdev, **options})
        if nsid is None:
            self.free.append(bdev)
            return
        self.namespaces.append({**s, "nsid": nsid})
        hosts = [h["host"] for h in self.hosts if h["nqn"] == s["nqn"]]
        for host in self.some(hosts) if hosts and options["no_auto_visible"] else ():
            self.show(s, nsid, host)

    def show(self, s, nsid, host):
        if self.call("nvmf_ns_add_host", **s, nsid=nsid, host=host):
            self.hidden.append({**s, "nsid": nsid, "host": host})

    def hidden_namespace(self):
        """One that two hosts may see."""
        s = self.some_subsystem()
        self.null()
        bdev = self.take()
        if s is not None and bdev is not None:
            nsid = self.call("nvmf_subsystem_add_ns", **s, namespace={"bdev_name": bdev, "no_auto_visible": True})
            for _ in range(2 if nsid is not None else 0):
                self.show(s, nsid, f"{DOMAIN}:{self.name('h')}")

    def hide(self):
        self.call("nvmf_ns_remove_host", **self.spare(self.hidden, self.hidden_namespace))

    def new_namespace(self):
        self.null()
        self.namespace()

    def move_namespace(self):
        ns = self.spare(self.namespaces, self.new_namespace)
        self.namespaces.append(ns)
        for group in self.rng.sample(range(1, 5), 2):
            self.call("nvmf_subsystem_set_ns_ana_group", **ns, anagrpid=group)

    def remove_namespace(self):
        gone = self.spare(self.namespaces, self.new_namespace)
        self.call("nvmf_subsystem_remove_ns", **gone)
        self.hidden = [h for h in self.hidden if (h["nqn"], h["nsid"]) != (gone["nqn"], gone["nsid"])]

    def some_address(self, tgt):
        return where(self.port_of(tgt), self.rng.choice(TRANSPORTS))

    def listener(self, s=None):
        s = s or self.some_subsystem()
        if s is not None:
            at = {**s, "listen_address": self.some_address(s["tgt_name"])}
            how = {"ana_state": self.rng.choice(STATES)} if self.chance(0.5) else {}
            secure = {}
            if at["listen_address"]["trtype"] == "TCP" and self.chance(0.3):
                at["listen_address"], secure = where(self.secure_port_of(s["tgt_name"]), "TCP"), {"secure_channel": True}
            elif at["listen_address"]["trtype"] == "RDMA" and self.chance(0.3):
                secure = {"secure_channel": True}       # no effect, but it is kept
            if (self.call("nvmf_subsystem_add_listener", **at, **secure, **how)
                    or how and self.call("nvmf_subsystem_add_listener", **at, **secure)):
                self.listeners.append(at)
                self.ana(at)

    def ana(self, at=None):
        at = at or self.rng.choice(self.listeners or [None])
        if at is not None:
            self.call("nvmf_subsystem_listener_set_ana_state", **at, ana_state=self.rng.choice(STATES))
            for group in self.rng.sample(range(1, 5), 2):
                self.call("nvmf_subsystem_listener_set_ana_state", **at, ana_state=self.rng.choice(STATES), anagrpid=group)

    def listener_of_a_new_subsystem(self):
        self.subsystem()
        self.listener()

    def remove_listener(self):
        self.call("nvmf_subsystem_remove_listener", **self.spare(self.listeners, self.listener_of_a_new_subsystem))

    def discovery_listener(self):
        tgt = self.some_target()
        self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, tgt_name=tgt, listen_address=self.some_address(tgt))

    def discovery_hosts(self):
        s = {"nqn": DISCOVERY, "tgt_name": self.some_target()}
        self.call("nvmf_subsystem_allow_any_host", **s, allow_any_host=self.chance(0.2))
        self.call("nvmf_subsystem_add_host", **s, host=f"{DOMAIN}:{self.name('h')}", **self.some_keys())

    def referral(self):
        r = {"tgt_name": self.some_target(), "address": {**where(4420, self.rng.choice(TRANSPORTS)), "traddr": f"192.0.2.{self.rng.randint(1, 254)}"}}
        if self.call("nvmf_discovery_add_referral", **self.optional("nvmf_discovery_add_referral", **r)):
            self.referrals.append(r)

    def remove_referral(self):
        self.call("nvmf_discovery_remove_referral", **self.spare(self.referrals, self.referral))


class Remotes(Bdevs):
    """Controllers of Back. At most one of each of its subsystems is kept: one host connects to a subsystem once by each port."""

    def __init__(self, *args):
        super().__init__(*args)
        self.remotes = {}           # names of controllers, by NQN

    def nvme_options(self):
        policy = self.spread()
        self.call("bdev_nvme_set_options", **self.optional(
            "bdev_nvme_set_options", "transport_ack_timeout", timeout_us=self.rng.randint(30, 60) * 1000000,
            timeout_admin_us=self.rng.randint(30, 60) * 1000000, keep_alive_timeout_ms=self.rng.randint(30, 60) * 1000,
            bdev_retry_count=self.rng.randint(-1, 5), rdma_cm_event_timeout_ms=self.rng.randint(5, 60) * 1000,
            dhchap_digests=self.some(DIGESTS), dhchap_dhgroups=["null", *self.some(GROUPS[1:3])], **({"multipath_opts": policy} if self.chance(0.7) else {})))

    def spread(self):
        return self.rng.choice(({"policy": "active_passive"}, {"policy": "active_active", "selector": "queue_depth"},
                                {"policy": "active_active", "selector": "round_robin", "min_io": self.rng.randint(1, 9)}))

    def attach(self, name, nqn, port, **params):
        times = {"ctrlr_loss_timeout_sec": self.rng.choice((-1, 300)), "reconnect_delay_sec": self.rng.randint(1, 3), "fast_io_fail_timeout_sec": 0,
                 "fabrics_connect_timeout_us": self.rng.randint(60, 90) * 1000000}
        if self.chance(0.5):
            params["multipath_opts"] = self.spread()
        if self.chance(0.3):
            params["hostaddr"] = ADDRESS
        return self.call("bdev_nvme_attach_controller", **self.optional(
            "bdev_nvme_attach_controller", name=name, **where(port, self.rng.choice(TRANSPORTS)), subnqn=nqn, hostnqn=HOST, num_io_queues=self.rng.randint(1, 4),
            max_bdevs=self.rng.randint(2, 200), **times, **params))

    def attach_all(self, nqn, ports, second="multipath", **params):
        if nqn in self.remotes:
            return
        name = self.name("R")
        bdevs = self.attach(name, nqn, ports[0], multipath="multipath", **params)
        for port in ports[1:] if bdevs else ():
            self.attach(name, nqn, port, multipath=second, **params)
        for bdev in bdevs or ():
            self.add("remote", bdev)
        if bdevs:
            self.remotes[nqn] = name

    def multipath(self):
        self.attach_all(f"{DOMAIN}:b0", self.rng.sample(BACK_PORTS, 2))

    def failover(self):
        self.attach_all(f"{DOMAIN}:b1", self.rng.sample(BACK_PORTS, 2), "failover")

    def policy(self):
        self.multipath()
        name = self.remotes.get(f"{DOMAIN}:b0")
        if name is not None:
            for p in self.rng.sample(({"policy": "active_passive"}, {"policy": "active_active", "selector": "queue_depth"},
                                      {"policy": "active_active", "selector": "round_robin", "rr_min_io": 77}), 3):
                self.call("bdev_nvme_set_multipath_policy", name=f"{name}n{self.rng.randint(1, 2)}", **p)

    def authenticated(self):
        self.attach_all(f"{DOMAIN}:secret", BACK_PORTS[:1], dhchap_key="key0", **({"dhchap_ctrlr_key": "key3"} if self.chance(0.5) else {}))

    def remote_keys(self):
        self.authenticated()
        name = self.remotes.get(f"{DOMAIN}:secret")
        for ctrlr in self.rng.sample(({}, {"dhchap_ctrlr_key": "key3"}), 2) if name else ():
            self.call("bdev_nvme_set_keys", name=name, dhchap_key="key0", **ctrlr)

    def detach(self):
        """One that nobody else uses: of a subsystem that is attached only for this."""
        name = self.name("gone")
        if self.attach(name, f"{DOMAIN}:listed", LISTED_PORT):
            self.call("bdev_nvme_detach_controller", name=name)

    def discovery(self):
        times = {"ctrlr_loss_timeout_sec": self.rng.choice((-1, 300)), "reconnect_delay_sec": self.rng.randint(1, 3)}
        waits = self.rng.choice(({}, {"wait_for_attach": True}, {"attach_timeout_ms": 60000}))
        return self.call("bdev_nvme_start_discovery", name=self.name("d"), **where(LISTED_PORT, self.rng.choice(TRANSPORTS)), hostnqn=HOST, **times, **waits,
                         **{name: True for name in ("hdgst", "ddgst") if self.chance(0.3)})

    def stop_discovery(self):
        """All there is, one of which was just started if there was none; and begins anew."""
        self.discovery()
        for s in self.d.call("bdev_nvme_get_discovery_info"):
            self.call("bdev_nvme_stop_discovery", name=s["name"])
        self.discovery()

    def hotplug(self):
        for enable in self.rng.sample((True, False), 2):
            self.call("bdev_nvme_set_hotplug", enable=enable)
        if self.chance(0.7):
            self.call("bdev_nvme_set_hotplug", enable=True)


class Watching(Session):
    """The flight recorder's triggers, and metrics."""

    def __init__(self, *args):
        super().__init__(*args)
        self.triggers = []

    def trigger(self):
        kind = self.rng.choice(("io_error", "qpair_error", "keep_alive_loss", "request_age", "state_age", "reactor_stall"))
        limit = {"limit_us": self.rng.randint(1000, 5000) * 1000000} if kind in ("request_age", "state_age", "reactor_stall") else {}
        name = self.name("t")
        if self.call("trace_set_trigger", name=name, type=kind, **limit, action=self.rng.choice(("copy", "notify", "freeze")),
                     holdoff_us=self.rng.randint(1, 1000) * 1000000):
            self.triggers.append(name)

    def remove_trigger(self):
        self.call("trace_remove_trigger", name=self.spare(self.triggers, self.trigger))

    def blackbox(self):
        self.call("trace_set_blackbox", directory=str(self.d.folder), max_files=self.rng.randint(1, 50), max_bytes=self.rng.randint(1, 64) << 20)

    def scheduler(self):
        kind = self.rng.choice(("static", "dynamic"))
        self.call("framework_set_scheduler", **self.optional("framework_set_scheduler", "mappings", name=kind, period=self.rng.randint(10, 1000) * 1000))

    def metrics(self):
        self.call("metrics_start", address=f"unix:{self.d.folder}/{self.name('metrics')}")

    def stop_metrics(self):
        self.metrics()
        self.call("metrics_stop")
        self.metrics()


class Maker(*of_modules("Steps"), Subsystems, Remotes, Watching):
    """Everything; each step at least once, in a random order."""

    STEPS = ("tune", "qos_group", "join_qos_group", "delete_qos_group", "key", "remove_key", "target", "delete_target", "subsystem", "delete_subsystem", "any_host", "peer", "host", "host_limits", "host_keys",
             "remove_host", "new_namespace", "namespace", "hidden_namespace", "hide", "move_namespace", "remove_namespace", "listener", "ana", "remove_listener",
             "discovery_listener", "discovery_hosts", "referral", "remove_referral", "multipath", "failover", "policy", "authenticated", "remote_keys", "detach",
             "stop_discovery", "hotplug", "scheduler", "trigger", "remove_trigger", "blackbox", "stop_metrics", *(step for s in of_modules("Steps") for step in s.STEPS))

    def run(self):
        steps = [*self.STEPS, *self.rng.choices(self.STEPS, k=self.rng.randint(0, 30)), *["malloc", "null", "subsystem", "tune", "join_qos_group", "ana"] * 3]
        self.rng.shuffle(steps)
        if self.chance(0.8):
            self.nvme_options()     # refused when there are controllers
        for step in steps:
            getattr(self, step)()


class Startup:
    """What is set before the start."""

    def __init__(self, d, rng):
        some = Session.some
        self.rng = rng
        self.calls = {
            "iobuf_set_options": {"small_pool_count": rng.randint(8, 16) * 1024, "large_pool_count": rng.randint(1, 4) * 512,
                                  "small_bufsize": rng.choice((8192, 16384)), "large_bufsize": rng.choice((135168, 262144)), "enable_numa": self.chance(0.5)},
            "sock_set_default_impl": {"impl_name": rng.choice(("posix", "ssl", "uring"))},
            "sock_impl_set_options": self.sock_options(),
            "bdev_set_options": {"bdev_io_pool_size": rng.randint(1024, 65536), "bdev_io_cache_size": rng.randint(16, 256), "bdev_auto_examine": self.chance(0.5),
                                 "iobuf_small_cache_size": rng.randint(0, 64), "iobuf_large_cache_size": rng.randint(0, 16),
                                 "nomem_timeout_ms": rng.randint(1000, 60000), "split_children": rng.randint(16, 256)},
            "nvmf_set_config": {"poll_groups_mask": "1", "discovery_filter": rng.choice(("match_any", "transport,address", "transport,address,svcid")),
                                "dhchap_digests": some(self, DIGESTS), "dhchap_dhgroups": some(self, GROUPS), "quiesce_limit_ms": rng.randint(1, 35000)},
            "scheduler_set_options": rng.choice(({"scheduling_core": 1}, {"isolated_core_mask": "2"})),
            "nvmf_set_max_subsystems": {"max_subsystems": rng.randint(64, 2000)},
            "nvmf_set_crdt": {f"crdt{n}": rng.randint(0, 100) for n in (1, 2, 3)},
        }
        for method, params in self.calls.items():
            d.call(method, **params)

    chance = Session.chance

    def sock_options(self):
        """Any of the options, of any implementation."""
        rng = self.rng
        numbers = ("enable_placement_id", "zerocopy_threshold", "tls_version")
        flags = ("enable_recv_pipe", "enable_quickack", "enable_zerocopy_send_server", "enable_zerocopy_send_client", "enable_ktls")
        every = {"recv_buf_size": rng.choice((0, 65536, 2 << 20)), "send_buf_size": rng.choice((0, 65536, 2 << 20)), **{n: rng.randint(0, 3) for n in numbers},
                 **{f: self.chance(0.5) for f in flags}}
        return {"impl_name": rng.choice(("posix", "ssl", "uring")), **{k: v for k, v in every.items() if self.chance(0.7)}}

    def check_saved(self, entries):
        """What was given is what is saved."""
        for method, params in self.calls.items():
            found, = (e["params"] for e in entries if e["method"] == method)
            check({k: found.get(k) for k in params} == params, f"{method}({params}) is saved as {found}")


def start(daemon, rng):
    """Has a daemon that waits for framework_start_init run with random settings; returns these."""
    daemon.call_over(wait_for(daemon.connect, "the RPC socket"), "rpc_get_methods")
    settings = Startup(daemon, rng)
    daemon.call("framework_start_init")
    daemon.call("framework_wait_init")
    return settings
