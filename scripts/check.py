#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the tree itself: format, names, lengths, who includes whom, words, documents. Prints `PASS check` or `FAIL check: why` lines.

  scripts/check.py            all checks, in some ten seconds
  scripts/check.py NAME...    the checks whose names contain one of these
  scripts/check.py --format   formats the files that differ from .clang-format, and checks nothing
"""
import concurrent.futures
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TESTS = ("unittest/", "systest/", "bench/")
MAX_FILE, MAX_FUNCTION, MEDIAN_FUNCTION = 1000, 80, 10

# The rooms from the lowest up, and what each may include: rooms that stand above it in this table, never below. `*` marks what every room may use.
ROOMS = {
    "util *": "",
    "trace *": "",
    "usdt *": "",
    "env_dpdk": "",
    "thread": "env_dpdk",
    "rpc": "env_dpdk thread",
    "dhchap": "thread",
    "tls": "thread dhchap",
    "keyring": "dhchap tls",
    "verbs": "env_dpdk thread",
    "tcp": "",
    "nvme": "env_dpdk thread dhchap tls keyring verbs tcp",
    "bdev": "env_dpdk thread nvme/spec.h",
    "lvol": "",
    "nvmf": "env_dpdk thread dhchap tls keyring nvme/spec.h bdev",
    "nvmf_rdma": "env_dpdk thread verbs nvmf nvme/spec.h bdev",
    "nvmf_tcp": "env_dpdk thread tls tcp nvmf nvme/spec.h bdev",
    "rpc_methods": "env_dpdk thread rpc dhchap keyring tcp bdev nvmf",
    "bdev_modules": "env_dpdk thread rpc dhchap keyring nvme bdev lvol rpc_methods",
    "appliance": "env_dpdk thread rpc rpc_methods dhchap tls verbs keyring bdev nvmf",
    "softverbs": "util/compiler.h",     # knows nothing of varve: a header without code is all it takes
    "tools": "env_dpdk thread rpc dhchap tls keyring nvme bdev bdev_modules lvol",
    "usdt/bt": "nvme bdev nvmf appliance",  # names of states for the scripts
}
# Rooms whose folders do not know each other, and which headers of the room they may use.
SIBLINGS = {"bdev_modules": [], "nvme": ["nvme/transport.h", "nvme/nvme.h", "nvme/spec.h"]}
# A header that no other room includes. `tools` and `usdt/bt` are no exception.
PRIVATE = re.compile(r"(^|/)(internal|[a-z_]+_internal)\.h$")

# Functions that may have the same name in several files, with the reason.
SAME_NAMES = {
    "main": "one a program",
}

# Words that doc/glossary.md gives up, as they show in identifiers (a part between underscores) and in comments and messages.
GIVEN_UP = {
    "leg": (r"legs?", r"\blegs?\b"),
    "let go of": (r"let_go|lets_go|letting_go", r"\blet(s|ting)? go\b"),
    "forsaken": (r"forsaken", r"\bforsaken\b"),
    "hopeless": (r"hopeless", r"\bhopeless\b"),
    "away": (r"away", None),
    "beside": (r"beside", None),
    "border": (r"border", r"\bpci(e)? border\b"),
    "lend, lent": (r"lend|lends|lent|lender|lending", r"\b(lend|lends|lent|lending)\b"),
    "gate": (r"gates?|gated", r"\bgate[sd]?\b"),
    "piece": (None, r"\bpieces? of (an?|the) (split )?I/O\b"),
}


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns], cwd=TOP, text=True, capture_output=True,
                         check=True).stdout
    return [f for f in out.splitlines() if (TOP / f).is_file()]


def sources(product=True):
    return [f for f in tracked("*.c", "*.h") if not (product and (f.startswith(TESTS) or re.match(r"bdev_modules/\w+/test_", f)))]


def check_format():
    files = sources(product=False)
    parts = [files[i::os.cpu_count()] for i in range(os.cpu_count())]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda p: subprocess.run(["clang-format", "--dry-run", *p], cwd=TOP, text=True, capture_output=True), filter(None, parts)))
    bad = sorted(set(re.findall(r"^([\w./-]+\.[ch]):", "".join(p.stderr for p in ran), re.M)))
    yield from (f"{f} is not as .clang-format has it (scripts/check.py --format mends it)" for f in bad)
    yield from sorted({f"clang-format: {p.stderr.strip()[:300]}" for p in ran if p.returncode})


def functions():
    """(name, file, lines) of each function of the product."""
    out = subprocess.run(["ctags", "-L", "-", "-f", "-", "--languages=C", "--langmap=C:.c.h", "-IBDEV_MODULE_REGISTER+", "--kinds-C=f", "--fields=+ne", "--excmd=number"],
                         input="\n".join(sources()), cwd=TOP, text=True, capture_output=True, check=True).stdout
    for line in out.splitlines():
        name, file, *_ = line.split("\t")
        if name.isupper():      # a macro at file scope, which looks like a function without a type
            continue
        first, last = (re.search(rf"\b{key}:(\d+)", line) for key in ("line", "end"))
        yield name, file, int(last[1]) - int(first[1]) - 1 if first and last else 0


# Prefixes of doc/glossary.md, and the folders whose functions may begin with them. An RPC method is rpc_METHOD wherever it is.
PREFIXES = {
    "rdma_": "softverbs/", "ibv_": "softverbs/", "sv_": "softverbs/", "verbs_": "verbs/", "env_": "env_dpdk/", "thread_": "thread/", "log_": "util/",
    "nvme_": "nvme/", "nvme_pcie_": "nvme/pcie/", "nvme_rdma_": "nvme/rdma/", "nvme_tcp_": "nvme/tcp/", "nvmf_": "nvmf/ nvmf_rdma/ nvmf_tcp/", "nvmf_rdma_": "nvmf_rdma/", "nvmf_tcp_": "nvmf_tcp/", "tcp_": "tcp/", "tls_": "tls/ tools/gateway/",
    "bdev_": "bdev/ bdev_modules/", "bdev_nvme_": "bdev_modules/nvme/", "trace_": "trace/ tools/varve-trace", "rpc_": "rpc/ rpc_methods/ bdev_modules/ appliance/ tools/",
}


def check_prefixes():
    for name, file, _ in functions():
        prefix = max((p for p in PREFIXES if name.startswith(p)), key=len, default=None)
        if prefix and not file.startswith(tuple(PREFIXES[prefix].split())):
            yield f"{file}: {name}(): the prefix {prefix} belongs to {PREFIXES[prefix]}"


def check_function_names():
    where = {}
    for name, file, _ in functions():
        where.setdefault(name, set()).add(file)
    for name, files in sorted(where.items()):
        if len(files) > 1 and name not in SAME_NAMES:
            yield f"{name}() is in {', '.join(sorted(files))}: a backtrace would not tell which"


def check_lengths():
    lengths = []
    for name, file, n in functions():
        lengths.append(n)
        if n > MAX_FUNCTION:
            yield f"{file}: {name}() has {n} lines, at most {MAX_FUNCTION}"
    if statistics.median(lengths) > MEDIAN_FUNCTION:
        yield f"the median function has {statistics.median(lengths)} lines, at most {MEDIAN_FUNCTION}"
    for f in sources(product=False) + tracked("*.py", "*.sh"):
        n = (TOP / f).read_text(errors="replace").count("\n")
        if n > MAX_FILE:
            yield f"{f} has {n} lines, at most {MAX_FILE}"


def room_of(file, rooms):
    return max((r for r in rooms if file.startswith(r + "/")), key=len, default=None)


def folder_of(file):
    return file.rpartition("/")[0]


def not_for(file, header, public):
    """Whether a header of the same room is another folder's, or the room's own and not for its folders."""
    return folder_of(file) != folder_of(header) and header not in public


def check_includes():
    rooms = {name.split()[0]: uses.split() for name, uses in ROOMS.items()}
    everybody = [name.split()[0] for name in ROOMS if name.endswith("*")]
    order = list(rooms)
    for name, uses in rooms.items():
        for u in uses:
            if name != "softverbs" and order.index(u.split("/")[0]) >= order.index(name):
                yield f"the table of rooms: {name} may include {u}, which is not below it"
    for file in sources():
        room = room_of(file, rooms)
        if room is None:
            yield f"{file} is in no room of the table in scripts/check.py"
            continue
        for sign, header in re.findall(r'^\s*#\s*include\s*(["<])([^">]+)', (TOP / file).read_text(), re.M):
            if (sign == '"') != ((TOP / header).is_file() and ".." not in header):
                yield f'{file} includes {header}: headers of the tree are named from its top and in "", others in <>'
            other = room_of(header, rooms)
            if other == room and room in SIBLINGS and not_for(file, header, SIBLINGS[room]):
                yield f"{file} includes {header}: what a folder of {room}/ may use of the others is {' '.join(SIBLINGS[room]) or 'nothing'}"
            if sign == "<" or other is None or other == room:
                continue
            below = other in everybody and room != "softverbs" and (room not in everybody or order.index(other) < order.index(room))
            if not below and other not in rooms[room] and header not in rooms[room]:
                yield f"{file} includes {header}: {room}/ may use {' '.join(rooms[room]) or 'nothing'}"
            elif PRIVATE.search(header):
                yield f"{file} includes {header}, which is private to {other}/"


def comments_and_strings(text):
    return "\n".join(m[0] for m in re.finditer(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', text, re.S))


def check_words():
    table = (TOP / "doc/glossary.md").read_text()
    for word in GIVEN_UP:
        if not re.search(rf"^\| `?{re.escape(word.split(',')[0])}\b", table, re.M):
            yield f"doc/glossary.md does not say what to write instead of '{word}'"
    for file in sources():
        text = (TOP / file).read_text()
        names = set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)))
        prose = comments_and_strings(text)
        if "__builtin_expect" in text and file != "util/compiler.h":
            yield f"{file}: __builtin_expect is spelled likely() or unlikely(): util/compiler.h"
        for word, (part, said) in GIVEN_UP.items():
            odd = part and sorted(n for n in names if re.search(rf"(^|_)({part})(_|$)", n, re.I))
            if odd:
                yield f"{file}: {', '.join(odd[:4])}: doc/glossary.md has another word for '{word}'"
            found = said and re.search(said, prose, re.I)
            if found:
                yield f"{file}: '{' '.join(prose[max(0, found.start() - 30):found.end() + 20].split())}': doc/glossary.md has another word for '{word}'"
    for file in tracked("*.md"):
        text = (TOP / file).read_text()
        for word, (_, said) in GIVEN_UP.items():
            if said and file not in ("doc/glossary.md", "CHANGELOG.md") and re.search(said, text, re.I):
                yield f"{file}: '{re.search(said, text, re.I)[0]}': doc/glossary.md has another word for '{word}'"


def check_spdx():
    for f in tracked("*.c", "*.h", "*.py", "*.sh", "*.def", "*.bt", "*.md", "meson.build", "*/meson.build", "*.yml"):
        if f.startswith("tools/html/uPlot"):
            continue
        if "SPDX-License-Identifier: BSD-3-Clause" not in "\n".join((TOP / f).read_text(errors="replace").splitlines()[:3]):
            yield f"{f} does not begin with its SPDX line"


def tests_of(file):
    return set(re.findall(r"^(?:static void |def |[A-Z]+\()?(test_\w+)[(,]", (TOP / file).read_text(errors="replace"), re.M))


def check_paths():
    """What documents name in backticks as a file or a test of the tree is there, with NAME and ROOM for any name; and so is what they link to. Tests
    that follow a file and a colon (`FILE`: `test_a`, `test_b`; ...) are in that file, up to the end of the sentence, the list's part or the cell."""
    folders = {f.split("/")[0] for f in tracked()}
    tests = {f: tests_of(f) for f in tracked("*.c", "*.py", "*.sh")}
    anywhere = set().union(*tests.values())
    for f in tracked("*.md"):
        text = (TOP / f).read_text()
        for path in re.findall(r"`([a-z_]+/[\w./*-]+)`", text):
            if path.split("/")[0] in folders and not list(TOP.glob(re.sub(r"NAME|ROOM", "*", path).rstrip("/"))):
                yield f"{f} names {path}, which is not there"
        for test in re.findall(r"`(test_\w+)`", text):
            if test not in anywhere:
                yield f"{f} names {test}, which is not there"
        for path, names in re.findall(r"`([a-z_]+/[\w./-]+)`: (`test_(?:[^;|.\n]|\n(?!\n))*)", text):
            for test in re.findall(r"`(test_\w+)`", names):
                if test in anywhere and path in tests and test not in tests[path]:
                    yield f"{f} names {test} of {path}, which is not there"
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", text):
            if not (TOP / f).parent.joinpath(link).exists():
                yield f"{f} links to {link}, which is not there"


