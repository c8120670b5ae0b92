# SPDX-License-Identifier: BSD-3-Clause
"""Runs the tests (called by scripts/test.sh).

A test program prints `PASS name`, `FAIL name: why` and `SKIP name: why` lines; one that ends otherwise than it should
(signal, time limit, status, silence) counts as one failure. System tests say what they need in a comment near the top:

    # needs: root bpf lab        what must be there; a test whose needs are not met is skipped, with the reason
    # limit: 600                 seconds (default 120)
    # sanitize                   is run once more with the sanitized build
    # quick                      takes a few seconds: --quick without a pattern runs those only
    # long                       takes minutes: left out by --quick, with a pattern too
    # beside                     may run beside other jobs; without this and the next two a system test has the machine to itself
    # apart                      beside no other test of varve, but beside what has a low priority
    # spare                      wants CPU time only: is done at a low priority
    # asan                       uses the sanitized build: waits until it is there
    # once                       looks for what is rare: a failure is never tried again
    # budget: VARIABLE=60        tries things at random for as long as this environment variable says: by default for these seconds.
                                 VARVE_TEST_BUDGET=MINUTES gives each such test that long

Jobs run side by side, as many as there are CPUs, and more while CPUs are idle because the jobs that run wait (class Crew). First come those of
the release build; meanwhile the other builds are made, with the CPU time that the jobs leave. Then come the jobs that run apart from each other. Most of
them wait much of their time, which builds and jobs of a low priority use (class Spare): the tests with `# spare` in their heads, fuzzing, coverage, and
the unit tests under valgrind, which start no daemon. The jobs that want the machine to themselves come last.

A job that failed (`again`) is run once more by itself when all the others are over, for these tests share a few CPUs with daemons, guests and whatever
else the machine does. If it passes then, it counts as passed and is reported as UNSTEADY, with what failed at first: that is a fault to be
found, in the test or in what it tests. What a sanitizer, valgrind, a fuzzer or the compiler found is no matter of luck, and stays a failure; so does
what a test found that tries thousands of things at random.
"""
import atexit
import collections
import concurrent.futures
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, NamedTuple

TOP = Path(__file__).resolve().parent.parent
RELEASE, ASAN, FUZZ = TOP / "build", TOP / "build-asan", TOP / "build-fuzz"
LOGS = RELEASE / "test-logs"
RESULT = re.compile(r"^(PASS|FAIL|SKIP) (\S.*)$")
FINDING = re.compile(rb"Sanitizer: |runtime error:|^==\d+== ", re.M)     # a sanitizer's or valgrind's
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
BUDGET_MINUTES = os.environ.get("VARVE_TEST_BUDGET", "")
SPARE_NICE = 10         # of what has a low priority. With a lower one busy reactors hold up a fuzzer's input for so long that it seems to hang
SLOWEST = 15            # how many jobs the table at the end has
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
# Debugging information is there for the names and lines of a sanitizer's backtrace only. With all of it and -O2 the compiler takes twice the time.
CHEAP = ["-Doptimization=1", "-Dc_args=-g1"]
# For all builds, those too that tests make: clones at other paths share the compiler's cache, and so do build folders of the same depth.
CACHE_ENV = {"CCACHE_BASEDIR": str(TOP), "CCACHE_NOHASHDIR": "1", "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime,time_macros"}
# Meson looks for a cache itself only where nobody names the compiler. What is built for coverage has paths in its objects, and does without.
CLANG = "ccache clang" if shutil.which("ccache") else "clang"
DEFAULT_SIGNALS = ["env", "--default-signal=HUP,INT,QUIT,TERM"]      # whatever nohup or a shell's & ignores: programs go by it
VALGRIND = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--fair-sched=yes",
            "--errors-for-leak-kinds=definite,indirect", "--show-leak-kinds=definite,indirect",
            f"--suppressions={TOP}/unittest/valgrind.supp"]


# Readable from SIGINT or SIGTERM on: no job begins any more, those that run are ended, and the counts are printed.
STOP = os.eventfd(0)


def is_stopped():
    return bool(select.select([STOP], [], [], 0)[0])


