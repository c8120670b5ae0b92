#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes Doxygen's comments of the plain ones of a header; called by Doxygen (doc/Doxyfile) with the header's path.

- The first comment behind the SPDX line describes the file.
- A comment that stands directly above a declaration describes it.
- A comment behind a member or an enumerator describes that one.
Words are taken as they are: what Doxygen would understand as markup is escaped, and indented lines are shown as they stand.
"""
import re
import sys


def escape(text):
    return re.sub(r"([\\@<>#&%$])", r"\\\1", text)


def body(comment):
    """The text of a comment, with indented examples verbatim."""
    lines = comment[2:-2].split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\* ?", "", line).rstrip() for line in lines[1:]]
    out, example = [], False
    for line in lines:
        indented = line.startswith("    ") or example and not line
        if indented != example:
            out.append("@verbatim" if indented else "@endverbatim")
            example = indented
        out.append(line if example else escape(line))
    if example:
        out.append("@endverbatim")
    return "\n".join(" * " + line for line in out)


def documented(comment, mark=""):
    return "/**" + mark + "\n" + body(comment) + "\n */"


def is_declaration(line):
    return bool(re.match(r"^[\w_].*", line)) and not line.startswith(("extern \"C\"", "_Static_assert", "LOG_FLAG"))


def statements(text):
    """Comments, blank lines and everything else, in order; what is no comment is cut at the ends of lines on the top level."""
    pattern = re.compile(r"/\*.*?\*/|\n", re.S)
    position, depth, start = 0, 0, 0
    parts = []
    for m in pattern.finditer(text):
        between = text[position:m.start()]
        depth += between.count("{") + between.count("(") - between.count("}") - between.count(")")
        if m[0] == "\n":
            if depth == 0 and not text[start:m.start()].rstrip().endswith(("\\", ",")):
                parts.append(("line", text[start:m.end()]))
                start = m.end()
        elif depth == 0 and not text[start:m.start()].strip():
            parts.append(("comment", m[0]))
            start = m.end()
        position = m.end()
    parts.append(("line", text[start:]))
    return parts


def members(text):
    """Comments inside a declaration: above a member, or behind one."""
    def behind(m):
        return m[1] + "/**< " + body(m[2])[3:].replace("\n * ", "\n   ") + " */"
    text = re.sub(r"(?m)^(?P<a>[^\n/]*[;,{}\w)][ \t]+)(?P<b>/\*.*?\*/)(?=[ \t]*$)", lambda m: behind({1: m["a"], 2: m["b"]}) if not m["a"].rstrip().endswith("{")
                  else m[0], text, flags=re.S)
    return re.sub(r"(?m)^([ \t]+)(/\* .*?\*/)(?=\n[ \t]*[^\s}])", lambda m: m[1] + documented(m[2]), text, flags=re.S)


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    out, comment, first = [], None, True
    for kind, part in statements(text):
        if kind == "comment":
            if "SPDX" in part:
                continue
            if first:
                out.append(documented(part, " @file"))
                first, comment = False, None
            else:
                comment = part
                fresh = True
            continue
        if not part.strip():
            if comment is not None and fresh:       # the end of the comment's own line
                fresh = False
            else:
                comment = None
            out.append("\n" * part.count("\n"))
            continue
        if comment is not None and is_declaration(part.lstrip("\n")):
            out.append(documented(comment) + "\n")
            comment = None
        elif part.lstrip().startswith("#define") and comment is not None:
            out.append(documented(comment) + "\n")
            comment = None
        elif part.lstrip().startswith("#"):
            comment = None
        out.append(members(part))
    sys.stdout.write("".join(out))


main()
