# SPDX-License-Identifier: BSD-3-Clause
"""The configuration and the words of varve-cluster."""
import argparse
import difflib
import json
import re
import signal
import sys
import threading
import urllib.parse

from .agent import Agent, Fatal
from .etcd import Etcd, EtcdError
from .state import NAME, Group, decode_state, is_free

ANYWHERE = "any"
DEFAULT_CONFIG = "/etc/varve/cluster.json"
END_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class ConfigError(Exception):
    """Names the field, its value and what is allowed."""


def did_you_mean(given, known):
    """`; did you mean "NAME"?`, or nothing if no name is near."""
    near = difflib.get_close_matches(given, sorted(known), 1)
    return f'; did you mean "{near[0]}"?' if near else ""


class Parser(argparse.ArgumentParser):
    """Names the word or the option that was probably meant. also: options that come before the word."""
    also = ()

    def error(self, message):
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            super().error(message + did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])))
        given = next((w.split("=")[0] for w in message.split() if w.startswith("--")), "") if message.startswith("unrecognized") else ""
        super().error(message + did_you_mean(given, {o for o in (*self._option_string_actions, *self.also) if o.startswith("--")}))


def need_known(where, name, known):
    need(f"{where}{name}", name in known, f"there is no such field ({', '.join(known)}){did_you_mean(name, known)}")


def without_comments(text):
    """Comments become blanks; strings stay."""
    return re.sub(r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*|/\*.*?\*/', lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def need(where, condition, text):
    if not condition:
        raise ConfigError(f"{where}: {text}")


def is_endpoint(value):
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^/\s]+", value):
        return False
    try:
        url = urllib.parse.urlsplit(value)
        return bool(url.hostname) and url.port != 0     # reading it checks it
    except ValueError:
        return False


def check_etcd(etcd):
    need("etcd", isinstance(etcd, dict), f"{etcd!r} must be an object")
    ends = etcd.get("endpoints")
    need("etcd.endpoints", isinstance(ends, list) and ends and all(is_endpoint(e) for e in ends),
         f"{ends!r} must be a list such as [\"http://192.0.2.1:2379\"]")
    for name, value in etcd.items():
        need_known("etcd.", name, ("endpoints", "ca", "cert", "key"))
        need(f"etcd.{name}", name == "endpoints" or isinstance(value, str), f"{value!r} must be the name of a file")


def check_config(config):
    """The configuration with its defaults."""
    need("configuration", isinstance(config, dict), "must be an object")
    config = {"lease_s": 10, "rpc_socket": "/run/varve/varve.sock", **config}
    for name in ("cluster", "gateway"):
        value = config.get(name)
        need(name, isinstance(value, str) and NAME.fullmatch(value), f"{value!r} must be 1 to 63 letters, digits, dots, dashes and underscores")
    for name in ("nqn", "rpc_socket"):
        need(name, isinstance(config.get(name), str) and config[name], f"{config.get(name)!r} must be text")
    lease = config["lease_s"]
    need("gateway", config["gateway"] != ANYWHERE, f"{ANYWHERE!r} is no name")
    need("lease_s", isinstance(lease, int) and not isinstance(lease, bool) and 2 <= lease <= 3600, f"{lease!r} must be a number from 2 to 3600")
    check_etcd(config.get("etcd"))
    for name in config:
        need_known("", name, ("cluster", "gateway", "nqn", "rpc_socket", "lease_s", "etcd"))
    return config


def read_config(path):
    try:
        with open(path, encoding="utf-8") as f:
            return check_config(json.loads(without_comments(f.read())))
    except (OSError, ValueError, ConfigError) as e:
        raise ConfigError(f"{path}: {e}") from None


def serve(config, _):
    signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)       # also of threads that start from now on
    stop, agent = threading.Event(), Agent(config)

    def end():
        """In a thread of its own: a handler would interrupt the one that waits for these events, and might need a lock that this one holds."""
        signal.sigwait(END_SIGNALS)
        stop.set()
        agent.watch.wake.set()
    threading.Thread(target=end, daemon=True).start()
    agent.run(stop)


