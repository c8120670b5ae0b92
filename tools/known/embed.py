#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""embed.py VARVE OUTPUT: what `VARVE --describe-rpc` prints, as C."""
import json
import os
import pathlib
import subprocess
import sys

program, output = sys.argv[1:]
# A sanitized program is asked the same; what it has not freed at its end does not matter here.
env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", "")}
p = subprocess.run([program, "--describe-rpc"], stdout=subprocess.PIPE, env=env, check=True, stdin=subprocess.DEVNULL)
data = json.dumps(json.loads(p.stdout), separators=(",", ":")).encode()
rows = (",".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24))
pathlib.Path(output).write_text('/* Made by embed.py. */\n#include "tools/known/known.h"\n'
                                "const unsigned char rpc_known_text[] = {\n" + ",\n".join(rows) + "\n};\n"
                                "const size_t rpc_known_size = sizeof(rpc_known_text);\n")
