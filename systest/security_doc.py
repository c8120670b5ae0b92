#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
"""doc/security.md names a test for each of its claims: those tests and files are there."""
import re
import sys

from appliance_lib import TOP, check, main

PAGE = (TOP / "doc" / "security.md").read_text()


def definitions():
    text = "".join(p.read_text() for folder, ending in (("unittest", "*.c"), ("bdev_modules", "test_*.c"), ("systest", "*.py"), ("systest", "*.sh"))
                   for p in (TOP / folder).rglob(ending))
    return set(re.findall(r"(?:^def |\bUNIT\(|^(?=test_\w+\(\) \{))(test_\w+)", text, re.M))


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    missing = named - definitions()
    check(len(named) > 30 and not missing, f"no such tests: {sorted(missing)}")


def test_every_file_and_job_that_is_named_exists():
    files = [f for f in re.findall(r"`((?:\w+/)+[\w*.]+)`", PAGE)]
    wrong = [f for f in files if not any(TOP.glob(f))]
    jobs = re.findall(r"\b(unit|fuzz|system)/([\w*-]+)", PAGE)
    builds = "".join(p.read_text() for p in (TOP / "unittest").rglob("meson.build"))
    wrong += [f"system/{n}" for kind, n in jobs if kind == "system" and not (TOP / "systest" / f"{n}.py").exists()]
    wrong += [f"fuzz/{n}" for kind, n in jobs if kind == "fuzz" and "*" not in n and f"'{n}'" not in builds]
    check(files and jobs and not wrong, f"not there: {wrong}")


def test_every_kind_of_hostile_case_that_is_named_exists():
    kinds = re.findall(r'the kind "([\w -]+)"', PAGE)
    source = (TOP / "systest" / "hostile" / "cases.c").read_text()
    check(kinds and all(f'{{"{k}",' in source for k in kinds), kinds)


if __name__ == "__main__":
    main(sys.modules[__name__])
