#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""embed.py ROUTE=FILE... OUTPUT: the files as C, one element of console_files[] each."""
import pathlib
import sys

*inputs, output = sys.argv[1:]
arrays, elements = "", ""
for i, given in enumerate(inputs):
    route, path = given.split("=", 1)
    data = pathlib.Path(path).read_bytes()
    rows = ",\n".join(",".join(map(str, data[k:k + 24])) for k in range(0, len(data), 24))
    arrays += f"static const unsigned char file_{i}[] = {{\n{rows}\n}};\n"
    elements += f"\t[{route}] = {{file_{i}, sizeof(file_{i})}},\n"
pathlib.Path(output).write_text('/* Made by embed.py. */\n#include "appliance/console_files.h"\n' + arrays +
                                f"const struct console_file console_files[HTTP_ROUTES] = {{\n{elements}}};\n")
