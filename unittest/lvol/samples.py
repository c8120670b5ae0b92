#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes C source with the pages of an image that are not zeroes: `samples.py OUT NAME IMAGE.xz ...`. Pages that repeat 16 bytes are told by these."""
import lzma
import pathlib
import sys

PAGE = 4096
HEAD = """/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/lvol/samples.h"
"""


def text(data: bytes) -> str:
    return ", ".join(map(str, data))


def pages_of(name: str, image: bytes) -> str:
    entries = []
    for at in range(0, len(image), PAGE):
        page = image[at:at + PAGE]
        if page.count(0) == PAGE:
            continue
        same = page == page[:16] * (PAGE // 16)
        entries.append(f"\t{{{at // PAGE}, {str(same).lower()}, (const uint8_t[]){{{text(page[:16] if same else page)}}}}},\n")
    return f"static const struct sample_page {name}_pages[] = {{\n{''.join(entries)}}};\n" \
           f"const struct sample sample_{name} = {{{len(image)}u, {len(entries)}, {name}_pages}};\n"


def main() -> None:
    out, *images = sys.argv[1:]
    parts = [pages_of(path.name.split(".")[0].split("_")[-1], lzma.decompress(path.read_bytes())) for path in map(pathlib.Path, images)]
    pathlib.Path(out).write_text(HEAD + "".join(parts))


main()
