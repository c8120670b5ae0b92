# SPDX-License-Identifier: BSD-3-Clause
"""The command line."""
import argparse
import difflib
import os
import re
import shutil
import sys

from .client import Client, Trouble, clean, explain, socket_of
from .config import apply, diff
from .remote import connect, disconnect
from .serve import serve, unserve
from .status import status
from .upgrade import upgrade

HERE = os.path.dirname(os.path.realpath(sys.argv[0]))
EPILOG = """exit status: 0 done, 1 refused, or status and diff found something, 2 wrong usage, 3 no daemon or no answer.
varve-ctl WORD -h tells what a word takes."""


class Parser(argparse.ArgumentParser):
    """Names what was probably meant. also: options that come before the word."""
    also = ()

    def error(self, message):
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            given, known = wrong[1], re.findall(r"[\w-]+", wrong[2])
        else:
            given = next((w.split("=")[0] for w in message.split() if w.startswith("--")), "") if message.startswith("unrecognized") else ""
            known = [o for o in (*self._option_string_actions, *self.also) if o.startswith("--")]
        near = difflib.get_close_matches(given, sorted(set(known)), 1)
        super().error(f'{message}; did you mean "{near[0]}"?' if near else message)


def beside(name):
    """The program beside this one, or in the path."""
    own = os.path.join(HERE, name)
    found = own if os.access(own, os.X_OK) else shutil.which(name)
    if found is None:
        raise Trouble(f"{name} is neither beside varve-ctl nor in the path", 2)
    return found


def become(name, *arguments):
    sys.stdout.flush()
    program = beside(name)
    os.execv(program, [program, *arguments])


def top(client, o):
    become("varve-top", "-s", client.path, *o.rest)


def trace(client, o):
    become("varve-trace", "-p", str(client.call("appliance_get_state")["pid"]), *o.rest)


def file_of(state):
    """The configuration that the daemon loaded. A relative path begins in the daemon's folder."""
    file, pid = state.get("config_file"), state["pid"]
    if not file:
        raise Trouble("the daemon was started without a configuration: varve-ctl save FILE", 2)
    if os.path.isabs(file):
        return file
    try:
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError as e:
        raise Trouble(f"the daemon was started with {clean(file)}, in a folder that cannot be seen ({e.strerror}): varve-ctl save FILE", 2) from None
    found = os.path.join(folder, file)
    if not os.path.isfile(found):
        raise Trouble(f"the daemon was started with {clean(file)}, and {clean(found)} is no file: varve-ctl save FILE", 2)
    return found


def save(client, o):
    become("varve-rpc", "-s", client.path, "save_config", o.file or file_of(client.call("appliance_get_state")))


def upgrade_to(client, o):
    upgrade(client, o, beside)


def parser():
    p = Parser(prog="varve-ctl", allow_abbrev=False, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
                                description="What people do with a running varve all day.")
    p.add_argument("-s", "--socket", metavar="PATH", help="where the daemon listens (as varve-rpc)")
    p.add_argument("-p", "--pid", type=int, metavar="PID", help="the varve of this process id, whatever its socket")
    p.add_argument("-t", "--timeout", type=float, default=60, metavar="SECONDS", help="how long to wait for an answer (60)")
    p.add_argument("-v", "--verbose", action="count", default=0, help="print each call that changes something; twice: those that ask too")
    words = p.add_subparsers(metavar="WORD", required=True)

    def word(name, run, about):
        w = words.add_parser(name, help=about, description=about, allow_abbrev=False)
        w.set_defaults(run=run, parser=w)
        return w

    w = word("status", status, "health, bdevs, subsystems, hosts, paths and alerts on one screen")
    w.add_argument("-j", "--json", action="store_true", help="print JSON")
    w = word("serve", serve, "serve a file, block device or bdev to hosts")
    w.add_argument("what", metavar="FILE|BDEV")
    transport = w.add_mutually_exclusive_group()
    transport.add_argument("--tcp", action="store_true", help="over TCP (default)")
    transport.add_argument("--rdma", action="store_true", help="over RDMA")
    w.add_argument("--address", default="127.0.0.1", metavar="ADDRESS[:PORT]", help="where to listen (127.0.0.1:4420)")
    w.add_argument("--nqn", help="of the subsystem (nqn.2026-11.io.varve:NAME)")
    w.add_argument("--size", metavar="SIZE", help="make the file, of so many bytes: 1G")
    w.add_argument("--host", action="append", default=[], metavar="NQN", help="a host that may connect (may be repeated)")
    w.add_argument("--any-host", action="store_true", help="let any host connect (default where only this machine can)")
    w = word("unserve", unserve, "the opposite of serve; files stay")
    w.add_argument("what", metavar="FILE|BDEV|NQN")
    w.add_argument("--force", action="store_true", help="even if hosts are connected, or the bdev of a file carries other bdevs")
    w = word("connect", connect, "use the namespaces of another target as bdevs")
    w.add_argument("address", metavar="ADDRESS[:PORT]")
    w.add_argument("nqn", metavar="NQN")
    w.add_argument("--name", help="of the controller (Nvme0, Nvme1 ...); of one that is there: another path")
    transport = w.add_mutually_exclusive_group()
    transport.add_argument("--tcp", action="store_true", help="over TCP (default)")
    transport.add_argument("--rdma", action="store_true", help="over RDMA")
    w = word("disconnect", disconnect, "the opposite of connect")
    w.add_argument("name", metavar="NAME")
    w.add_argument("--force", action="store_true", help="even if its bdevs are served or claimed")
    word("top", top, "varve-top of this daemon, with its options")
    word("trace", trace, "varve-trace of this daemon, with its options")
    w = word("diff", diff, "what a configuration has and the daemon has not (+), the other way round (-), and otherwise (~)")
    w.add_argument("file", metavar="FILE")
    w = word("apply", apply, "make the changes that a configuration asks for, and only those")
    w.add_argument("file", metavar="FILE")
    w.add_argument("-n", "--dry-run", action="store_true", help="only say what would be done")
    w.add_argument("--prune", action="store_true", help="remove what is not in the file")
    w = word("save", save, "save the configuration, to the file that the daemon was started with or another")
    w.add_argument("file", metavar="FILE", nargs="?")
    w = word("upgrade", upgrade_to, "let another varve take over, with the same options; hosts see a short disconnect")
    w.add_argument("binary", metavar="PROGRAM", nargs="?", help="the other varve (the one beside varve-ctl)")
    w.add_argument("--force", action="store_true", help="even if something is lost: the place in a service, the log; or if large RAM disks take long")
    w.add_argument("--limit", type=int, metavar="SECONDS", help="how long it may take until it serves; then the old one goes on (60)")
    return p


def default_socket():
    service = "/run/varve/varve.sock"
    return os.environ.get("VARVE_RPC_SOCKET") or (service if os.path.exists(service) else "/var/tmp/varve.sock")


def main():
    try:
        p = parser()
        o, o.rest = p.parse_known_args()
        if o.rest and o.run not in (top, trace):
            o.parser.also = p._option_string_actions
            o.parser.error(f"unrecognized arguments: {' '.join(o.rest)}")
        path = o.socket or (socket_of(o.pid) if o.pid is not None else default_socket())
        result = o.run(Client(path, o.timeout, o.verbose), o) or 0
        sys.stdout.flush()
        return result
    except BrokenPipeError:
        sys.stdout = None
        return 1
    except BaseException as e:
        known = explain(e)
        if known is None:
            raise
        print(f"varve-ctl: {known[0]}", file=sys.stderr)
        return known[1]
