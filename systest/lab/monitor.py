# SPDX-License-Identifier: BSD-3-Clause
"""monitor.py SOCKET COMMAND: a command for QEMU's monitor; its answer, if it has one, goes to stderr."""
import socket
import sys

PROMPT = b"(qemu) "


def read_answer(s):
    text = b""
    while not text.endswith(PROMPT):
        more = s.recv(4096)
        if not more:
            sys.exit("monitor.py: QEMU has closed its monitor")
        text += more
    return text[:-len(PROMPT)].decode(errors="replace")


with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(20)
    s.connect(sys.argv[1])
    read_answer(s)
    s.sendall(sys.argv[2].encode() + b"\n")
    for line in read_answer(s).splitlines()[1:]:
        print(f"monitor.py: {sys.argv[2]}: {line}", file=sys.stderr)