@dataclass
class Job:
    name: str
    command: list
    env: dict = field(default_factory=dict)
    limit: int = 120
    needs: list = field(default_factory=list)
    company: str = "beside"         # what may run at the same time: "beside", "apart", "spare" (see above), "alone"
    once: bool = False              # failed is failed
    silent: bool = False            # prints no result lines: its status counts
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0        # of it and of all its children that were waited for
    first: list = field(default_factory=list)       # what failed before it was run again
    stage: str = ""

    def unmet(self):
        if "root" in self.needs and os.geteuid() != 0:
            return "needs root"
        for need, program in (("bpf", "bpftrace"), ("lab", "qemu-system-x86_64"), ("perf", "perf"), ("gdb", "gdb"), ("ceph", "ceph-osd"), ("etcd", "etcd"), ("nft", "nft"),
                              ("chromium", "chromedriver"), ("tshark", "tshark")):
            if need in self.needs and not shutil.which(program):
                return f"needs {program}"
        return None

    def run(self):
        why = "interrupted" if is_stopped() else self.unmet()
        if why:
            self.skipped.append(f"{self.name}: {why}")
            return self
        log = self.log()
        start = time.monotonic()
        with open(log, "wb") as out:
            p = subprocess.Popen(DEFAULT_SIGNALS + [str(c) for c in self.command], stdout=out, stderr=subprocess.STDOUT, cwd=TOP,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **self.env}, start_new_session=True)
            if self.company == "spare" and not self.first:
                lower_priority(p.pid)
            in_time = self.wait(p)
            try:
                os.killpg(p.pid, signal.SIGKILL)    # whatever it left behind
            except ProcessLookupError:
                pass
            _, wait_status, used = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(wait_status)
            status = p.returncode if in_time else None
        self.seconds = time.monotonic() - start
        self.cpu_seconds = used.ru_utime + used.ru_stime
        self.judge(log, status)
        return self

    def wait(self, p):
        """Until it has ended; false: it has not within its limit. It stays to be waited for, so that its number is nobody else's."""
        fd = os.pidfd_open(p.pid)
        try:
            return fd in select.select([fd, STOP], [], [], self.limit)[0]
        finally:
            os.close(fd)

    def log(self):
        return LOGS / (self.name.replace("/", "_") + (".second" if self.first else "") + ".log")

    def may_run_again(self):
        return self.command and not (is_stopped() or self.silent or self.once or self.first or FINDING.search(self.log().read_bytes()))

    def again(self):
        """Runs it once more if what failed may have been the machine's doing."""
        if not self.may_run_again():
            return
        self.first, self.failed, self.skipped, self.passed = self.failed, [], [], 0
        print(f"once more, by itself: {self.name}", flush=True)
        self.run_and_report()

    def judge(self, log, status):
        if self.silent:
            self.passed = int(status == 0)
        else:
            for m in filter(None, map(RESULT.match, log.read_text(errors="replace").splitlines())):
                if m[1] == "PASS":
                    self.passed += 1
                else:
                    (self.failed if m[1] == "FAIL" else self.skipped).append(m[2])
        if status is None:
            self.failed.append(f"{self.name}: {'interrupted' if is_stopped() else f'not done after {self.limit} s'}; see {log}")
        elif status != 0 and not self.failed:
            self.failed.append(f"{self.name}: ended with status {status}; see {log}")
        elif not (self.passed or self.failed or self.skipped):
            self.failed.append(f"{self.name}: said nothing; see {log}")

    def report(self):
        """By one write: other jobs report, too."""
        bad = "again" if self.failed and self.may_run_again() else "FAIL"
        state = bad if self.failed else "ok" if self.passed else "skip"
        lines = [f"  {state:5} {self.name:44} {self.passed:5} passed {self.times()}", *(f"        {bad} {f}" for f in self.failed)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def times(self):
        return f"{self.seconds:7.1f} s {self.cpu_seconds:7.1f} s CPU"

    def run_and_report(self):
        try:
            self.run()
        except Exception as e:      # a full disk, say: the other jobs go on
            self.failed.append(f"{self.name}: could not be run: {type(e).__name__}: {e}")
            self.once = True        # there may be no log to look at
        self.report()


def lower_priority(session):
    """Of the processes of a session that was just started, among all processes, also where the scheduler shares CPUs among sessions."""
    try:
        os.setpriority(os.PRIO_PROCESS, session, SPARE_NICE)
        Path(f"/proc/{session}/autogroup").write_text(str(SPARE_NICE))
    except OSError:         # it has ended, or the kernel has no such groups
        pass


@dataclass
class Stage:
    title: str
    jobs: Callable                  # () -> [Job], after the build
    folder: Path = None             # what to build, if anything
    env: dict = field(default_factory=dict)
    options: list = field(default_factory=list)
    targets: list = field(default_factory=list)     # all, if none is named
    spare: bool = False             # all of it is done at a low priority (class Spare)
    seconds: float = 0.0            # of the build

    def build(self, command=()):
        """command: what to run meson and ninja with."""
        if self.folder is None:
            return True
        if is_stopped():
            return False
        print(f"{self.title}: building {self.folder.name}", flush=True)
        log, start = LOGS / f"{self.folder.name}.log", time.monotonic()
        with open(log, "wb") as out:
            def run(*args):
                return subprocess.run([*command, *args], cwd=TOP, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                      env={**os.environ, **self.env}).returncode == 0
            ok = ((self.folder / "build.ninja").exists() or run("meson", "setup", str(self.folder), *self.options)) \
                and run("ninja", "-C", str(self.folder), *self.targets)
        self.seconds = time.monotonic() - start
        if not ok:
            sys.stdout.write(log.read_text(errors="replace")[-3000:])
        return ok

    def wanted(self, patterns):
        """Its jobs, whose build is there."""
        jobs = [j for j in self.jobs() if not patterns or any(p in j.name for p in patterns)]
        for j in jobs:
            j.stage = self.title
            j.company = "spare" if self.spare else j.company
        return jobs

    def broken(self):
        job = Job("build/" + self.title, [], stage=self.title)
        job.failed.append(f"{self.title}: the build failed; see {LOGS}")
        job.report()
        return job


def executables(folder, prefix):
    return [f for f in sorted(folder.glob(prefix + "*")) if f.is_file() and os.access(f, os.X_OK)]


def unit_jobs(folder, prefix, command=(), env=None, limit=300, preloaded=False):
    """preloaded: also those that run under a preloaded library, which sanitizers (systest/softverbs_sanitizers.sh does that) and
    valgrind want to be asked for differently."""
    return [Job(prefix + f.name[5:], [*command, f], env or {}, limit) for f in executables(folder / "unittest", "unit-")
            if preloaded or not f.name.startswith("unit-softverbs-")]


class Head(NamedTuple):
    """What a system test says near its top."""
    needs: list
    limit: int
    flags: list
    budget: tuple       # (variable, seconds), or nothing


def head_of(script):
    head = "\n".join(script.read_text(errors="replace").splitlines()[:30])
    needs = re.search(r"^# needs: (.*)$", head, re.M)
    limit = re.search(r"^# limit: (\d+)", head, re.M)
    budget = re.search(r"^# budget: (\w+)=(\d+)$", head, re.M)
    return Head(needs[1].split() if needs else [], int(limit[1] if limit else 120),
                re.findall(r"^# (sanitize|quick|long|beside|apart|spare|asan|once)$", head, re.M), (budget[1], int(budget[2])) if budget else ())


def budget_of(head):
    """(the environment that says how long it tries things, by how much its limit is longer for it)"""
    if not head.budget or head.budget[0] in os.environ:
        return {}, 0
    variable, usual = head.budget
    seconds = int(BUDGET_MINUTES) * 60 if BUDGET_MINUTES else usual
    return {variable: str(seconds)}, 2 * max(seconds - usual, 0)     # some have two parts


def company_of(head):
    return next((c for c in ("beside", "apart", "spare") if c in head.flags), "alone")


def system_jobs(prefix, env, wanted, slower=1):
    """wanted(needs, flags) chooses by what the script's head says."""
    jobs = []
    for script in sorted((TOP / "systest").iterdir()):
        if script.suffix not in (".sh", ".py") or not os.access(script, os.X_OK) or script.name == "vm.sh":
            continue
        head = head_of(script)
        if wanted(head.needs, head.flags):
            given, more = budget_of(head)
            jobs.append(Job(prefix + script.stem, [script], {**env, **given}, slower * (head.limit + more), head.needs, company_of(head),
                            once="once" in head.flags))
    return jobs


def lab_jobs(env):
    """Guests do not know of each other, and an emulated one waits half of its time."""
    jobs = system_jobs("lab/", env, lambda needs, _: "lab" in needs)
    for j in jobs:
        j.company = "beside"
    return jobs


def fuzz_jobs():
    jobs = []
    for f in executables(FUZZ / "unittest", "fuzz-"):
        name = f.name[5:]
        found, seeds = LOGS / ("corpus-" + name), TOP / "unittest" / "fuzz" / "corpus" / name
        found.mkdir(exist_ok=True)
        jobs.append(Job("fuzz/" + name, [f, f"-max_total_time={FUZZ_SECONDS}", "-timeout=60", "-rss_limit_mb=2048",
                                         f"-artifact_prefix={LOGS}/{name}-", found, seeds],
                        SANITIZER_ENV, FUZZ_SECONDS + 600, silent=True))
    return jobs


def stages(quick, patterns):
    """In the order in which they begin. The lab's guests are the longest jobs, and need the release build only: they give the other builds time."""
    def is_wanted(needs, flags):
        return "lab" not in needs and "long" not in flags and (not quick or patterns or "quick" in flags)

    env = {"VARVE_BUILD": str(RELEASE)}
    asan_env = {"VARVE_BUILD": str(ASAN), "VARVE_SANITIZED": "1", **SANITIZER_ENV}
    yield Stage("the tree itself", lambda: [Job("check", [TOP / "scripts" / "check.py"], limit=600)])
    yield Stage("release build", lambda: unit_jobs(RELEASE, "unit/", env=env, preloaded=True), RELEASE)
    yield Stage("system tests", lambda: system_jobs("system/", env, is_wanted))
    if quick:
        return
    yield Stage("long system tests", lambda: system_jobs("system/", env, lambda needs, flags: "lab" not in needs and "long" in flags and "asan" not in flags))
    yield Stage("VM lab", lambda: lab_jobs(env))
    yield Stage("AddressSanitizer and UBSan",
                lambda: unit_jobs(ASAN, "asan/unit/", env=asan_env, limit=300) +
                system_jobs("asan/system/", asan_env, lambda needs, flags: "sanitize" in flags, 3) +
                system_jobs("system/", env, lambda needs, flags: "asan" in flags),
                ASAN, options=["-Db_sanitize=address,undefined", "-Db_lundef=false", *CHEAP])
    yield Stage("fuzzing", fuzz_jobs, FUZZ, {"CC": CLANG},
                ["-Dfuzzers=true", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dc_args=-fsanitize=fuzzer-no-link"], ["fuzzers"], spare=True)
    yield Stage("coverage of the decoders", lambda: [Job("coverage/decoders", [TOP / "scripts" / "coverage.sh", "--minimum"], limit=2400, silent=True)],
                spare=True)
    yield Stage("valgrind", lambda: unit_jobs(RELEASE, "valgrind/", VALGRIND, {**env, "VARVE_VALGRIND": "1"}, 900), spare=True)


def idle_seconds(stat=None):
    """CPU time that nobody has used since the machine was started, all CPUs together. (Not what waited for a disk: where memory is short, no job more should begin.)
    stat: of /proc/stat."""
    stat = stat or Path("/proc/stat").read_text()
    return int(stat.split()[4]) / os.sysconf("SC_CLK_TCK")


def free_seconds(stat=None):
    """The same with what processes of a low priority have used, which yield."""
    stat = stat or Path("/proc/stat").read_text()
    return idle_seconds(stat) + int(stat.split()[2]) / os.sysconf("SC_CLK_TCK")


def memory_is_short(meminfo=None):
    """Whether less than a quarter is available. meminfo: of /proc/meminfo."""
    meminfo = meminfo or Path("/proc/meminfo").read_text()
    total, available = (int(re.search(rf"^{name}: +(\d+)", meminfo, re.M)[1]) for name in ("MemTotal", "MemAvailable"))
    return available < total / 4


class Crew:
    """Says when the next job may begin beside those that run. At first there is room for as many as there are CPUs. After a spell in which so much of the
    CPUs was free that another job that waits as much as they do has its time, there is room for one more, up to twice as many as CPUs; after one in
    which none was free, for one less. Where memory is short there is room for one."""
    SPELL, FREE, NONE = 2.0, 0.5, 0.1       # seconds; CPUs

    def __init__(self, seconds=free_seconds, least=None, memory=memory_is_short):
        """seconds(): of CPU time that was free for such jobs. least: for how many there is room in any case; as many as CPUs, unless it is given."""
        self.seconds, self.memory = seconds, memory
        self.cpus = os.cpu_count() or 1
        self.least = least or self.cpus
        self.most = 2 * self.cpus       # with more, guests of the lab wait for each other beyond their deadlines
        self.room = self.cpus
        self.running, self.lock = 0, threading.Condition()
        self.turn = threading.Lock()            # held by the one job that waits to begin
        self.samples = collections.deque()      # (when, seconds()) while one waits

    def free_cpus(self):
        """The mean of the spell; None before there has been one."""
        now, free = time.monotonic(), self.seconds()
        if self.samples and now - self.samples[-1][0] > 1:      # nobody waited meanwhile
            self.samples.clear()
        self.samples.append((now, free))
        while len(self.samples) > 1 and self.samples[1][0] <= now - self.SPELL:
            self.samples.popleft()
        since, before = self.samples[0]
        return (free - before) / (now - since) if now - since >= self.SPELL else None

    def adapt(self):
        """For a job that has no room now."""
        free = self.free_cpus()
        if free is None or self.NONE <= free < self.FREE:
            return
        self.room = min(self.room + 1, self.most) if free >= self.FREE else max(self.room - 1, self.least)
        self.samples.clear()

    def has_room(self):
        if self.running >= self.room:
            self.adapt()
        return self.running < self.room and (self.running == 0 or not self.memory())

    def run(self, job):
        with self.turn, self.lock:
            while not self.has_room():
                self.lock.wait(0.2)
            self.running += 1
        try:
            job.run_and_report()
        finally:
            with self.lock:
                self.running -= 1
                self.lock.notify_all()


def run_beside(chosen, patterns):
    """Runs the jobs that may run side by side, the longest of a stage first. Returns the jobs of all stages. The builds after the release
    build are made meanwhile, one by one, by processes that get what CPU time the others leave."""
    def build(stage):
        return stage.build(() if stage.folder in (None, RELEASE) else ("nice", "-n", "10"))

    jobs, running, crew = [], [], Crew()
    with concurrent.futures.ThreadPoolExecutor(max_workers=crew.most) as pool, concurrent.futures.ThreadPoolExecutor(max_workers=1) as builder:
        builds = [builder.submit(build, stage) for stage in chosen]
        for stage, built in zip(chosen, builds):
            if not built.result():
                jobs.append(stage.broken())
                continue
            of_stage = stage.wanted(patterns)
            jobs += of_stage
            running += [pool.submit(crew.run, j) for j in sorted(of_stage, key=lambda j: -j.limit) if j.company == "beside"]
        for f in concurrent.futures.as_completed(running):
            f.result()
    return jobs


class Spare:
    """What has a low priority: the spare jobs of stages that are built, and whole stages. From start() on they run side by side, until the end of finish()."""

    def __init__(self, jobs, stages, patterns):
        self.jobs, self.lock = [], threading.Lock()     # of the stages
        self.steps = self.make_steps(jobs, stages, patterns)
        self.crew = Crew(idle_seconds, least=1)         # jobs run apart meanwhile
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=self.crew.most)
        self.lanes = []

    def make_steps(self, jobs, stages, patterns):
        """The jobs, after what they need has been built."""
        yield from jobs
        for stage in stages:
            of_stage = self.prepare(stage, patterns)
            self.jobs += of_stage
            yield from (j for j in of_stage if j.command)

    def prepare(self, stage, patterns):
        """The jobs of a stage; of one that cannot be prepared a job that has failed: other stages go on."""
        try:
            return stage.wanted(patterns) if stage.build(("nice", "-n", str(SPARE_NICE))) else [stage.broken()]
        except Exception as e:
            print(f"{stage.title}: {e}", flush=True)
            return [stage.broken()]

    def next_job(self):
        with self.lock:
            return next(self.steps, None)

    def work(self):
        while job := self.next_job():
            self.crew.run(job)

    def start(self):
        self.lanes = [self.pool.submit(self.work) for _ in range(self.crew.most)]

    def cancel(self):
        """Nothing more begins."""
        with self.lock:
            self.steps = iter(())

    def finish(self):
        for lane in self.lanes:
            lane.result()


def run_apart(jobs, chosen, patterns):
    """Returns the jobs of the stages whose priority is low."""
    spare = Spare([j for j in jobs if j.company == "spare"], chosen, patterns)
    spare.start()
    try:
        for j in sorted(jobs, key=lambda j: -j.limit):
            if j.company == "apart":
                j.run_and_report()
        spare.finish()
    except BaseException:
        spare.cancel()
        raise
    return spare.jobs


def tables(chosen, jobs):
    """The slowest jobs, and what each stage took: seconds of its build, and of its jobs, of which several run at a time."""
    lines = ["The slowest jobs:"] if jobs else []
    lines += [f"  {j.name:50} {j.times()}" for j in sorted(jobs, key=lambda j: -j.seconds)[:SLOWEST]]
    lines += ["The stages: the build, the sum of the jobs"] if jobs else []
    for stage in chosen:
        of_stage = [j for j in jobs if j.stage == stage.title]
        if of_stage:
            seconds, cpu = (sum(getattr(j, x) for j in of_stage) for x in ("seconds", "cpu_seconds"))
            lines.append(f"  {stage.title:28} {stage.seconds:7.1f} s {len(of_stage):5} jobs {seconds:7.1f} s {cpu:7.1f} s CPU")
    return lines


def without_autogroups():
    """Until the end, where we may: beside reactors that poll, the scheduler's groups of sessions have kept the kernel's own threads from running
    for seconds, once for 73, and what they are to end (direct I/O to files, for one) stood still. doc/operations.md has the figures."""
    setting = Path("/proc/sys/kernel/sched_autogroup_enabled")
    try:
        before = setting.read_text()
        setting.write_text("0")
        atexit.register(setting.write_text, before)
    except OSError:
        pass


def main():
    options = {a for a in sys.argv[1:] if a.startswith("-")}
    patterns = [a for a in sys.argv[1:] if not a.startswith("-")]
    unknown = options - {"--quick", "--list"}
    if unknown:
        sys.exit(f"test.sh: unknown option '{unknown.pop()}'; there are --quick, --list and --help")
    if BUDGET_MINUTES and not re.fullmatch(r"[1-9]\d{0,3}", BUDGET_MINUTES):
        sys.exit(f"test.sh: VARVE_TEST_BUDGET '{BUDGET_MINUTES}': allowed is a whole number of minutes from 1 to 9999")
    os.environ.update({k: v for k, v in CACHE_ENV.items() if k not in os.environ})
    LOGS.mkdir(parents=True, exist_ok=True)
    if "--list" in options:
        for stage in stages("--quick" in options, patterns):
            print("\n".join(j.name for j in stage.jobs()) if stage.build() else f"{stage.title}: does not build")
        return
    without_autogroups()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.eventfd_write(STOP, 1))
    start, chosen = time.monotonic(), list(stages("--quick" in options, patterns))
    jobs = run_beside([s for s in chosen if not s.spare], patterns)
    beside = time.monotonic()
    jobs += run_apart(jobs, [s for s in chosen if s.spare], patterns)
    apart = time.monotonic()
    for j in jobs:
        if j.company == "alone":
            j.run_and_report()
    alone = time.monotonic()
    for j in jobs:
        if j.failed:
            j.again()
    again = time.monotonic()
    skipped = [s for j in jobs for s in j.skipped]
    unsteady = [f for j in jobs if not j.failed for f in j.first]
    failed = [f for j in jobs for f in j.failed]
    print("\n".join(tables(chosen, jobs) + [f"SKIP {s}" for s in skipped] + [f"UNSTEADY {f}" for f in unsteady] + [f"FAIL {f}" for f in failed] +
                    [f"{beside - start:.0f} s side by side, {apart - beside:.0f} s apart, {alone - apart:.0f} s alone, {again - alone:.0f} s once more",
                     f"{time.monotonic() - start:.0f} s; logs in {LOGS}",
                     f"{sum(j.passed for j in jobs)} passed, {len(failed)} failed" +
                     (f", {len(skipped)} skipped" if skipped else "")]))
    sys.exit(1 if failed or is_stopped() else 0)


if __name__ == "__main__":
    main()
