# SPDX-License-Identifier: BSD-3-Clause
"""What was checked, what was found, what to type next."""
import json

HEALTHY, SICK, UNABLE = 0, 1, 2


class Unable(Exception):
    """A check could not be made: the reason, for the user."""


def clean(text):
    """Text from outside, for a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))


class Report:
    def __init__(self, as_json=False):
        self.as_json = as_json
        self.title = ""
        self.lines = []         # {"result": ok|found|unknown, "check", "text", "next"}

    def ok(self, check, text):
        self.add("ok", check, text, None)

    def found(self, check, text, following=None):
        self.add("found", check, text, following)

    def unknown(self, check, text, following=None):
        self.add("unknown", check, text, following)

    def add(self, result, check, text, following):
        line = {"result": result, "check": check, "text": clean(text)}
        if following:
            line["next"] = clean(following)
        self.lines.append(line)

    def count(self, result):
        return sum(x["result"] == result for x in self.lines)

    def status(self):
        if self.count("found"):
            return SICK
        return HEALTHY if self.count("ok") else UNABLE

    def print(self):
        if self.as_json:
            print(json.dumps({"subject": clean(self.title), "status": self.status(), "checks": self.lines}, indent=2))
            return
        print(clean(self.title))
        for x in self.lines:
            print(f"{ {'ok': 'ok', 'found': 'FOUND', 'unknown': '?'}[x['result']]:<6} {x['check']:<12} {x['text']}")
            if "next" in x:
                print(f"{'':<19} next: {x['next']}")
        n = self.count("found")
        print(f"{n} found" if n else "Nothing was found." if self.count("ok") else "Nothing could be looked at.")


def seconds(us):
    return f"{us / 1e6:.1f} s" if us < 120e6 else f"{us / 60e6:.0f} min" if us < 7200e6 else f"{us / 3600e6:.1f} h"


def megabytes(n):
    return f"{n / 1048576:.1f} MB"
