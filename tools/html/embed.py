#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""embed.py PAGE FILE... OUTPUT: the page with the files put in where it says @NAME@, as C: what comes before the data, and after."""
import pathlib
import sys

*inputs, output = sys.argv[1:]
page, *files = map(pathlib.Path, inputs)
text = page.read_text()
for f in files:
    mark = f"@{f.name}@"
    if text.count(mark) != 1:
        sys.exit(f"embed.py: {page} should name {mark} once")
    text = text.replace(mark, f.read_text().rstrip("\n"))
before, after = text.split("@DATA@")


def array(name, part):
    data = part.encode()
    rows = (",".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24))
    return f"const unsigned char {name}[] = {{\n" + ",\n".join(rows) + f"\n}};\nconst unsigned long {name}_size = sizeof({name});\n"


pathlib.Path(output).write_text('/* Made by embed.py. */\n#include "tools/html/page.h"\n' + array("html_before", before) +
                                array("html_after", after))
