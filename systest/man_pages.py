#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
"""The manual pages: each option that a program lists is in its page and the other way round, and the pages are well formed."""
import re
import shutil
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, TOP, Skip, check, main

PAGES = BUILD / "doc/man"
SCRIPTS = {"varve-bpftrace": "bpftrace.sh", "varve-setup": TOP / "scripts/setup.sh"}     # their names in the tree


def pages():
    found = sorted(PAGES.glob("*.[18]"))
    check(len(found) >= 9, f"{found} in {PAGES}")
    return found


def run(*command):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"{command}: {p.stdout}{p.stderr}")
    return p.stdout + p.stderr


def help_of(name):
    return run(BUILD / "bin" / SCRIPTS.get(name, name), "-h")


def options_of(text):
    """Of the lines that begin with one: -x and --long, as they stand before the explanation."""
    heads = [re.split(r"  +", line.strip())[0] for line in text.splitlines() if re.match(r" +--?[a-zA-Z]", line)]
    return {o for h in heads for o in re.findall(r"(?:^|, )(--?[\w-]+)", h)}


def options_in(page):
    return {"-" + o for line in page.splitlines() if line.startswith(".It Fl") for o in re.findall(r"Fl (-?[\w-]+)", line)}


def test_options_are_those_of_the_programs():
    for path in pages():
        listed, described = options_of(help_of(path.stem)), options_in(path.read_text())
        check(listed == described, f"{path.name}: only in -h: {listed - described}, only in the page: {described - listed}")


def test_that_is_a_test():
    check(options_of("Usage: x [-q]\n  -c, --config FILE  load\n      --no-huge    none\n  -p PID, --pid PID    it\n      or -z\n")
          == {"-c", "--config", "--no-huge", "-p", "--pid"}, "what -h lists")
    check(options_in(".It Fl c , Fl -config Ar FILE\nof\n.Fl n\n.It Fl -no-huge\n") == {"-c", "--config", "--no-huge"}, "what is described")
    check(len(options_of(help_of("varve"))) > 30, "the daemon's")


def test_pages_are_well_formed():
    for path in pages():
        text = path.read_text()
        check("OPTIONS" not in text.splitlines(), f"{path.name} has an unfilled place")
        check(f".Dt {path.stem.upper()} {path.suffix[1]}" in text, f"{path.name}: its title")
        if shutil.which("man"):
            p = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, timeout=DEADLINE)
            check(p.returncode == 0 and p.stderr == "" and path.stem in p.stdout, f"{path.name}: {p.stderr}")


def test_pages_pass_the_linter():
    if not shutil.which("mandoc"):
        raise Skip("needs mandoc")
    for path in pages():
        run("mandoc", "-T", "lint", "-W", "warning", path)


def test_pages_name_each_other_only_if_they_are_there():
    ours = {p.stem: p.suffix[1] for p in pages()}
    for path in pages():
        for name, section in re.findall(r"^\.Xr (varve\S*|softverbs) (\d)", path.read_text(), re.M):
            check(ours.get(name) == section, f"{path.name} names {name}({section})")


if __name__ == "__main__":
    main(sys.modules[__name__])
