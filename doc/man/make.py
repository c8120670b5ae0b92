#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""make.py TEMPLATE PROGRAM [ARGUMENT...]: prints the manual page TEMPLATE (mdoc), with the options that `PROGRAM ... -h` lists where it
says OPTIONS: so that there is one place for them."""
import re
import subprocess
import sys

OPTION = re.compile(r"^ {2,6}((?:-\w(?: [A-Z]\S*)?, )?--[\w-]+(?: [A-Z]\S*)?|-\w(?: [A-Z]\S*)?)(?:(?: {2,}| (?=[a-z]))(\S.*))?$")
CONTINUED = re.compile(r"^ {12,}(\S.*)$")
HEADING = re.compile(r"^([A-Z].*):$")


def parse(text):
    """[(kind, names, help)]: options, and the headings between them."""
    found, open_option = [], False
    for line in text.splitlines():
        option, more, heading = OPTION.match(line), CONTINUED.match(line), HEADING.match(line)
        if option:
            found.append(["option", option[1], option[2] or ""])
            open_option = True
        elif more and open_option:
            found[-1][2] = (found[-1][2] + " " + more[1]).strip()
        else:
            open_option = False
            if heading:
                found.append(["heading", heading[1], ""])
    return found


def escape(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e"))


def flag(text):
    """-c, --config FILE  ->  Fl c , Fl -config Ar FILE"""
    words = []
    for name in text.split(", "):
        name, _, arg = name.partition(" ")
        words.append(f"Fl {name[1:]}" + (f" Ar {arg}" if arg else ""))
    return " , ".join(words)


def page_of(options):
    lines, in_list = [], False
    for kind, text, about in options:
        if kind == "heading":
            lines += [".El"] * in_list + [f".Ss {text}"]
            in_list = False
            continue
        if not in_list:
            lines.append(".Bl -tag -width Ds")
            in_list = True
        sentence = about[:1].upper() + about[1:]
        if not sentence.endswith("."):
            sentence += "."
        # mdoc wants each sentence on a line of its own.
        lines += [f".It {flag(text)}"] + [escape(s) for s in re.split(r"(?<=\.) (?=[A-Z])", sentence)]
    return lines + [".El"] * in_list


def main():
    template, command = sys.argv[1], sys.argv[2:]
    options = []
    if command:
        options = parse(subprocess.run([*command, "-h"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout)
        options = [o for i, o in enumerate(options) if o[0] == "option" or (i + 1 < len(options) and options[i + 1][0] == "option")]
    with open(template, encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line == "OPTIONS":
                print("\n".join(page_of(options)))
            else:
                print(line)


if __name__ == "__main__":
    main()