def head_of(file):
    """The comment or text that a program begins with."""
    text = (TOP / file).read_text(errors="replace")
    found = re.search(r'"""(.*?)"""', text, re.S) if file.endswith(".py") else re.search(r"(?:\s*/\*.*?\*/)+", text, re.S)
    return found[0] if found else ""


def check_figures():
    """Figures that documents name (`nvmf_tcp.own_ns`) are in the head of a benchmark: with the benchmark's name, or in a program whose name begins
    with it. So tables of what is wanted and of what was measured do not outlive what measures it."""
    heads = {Path(f).stem: head_of(f) for f in tracked("bench/*.c", "bench/*.py")}
    for f in tracked("*.md"):
        for bench, figure in re.findall(r"`([a-z_]+)\.([a-z0-9_.]+)`", (TOP / f).read_text()):
            own = [head for name, head in heads.items() if name.startswith(bench)]
            if f == "doc/performance.md" and bench not in heads:
                yield f"{f} names the figure {bench}.{figure}: there is no bench/{bench}.c or .py"
            if bench in heads and figure not in ("c", "py", "h", "md") and not any(re.search(rf"\b(?:{bench}\.)?{re.escape(figure)}\b", head) for head in own):
                yield f"{f} names the figure {bench}.{figure}, which is in the head of no bench/{bench}*"


