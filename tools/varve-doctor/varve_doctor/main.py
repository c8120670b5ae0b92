# SPDX-License-Identifier: BSD-3-Clause
"""The command line."""
import argparse
import difflib
import sys

from . import core, dead, live, process, trace
from .report import SICK, UNABLE, Report, Unable

EPILOG = """exit status: 0 nothing was found, 1 something was found, 2 wrong usage, or it could not look.
It changes nothing: it reads /proc and files, and asks the RPC socket only what lists and counts."""


def number(text):
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def pid(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no process id")
    return int(text)


class Parser(argparse.ArgumentParser):
    """Names the option that was probably meant."""

    def error(self, message):
        given = next((w.split("=")[0] for w in message.split() if w.startswith("--")), "") if message.startswith("unrecognized") else ""
        near = difflib.get_close_matches(given, [o for o in self._option_string_actions if o.startswith("--")], 1)
        super().error(f'{message}; did you mean "{near[0]}"?' if near else message)


def parse(arguments):
    p = Parser(prog="varve-doctor", epilog=EPILOG, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
                                description="Looks for what is wrong with a varve: the one that runs, or a process, a core, a trace.")
    what = p.add_mutually_exclusive_group()
    what.add_argument("-p", "--pid", type=pid, metavar="PID", help="this process (default: the only one that runs varve)")
    what.add_argument("-c", "--core", metavar="FILE", help="a core file")
    what.add_argument("-t", "--trace", metavar="FILE", help="a trace file, or a copy")
    p.add_argument("-e", "--program", metavar="FILE", help="with -c: the program, if it is not where it was")
    p.add_argument("-r", "--rpc-socket", metavar="PATH", help="its RPC socket (default: the one it listens on)")
    p.add_argument("-n", "--name", default="varve", help="name of the program to look for (varve)")
    p.add_argument("-d", "--dir", default="/dev/shm", help="where trace files are (/dev/shm)")
    p.add_argument("-a", "--age", type=number, default=10, metavar="SECONDS", help="what has waited longer is stuck (10)")
    p.add_argument("-w", "--wait", type=number, default=10, metavar="SECONDS", help="how long to wait for an RPC answer (10)")
    p.add_argument("-j", "--json", action="store_true", help="print JSON")
    return p.parse_args(arguments)


def describe_process(pid):
    """How to ask for it, where it listens, and how it was started."""
    try:
        p = process.Process(pid)
        sockets = ", ".join(p.sockets()) or "no socket"
    except (Unable, OSError, IndexError) as e:
        return f"-p {pid}: {e}"
    text = f"-p {pid}: {sockets}: {' '.join(p.arguments)}"
    return "".join(c if c.isprintable() else "?" for c in text)


def examine_process(report, options):
    found = [options.pid] if options.pid is not None else process.find(options.name)
    if len(found) > 1:
        raise Unable("\n  ".join([f"several processes run {options.name}. Say which: -p PID"] + [describe_process(pid) for pid in found]))
    try:
        subject = process.Process(found[0]) if found else None
    except ProcessLookupError:
        subject = None
    if subject is None:
        dead.examine(report, options.name, options.pid, options)
        return
    try:
        live.examine(report, subject, options)
    except (FileNotFoundError, ProcessLookupError):
        report.found("process", "it ended while it was looked at", f"varve-doctor -p {subject.pid}")


def main(arguments=None):
    if sys.stdout is None: # closed by the program that started this one: there is no place for the findings
        return UNABLE
    sys.stdout.reconfigure(errors="backslashreplace")  # names of hosts may have characters that this terminal's encoding lacks
    options = parse(sys.argv[1:] if arguments is None else arguments)
    report = Report(options.json)
    try:
        if options.core is not None:
            core.examine(report, options.core, options.program, options.age)
        elif options.trace is not None:
            trace.examine(report, options.trace, options.age)
        else:
            examine_process(report, options)
        report.print()
        sys.stdout.flush()
        return report.status()
    except Unable as e:
        print(f"varve-doctor: {e}", file=sys.stderr)
    except PermissionError as e:
        print(f"varve-doctor: {e.filename}: {e.strerror}; run this as root", file=sys.stderr)
    except KeyboardInterrupt:
        print("varve-doctor: interrupted", file=sys.stderr)
    except BrokenPipeError:
        sys.stdout = None
        return SICK if report.count("found") else UNABLE
    except OSError as e:
        print(f"varve-doctor: {e}", file=sys.stderr)
    return UNABLE
