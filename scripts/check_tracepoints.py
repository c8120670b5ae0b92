#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints each tracepoint of trace/tracepoints.def that nothing records, and exits 1 if there is one. Recorded is what stands in a TRACE(NAME, ...)
or trace_record_NAME(...) of a product's source; a macro that pastes the name, TRACE(PREFIX_##x, ...), records PREFIX_X for each of its uses
MACRO(X) in that file. The group TEST is recorded by unittest/trace and bench/ alone."""
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
NOT_PRODUCT = ("unittest/", "systest/", "bench/")
TEST_GROUP = "TEST"


def tracepoints(text):
    """(group, name) of each."""
    return re.findall(r"^TRACE_TPOINT\((\w+),\s*\d+,\s*(\w+),", text, re.M)


def recorded(text):
    """Names that a source file records."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    names = set(re.findall(r"\bTRACE\(\s*(\w+)\s*,", text)) | set(re.findall(r"\btrace_record_(\w+)\(", text))
    for macro, parameter, body in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((\w+)[^)]*\)(.*)$", text, re.M):
        for prefix in re.findall(rf"\bTRACE\(\s*(\w+)##{parameter}\b", body):
            names |= {prefix + x for x in re.findall(rf"\b{macro}\(\s*(\w+)", text)}
    return names


def unrecorded(tpoints, sources):
    names = set().union(*(recorded(s) for s in sources))
    return [name for group, name in tpoints if group != TEST_GROUP and name not in names]


def check_tracepoints():
    """Yields a sentence for each tracepoint that nothing records."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.c", "*.h"], cwd=TOP, text=True,
                           capture_output=True, check=True).stdout.split()
    sources = [(TOP / f).read_text() for f in files if not f.startswith(NOT_PRODUCT) and (TOP / f).is_file()]
    for name in unrecorded(tracepoints((TOP / "trace/tracepoints.def").read_text()), sources):
        yield f"trace/tracepoints.def declares {name}, and no TRACE({name}, ...) records it"


def check_itself():
    """The rules above on a source that has every form, so that a check that finds nothing has looked."""
    source = """
    #define STEP(s, size_)                \\
        case STATE_##s:                   \\
            TRACE(STEP_##s, 0, size_, 0); \\
            break;
    /* TRACE(COMMENTED, 0, 0, 0); */
    STEP(ONE, 1)
    TRACE(PLAIN, 0, 0, 0);
    trace_record_DIRECT(0, 0, 0);
    """
    declared = [("G", n) for n in ("STEP_ONE", "STEP_TWO", "PLAIN", "DIRECT", "COMMENTED")] + [("TEST", "OF_A_TEST")]
    assert unrecorded(declared, [source]) == ["STEP_TWO", "COMMENTED"], unrecorded(declared, [source])


def main():
    check_itself()
    problems = list(check_tracepoints())
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
