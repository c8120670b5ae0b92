# SPDX-License-Identifier: BSD-3-Clause
"""Tables of calls as control software makes them, in their order: the method, its parameters, and what the answer must be: the value itself, a type, a function
that must be true of it, or an Error."""
import functools
import json

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


def names_only(parameters):
    return {name.rstrip("!"): names_only(kind) if isinstance(kind, dict) else None for name, kind in parameters.items()}


@functools.cache
def stock_parameters():
    return {method: names_only(parameters) for method, parameters in stock_methods().items()}


def unknown_keys(params, known, prefix=""):
    """The names of those parameters that are not known, {name: None or the same of an object}."""
    found = [prefix + k for k in params if k not in known]
    return found + [x for k, v in params.items() if isinstance(v, dict) and known.get(k) is not None for x in unknown_keys(v, known[k], f"{prefix}{k}.")]


def check_stock_takes(saved):
    """An SPDK target of 26.09-pre knows all methods and parameters of a saved configuration but those under "varve", where it does not look."""
    check(set(saved) <= {"subsystems", "varve"}, f"keys: {set(saved)}")
    for e in (e for s in saved["subsystems"] for e in s["config"]):
        check(e["method"] in stock_parameters(), f"SPDK has no method {e['method']}: its RPC_METHOD needs .own = true")
        unknown = unknown_keys(e.get("params", {}), stock_parameters()[e["method"]])
        check(not unknown, f"{e['method']}: SPDK does not know {unknown}: their RPC_PARAM needs .own = true")