def check_tracepoints():
    p = subprocess.run([sys.executable, TOP / "scripts/check_tracepoints.py"], cwd=TOP, text=True, capture_output=True)
    if p.returncode:
        yield from (p.stdout + p.stderr).strip().splitlines()


def check_doxygen():
    """The public headers, with warnings as errors; the pages go to build/doxygen if there is a build."""
    with tempfile.TemporaryDirectory() as folder:
        out = TOP / "build/doxygen" if (TOP / "build").is_dir() else Path(folder)
        out.mkdir(exist_ok=True)
        text = (TOP / "doc/Doxyfile").read_text() + f"\nOUTPUT_DIRECTORY = {out}\nINPUT = {' '.join(public_headers())}\n"
        p = subprocess.run(["doxygen", "-"], input=text, cwd=TOP, text=True, capture_output=True)
        lines = set(line.replace(str(TOP) + "/", "") for line in p.stderr.splitlines() if "warning: " in line or "error: " in line)
        if p.returncode or "Traceback" in p.stderr:     # of Doxygen, or of the filter, without which a header has no functions
            yield f"doxygen ended with {p.returncode}: {p.stderr.strip()[-300:]}"
        # Members and types may speak for themselves, functions may not.
        for line in sorted(re.sub(r":\d+: ", ": ", line) for line in lines):       # the filter has other line numbers
            if not re.search(r"not documented\.$", line) or "(function)" in line:
                yield line


def public_headers():
    return [f for f in sources() if f.endswith(".h") and not PRIVATE.search(f) and f.split("/")[0] not in ("tools", "softverbs")]


CHECKS = [check_format, check_function_names, check_prefixes, check_lengths, check_includes, check_words, check_spdx, check_paths, check_figures, check_tracepoints, check_doxygen]
PROGRAMS = {"check_format": "clang-format", "check_function_names": "ctags", "check_prefixes": "ctags", "check_lengths": "ctags", "check_doxygen": "doxygen"}


def main():
    args = sys.argv[1:]
    if any(a in ("-h", "--help") for a in args):
        print(__doc__.strip())
        return 0
    if "--format" in args:
        return subprocess.run(["clang-format", "-i", *sources(product=False)], cwd=TOP).returncode
    failed = False
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        if args and not any(a in name for a in args):
            continue
        program = PROGRAMS.get(check.__name__)
        if program and not shutil.which(program):
            print(f"SKIP {name}: {program} is not installed")
            continue
        problems = list(check())
        print("\n".join(f"FAIL {name}: {p}" for p in problems) if problems else f"PASS {name}", flush=True)
        failed = failed or bool(problems)
    return failed


if __name__ == "__main__":
    sys.exit(main())
