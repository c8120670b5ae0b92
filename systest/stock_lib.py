# SPDX-License-Identifier: BSD-3-Clause
"""Tables of calls as control software makes them, in their order: the method, its parameters, and what the answer must be: the value itself, a type, a function
that must be true of it, or an Error."""
import functools
import json
import re

from appliance_lib import TOP, RpcError, check

UUID = "f0e1d2c3-b4a5-4697-8879-6a5b4c3d2e1f"
OTHER_UUID = "0a1b2c3d-4e5f-4607-9819-2a3b4c5d6e7f"


class Error:
    """An answer that is an error of this code, whose message has these words and those that stand for the code: some clients look for them."""

    STANDARD = {-32602: "Invalid parameters", -32601: "Method not found", -19: "No such device", -17: "File exists"}

    def __init__(self, code, *words):
        self.code, self.words = code, (*words, *([self.STANDARD[code]] if code in self.STANDARD else []))


INVALID, UNKNOWN, NO_DEVICE, EXISTS, NO_KEY = -32602, -32601, -19, -17, -126


def keys(*names):
    return lambda answer: all(n in answer for n in names)


def each(*names):
    return lambda answer: len(answer) > 0 and all(n in o for o in answer for n in names)


def play(d, table):
    for method, params, expected in table:
        what = f"{method} {json.dumps(params)}"
        try:
            answer = d.call(method, **params)
        except RpcError as e:
            check(isinstance(expected, Error), f"{what}: error {e.code}: {e.message}")
            check(e.code == expected.code, f"{what}: error {e.code} instead of {expected.code}: {e.message}")
            check(all(w in e.message for w in expected.words), f"{what}: '{e.message}' does not say {expected.words}")
            continue
        check(not isinstance(expected, Error), f"{what} answered {answer}")
        if isinstance(expected, type):
            check(type(answer) is expected, f"{what} answered {answer}, which is no {expected.__name__}")
        elif callable(expected):
            check(expected(answer), f"{what} answered {json.dumps(answer)[:2000]}")
        else:
            check(type(answer) is type(expected) and answer == expected, f"{what} answered {answer} instead of {expected}")


def wrong(method, params, *words):
    return method, params, Error(INVALID, *words)


@functools.cache
def stock_methods():
    """{method: {parameter: type}} of SPDK: stock_methods.json."""
    return json.loads((TOP / "systest/stock_methods.json").read_text())["methods"]


# Where SPDK's decoder takes more than the type that its schema names, and saves it so itself.
SAVED_AS = {("nvmf_create_target", "discovery_filter"): "string", ("nvmf_set_config", "discovery_filter"): "string",
            ("bdev_rbd_create", "config"): "object", ("bdev_rbd_register_cluster", "config_param"): "object"}
# The key is in varve's keyring, and nobody wants it in a file: doc/compat.md.
LEFT_OUT = {("accel_crypto_key_create", "key")}
UUID_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_integer(kind, value):
    bits, signed = int(re.sub(r"\D", "", kind)), kind.startswith("int")
    return type(value) is int and (-(1 << bits - 1) <= value < 1 << bits - 1 if signed else 0 <= value < 1 << bits)


def fits(kind, value):
    """Whether SPDK's decoder of that kind takes the value."""
    if kind.startswith("one of "):
        return value in kind.split()[2:]
    if re.fullmatch(r"u?int\d+", kind):
        return is_integer(kind, value)
    return {"boolean": type(value) is bool, "string": type(value) is str, "array": type(value) is list, "bitmask": type(value) is list, "object": type(value) is dict,
            "uuid": type(value) is str and bool(UUID_FORM.fullmatch(value))}[kind]


def refused_by(params, known, method="", prefix=""):
    """What SPDK refuses of those parameters by its table of them, {name, with ! if it is required: kind, or the table of an object}: texts."""
    kinds = {name.rstrip("!"): kind for name, kind in known.items()}
    found = [f"{prefix}{name} is required" for name in (n[:-1] for n in known if n.endswith("!")) if name not in params and (method, prefix + name) not in LEFT_OUT]
    for name, value in params.items():
        kind = SAVED_AS.get((method, prefix + name), kinds.get(name))
        if kind is None:
            found.append(f"{prefix}{name} is not known")
        elif isinstance(kind, dict) and isinstance(value, dict):
            found += refused_by(value, kind, method, f"{prefix}{name}.")
        elif isinstance(kind, dict) or not fits(kind, value):
            found.append(f"{prefix}{name} is {json.dumps(value)}: {kind}")
    return found


def check_stock_takes(saved):
    """An SPDK target of 26.09-pre knows all methods of a saved configuration, and takes their parameters: names, types, widths, words, and those that are required. It
    does not look at those under "varve"."""
    check(set(saved) <= {"subsystems", "varve"}, f"keys: {set(saved)}")
    for e in (e for s in saved["subsystems"] for e in s["config"]):
        check(e["method"] in stock_methods(), f"SPDK has no method {e['method']}: its RPC_METHOD needs .own = true")
        refused = refused_by(e.get("params", {}), stock_methods()[e["method"]], e["method"])
        check(not refused, f"{e['method']}: SPDK refuses {refused}; a parameter that it does not know needs .own = true in its RPC_PARAM")
