# SPDX-License-Identifier: BSD-3-Clause
"""What Wireshark sees of the NVMe/TCP connections of a port: dumpcap captures on the loopback interface, tshark dissects."""
import collections
import re
import signal
import socket
import subprocess

from appliance_lib import DEADLINE, Failure, check, wait_for

FIELDS = ("frame.number", "tcp.srcport", "tcp.dstport", "nvme-tcp.type", "nvme-tcp.plen", "nvme-tcp.flags.pdu.data_success", "nvme-tcp.hdgst.status",
          "nvme-tcp.ddgst.status", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message", "nvme-tcp.unknown_data")
GOOD_DIGEST = 1         # of a digest's status
ERROR = 0x800000        # severity of a note of Wireshark's; below it are remarks on TCP windows and the like


class Dropped(Exception):
    """The kernel or dumpcap has lost packets: the capture says nothing."""


class Capture:
    """All packets of a port between __enter__() and stop(). Both are known by marks: connection attempts to the port at addresses where nobody
    listens, which must be in the file before the test goes on."""

    def __init__(self, folder, port):
        self.file, self.errors, self.port = folder / "capture.pcapng", folder / "dumpcap.err", port

    def __enter__(self):
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(["dumpcap", "-q", "-i", "lo", "-f", f"tcp port {self.port}", "-s", "0", "-B", "256", "-w", self.file],
                                            stdin=subprocess.DEVNULL, stderr=errors)
        try:
            self.mark("127.77.0.1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def size(self):
        return self.file.stat().st_size if self.file.exists() else 0

    def has_behind(self, offset, text):
        with open(self.file, "rb") as f:
            f.seek(offset)
            return text in f.read()

    def is_marked(self, address, before):
        check(self.process.poll() is None, f"dumpcap ended with {self.process.poll()}: {self.errors.read_text()}")
        with socket.socket() as s:
            s.settimeout(DEADLINE)
            check(s.connect_ex((address, self.port)) != 0, f"somebody listens at {address} port {self.port}")
        return self.size() > before and self.has_behind(max(before - 4096, 0), socket.inet_aton(address))

    def mark(self, address):
        before = self.size()
        wait_for(lambda: self.is_marked(address, before), f"the attempt to connect to {address} to be captured")

    def stop(self):
        """Ends the capture, which has all packets that were sent before. Dropped: it has not."""
        self.mark("127.77.0.2")
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE)
        counts = re.search(r"Packets received/dropped on interface .*: (\d+)/(\d+) \(", self.errors.read_text())
        check(counts and int(counts[1]) > 0, f"dumpcap said: {self.errors.read_text()}")
        if counts[2] != "0":
            raise Dropped(counts[0])


def captured(folder, port, act):
    """Captures while act() runs; again, with another act(), if packets were lost. What act() has returned, and what was captured."""
    for _ in range(3):
        with Capture(folder, port) as capture:
            result = act()
            try:
                capture.stop()
            except Dropped as e:
                print(f"captured again: {e}")
                continue
            return result, Dissection(capture.file, port)
    raise Failure("three captures have lost packets")


class Direction:
    """What one side of a connection has sent."""

    def __init__(self):
        self.types = collections.Counter()      # PDUs
        self.bytes = self.successes = 0         # of all PDUs; C2HData that tell that the command has succeeded
        self.digests = collections.Counter()    # ("hdgst" or "ddgst", whether it fits)
        self.wrong = []                         # what Wireshark has against it

    def add(self, frame, types, lengths, successes, hdgst, ddgst, malformed, severities, notes, unknown):
        self.types.update(int(t) for t in types)
        self.bytes += sum(map(int, lengths))
        self.successes += successes.count("1")
        for name, states in (("hdgst", hdgst), ("ddgst", ddgst)):
            self.digests.update((name, int(s, 0) == GOOD_DIGEST) for s in states)
        errors = [note for note, severity in zip(notes, severities) if int(severity, 0) >= ERROR]
        if malformed or unknown or errors:
            self.wrong.append(f"frame {frame[0]}: {malformed or ''} {unknown or ''} {errors or ''}")


class Dissection:
    """By port of the host: what it has sent (`sent`) and what it was sent (`answered`)."""

    def __init__(self, file, port):
        self.sent, self.answered = collections.defaultdict(Direction), collections.defaultdict(Direction)
        for line in self.lines(file, port):
            frame, source, destination, *of_pdus = (f.split("|") if f else [] for f in line.split("\t"))
            d = self.answered[int(destination[0])] if source == [str(port)] else self.sent[int(source[0])]
            d.add(frame, *of_pdus)

    @staticmethod
    def lines(file, port):
        """One for each packet."""
        command = ["tshark", "-n", "-r", file, "-d", f"tcp.port=={port},nvme-tcp", "-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE",
                   "-o", "tcp.reassemble_out_of_order:TRUE", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=|"]
        for field in FIELDS:
            command += ["-e", field]
        run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        check(run.returncode == 0, f"tshark: {run.stderr}")
        return run.stdout.splitlines()

    def total(self, of, type=None):
        """PDUs of a type, or all bytes, that hosts have sent (`of` is sent) or were sent."""
        return sum(d.bytes if type is None else d.types[type] for d in of.values())


def check_no_fault(of):
    for port, d in of.items():
        check(not d.wrong, f"port {port}: {len(d.wrong)} faults, the first: {d.wrong[:3]}")
        check(not any(n for (_, fits), n in d.digests.items() if not fits), f"port {port}: {d.digests}")