def describe(config):
    """The cluster as one object."""
    etcd = Etcd(config["etcd"], config["lease_s"])
    state = decode_state(etcd.entries(f"/varve/{config['cluster']}/"))
    gateways = {g.id: {"lease_s": etcd.left(g.lease)[0], **g.facts} for g in state.gateways.values()}
    groups = {}
    for n in sorted(state.groups.keys() | state.moves.keys()):
        group = state.groups.get(n, Group())
        groups[str(n)] = {"owner": group.owner, "token": group.token, "alive": not is_free(state, n)}
        waits = gateways.get(group.owner, {"waits": {}})["waits"].get(str(n))
        groups[str(n)].update({"waits": waits} if waits else {}, **({"wanted_on": state.moves[n].to} if n in state.moves else {}))
    return {"cluster": config["cluster"], "gateways": gateways, "groups": groups}


def status(config, o):
    cluster = describe(config)
    if o.json:
        print(json.dumps(cluster, indent=2))
        return
    print(f"{'gateway':<20} {'lease':>7}  controller ids")
    for name, g in sorted(cluster["gateways"].items()):
        print(f"{name:<20} {g['lease_s']:>5} s  {g['min_cntlid']} to {g['max_cntlid']}")
    print(f"\n{'group':>5}  {'owner':<20} {'token':>5}")
    for n, g in cluster["groups"].items():
        notes = ["" if g["alive"] else "the owner is gone" if g["owner"] else "no owner", f"wanted on {g['wanted_on']}" if "wanted_on" in g else "", g.get("waits", "")]
        print(f"{n:>5}  {g['owner']:<20} {g['token']:>5}  {'; '.join(x for x in notes if x)}".rstrip())


def move(config, o):
    etcd = Etcd(config["etcd"], config["lease_s"])
    prefix = f"/varve/{config['cluster']}/"
    state = decode_state(etcd.entries(prefix))
    if o.group not in state.groups:
        raise ConfigError(f"group {o.group}: there is none; there are {', '.join(map(str, sorted(state.groups))) or 'no groups'}")
    known = state.moves.get(o.group)
    if o.to == ANYWHERE:
        if known is not None and not etcd.change(f"{prefix}moves/{o.group}", known.revision, None):
            raise EtcdError(f"group {o.group}: somebody else moves it at the same time")
        return
    if o.to not in state.gateways:
        raise ConfigError(f"gateway {o.to}: it is not there; there are {', '.join(sorted(state.gateways)) or 'no gateways'}")
    if not etcd.change(f"{prefix}moves/{o.group}", known.revision if known else 0, o.to):
        raise EtcdError(f"group {o.group}: somebody else moves it at the same time")


def parser():
    p = Parser(prog="varve-cluster", allow_abbrev=False, description="Decides with other gateways, in etcd, which of them serves which ANA groups.")
    p.add_argument("-c", "--config", metavar="FILE", default=DEFAULT_CONFIG, help=f"the configuration (default {DEFAULT_CONFIG})")
    words = p.add_subparsers(dest="word", required=True, metavar="WORD")

    def word(name, run, about):
        w = words.add_parser(name, help=about)
        w.set_defaults(run=run, parser=w)
        return w

    word("serve", serve, "keep this gateway's part, until SIGTERM")
    s = word("status", status, "gateways, groups, owners, and what waits for what")
    s.add_argument("--json", action="store_true", help="as JSON")
    m = word("move", move, "have a group served by a gateway, whenever it is there")
    m.add_argument("group", type=int, metavar="GROUP", help="the ANA group")
    m.add_argument("to", metavar="GATEWAY", help=f"its new owner; {ANYWHERE}: where there is room, as before")
    return p


def parse(p, words=None):
    """As p.parse_args(), but the options that are suggested are those of the word and those that come before it."""
    o, rest = p.parse_known_args(words)
    if rest:
        o.parser.also = p._option_string_actions
        o.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return o


def main():
    o = parse(parser())
    try:
        o.run(read_config(o.config), o)
    except (ConfigError, EtcdError, Fatal) as e:
        print(f"varve-cluster: {e}", file=sys.stderr)
        return 1
    return 0
