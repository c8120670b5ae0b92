#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# beside
"""Completion in real shells: options, methods, keys, values, and the names that a running daemon has."""
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time

from appliance_lib import BUILD, DEADLINE, TOP, Daemon, Failure, Skip, check, main, wait_for

FILES = TOP / "tools/completion"
BIN = BUILD / "bin"
NQN = "nqn.2026-11.io.varve:words"


def wait_offered(offer, fits, what):
    """Asks until offer() fits: on a busy machine varve-complete gives up, and offers less."""
    last = []

    def asked():
        last[:] = offer()
        return fits(last)

    wait_for(asked, lambda: f"{what}: {last}")


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, *command, socket="/no/such", setup=""):
        self.text, (pid, self.fd) = "", pty.fork()
        if pid == 0:
            os.environ.update(PATH=f"{BIN}:{os.environ['PATH']}", VARVE_RPC_SOCKET=str(socket), TERM="dumb", LC_ALL="C", HISTFILE="/dev/null")
            os.execvp(command[0], command)
        self.pid = pid
        self.type(f"{setup}\necho rea''dy\n")
        self.expect("ready")

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, word, again=""):
        """Waits until the word is on the terminal; `again` is typed meanwhile, every other second."""
        end, typed = time.monotonic() + DEADLINE, time.monotonic()
        while word not in self.text:
            if time.monotonic() > end:
                raise Failure(f"{word!r} has not come: {self.text!r}")
            if again and time.monotonic() - typed > 2:
                self.type(again)
                typed = time.monotonic()
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    raise Failure(f"the shell ended: {self.text!r}") from None

    def completes(self, line, *expected):
        """What Tab makes of a line, which is then thrown away."""
        self.text = ""
        self.type(line + "\t")
        for word in expected:
            self.expect(word, again="\t")
        self.text = ""
        self.type("\x03\necho rea''dy\n")
        self.expect("ready\r\n")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def check_shell(shell):
    """The same lines in every shell."""
    with Daemon() as d:
        d.call("bdev_null_create", name="Quartz7", num_blocks=64, block_size=512)
        d.call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
        with shell(d.path) as s:
            s.completes("varve-rpc bdev_null_cr", "bdev_null_create")
            s.completes("varve-rpc bdev_null_delete na", "name=")
            s.completes("varve-rpc bdev_null_delete name=Qu", "Quartz7")
            s.completes("varve-rpc nvmf_delete_subsystem nqn=nqn.2026", "io.varve:words")
            s.completes("varve-ctl unser", "unserve")
            s.completes("varve-ctl serve Quar", "Quartz7")
            s.completes("varve --chec", "--check")
            s.completes("varve-perf --poi", "--poisson")
            # A name that the shell would take for a command is not put on the line.
            d.call("bdev_null_create", name=f"Zinc;touch${{IFS}}{d.folder}/pwned;", num_blocks=64, block_size=512)
            s.completes("varve-ctl serve Zin\t\nvarve-ctl serve Quar", "Quartz7")
            check(not (d.folder / "pwned").exists(), "a bdev's name was carried out")
    with shell("/no/such") as s:        # without a daemon
        s.completes("varve-rpc bdev_malloc_de", "bdev_malloc_delete")
        s.completes("varve-rpc bdev_malloc_create md_inter", "md_interleave=")


def needs(name):
    if not shutil.which(name):
        raise Skip(f"needs {name}")


def test_bash():
    check_shell(lambda socket: Shell("bash", "--norc", "--noprofile", "-i", socket=socket,
                                     setup=f"bind 'set bell-style none' 2>/dev/null; . {FILES}/varve.bash"))


def test_zsh():
    needs("zsh")
    check_shell(lambda socket: Shell("zsh", "-f", "-i", socket=socket,
                                     setup=f"unsetopt beep; fpath=({FILES} $fpath); autoload -Uz compinit; compinit -u -D"))


def test_fish():
    """fish tells what Tab would offer."""
    needs("fish")
    with Daemon() as d, tempfile.TemporaryDirectory() as home:
        d.call("bdev_null_create", name="Quartz7", num_blocks=64, block_size=512)
        for line, expected in (("varve-rpc bdev_null_cr", "bdev_null_create"), ("varve-rpc bdev_null_delete name=Qu", "name=Quartz7"),
                               ("varve-ctl unser", "unserve"), ("varve --chec", "--check"), ("varve-ctl serve Quar", "Quartz7")):
            def offer(line=line):
                return subprocess.run(["fish", "-c", f"source {FILES}/varve.fish; complete -C '{line}'"], stdout=subprocess.PIPE, text=True, timeout=DEADLINE,
                                      env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "VARVE_RPC_SOCKET": str(d.path), "HOME": home}).stdout.split()

            wait_offered(offer, lambda words, expected=expected: expected in words, line)


def complete(*words, socket="/no/such"):
    p = subprocess.run([BIN / "varve-complete", *map(str, words)], capture_output=True, text=True, timeout=DEADLINE,
                       env={**os.environ, "VARVE_RPC_SOCKET": str(socket)})
    check(p.returncode == 0 and p.stderr == "", p)
    return p.stdout.split()


def offers(what, expected, *words):
    """The candidates become the expected ones."""
    wait_offered(lambda: complete(*words), lambda found: set(found) == set(expected), what)


def test_the_candidates():
    rpc = BIN / "varve-rpc"
    methods = subprocess.run([rpc, "--list"], capture_output=True, text=True, timeout=DEADLINE, env={**os.environ, "VARVE_RPC_SOCKET": "/no/such"}).stdout.split()
    offers("all methods", {*methods, "save_config", "load_config"}, rpc, "")
    wait_offered(lambda: complete(rpc, "bdev_null_create", "name=a", ""), lambda found: "num_blocks=" in found and "name=" not in found,
                 "a key that is given is not offered again")
    for words in (("-s", ""), ("save_config", "")):
        offers("files are the shell's", [], rpc, *words)
    offers("nothing odd", ["--help"], rpc, "nosuch", "")
    offers("nothing odd", [], rpc, "bdev_null_create", "name=x y")
    with Daemon() as d:
        for name in ("N1", "N;touch${IFS}x", "N`touch`", "N$(touch)", "N'", "N&x", "N>x", "N\\x", "N*"):
            d.call("bdev_null_create", name=name, num_blocks=64, block_size=512)
        offers("the socket that the line names, and only harmless words", ["name=N1"], rpc, "-s", d.path, "bdev_null_delete", "name=")
        d.call("bdev_qos_group_create", name="gold")
        for method, key, expected in (("bdev_qos_group_delete", "name", ["gold"]), ("bdev_get_qos_groups", "name", ["gold"]), ("bdev_qos_group_create", "name", []),
                                      ("bdev_set_qos_group", "group", ["gold"]), ("bdev_set_qos_group", "name", ["N1"])):
            offers(f"{key} of {method}", [f"{key}={e}" for e in expected], rpc, "-s", d.path, method, f"{key}=")
        offers("the process that the line names", ["name=N1"], rpc, "-p", d.process.pid, "bdev_null_delete", "name=")
    p = subprocess.run([BIN / "varve-complete"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 1 and "usage" in p.stderr, p)


if __name__ == "__main__":
    main(sys.modules[__name__])
