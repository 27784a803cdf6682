#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what folders include against the list in docs/architecture.md.

The list names, for each folder, the folders that it includes. Its order is the architecture: a
folder includes only folders that stand above it. Every folder may include public headers
(vocabpipe/...), which name nothing but each other. An include that the list lacks fails, and so
does an entry that no file needs any more.

    tests/docs/folder_includes.py [--list]    --list prints what the files include
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
# Folders whose subfolders are rooms of their own.
DIVIDED = ("src/step", "src/train", "src/tool", "src/bindings")
TOPS = ("include", "kernels", "schedules", "src")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def room(folder):
    """The room of a folder, such as src/train/log, src/model or kernels."""
    parts = pathlib.PurePosixPath(folder).parts
    if parts[0] != "src":
        return parts[0]
    depth = 3 if "/".join(parts[:2]) in DIVIDED else 2
    return "/".join(parts[:depth])


def included():
    """Room -> room that it includes -> one include that shows it."""
    result = {}
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".cpp", ".hpp", ".cu", ".cuh"):
                continue
            file = path.relative_to(ROOT).as_posix()
            here = room(path.relative_to(ROOT).parent.as_posix())
            there = result.setdefault(here, {})
            for name in INCLUDE.findall(path.read_text()):
                folder = pathlib.PurePosixPath(name).parent.as_posix()
                if folder == "." or folder.startswith("vocabpipe"):
                    continue
                if room(folder) != here:
                    there.setdefault(room(folder), f"{file}: {name}")
    return result


def listed():
    """The fenced list of the page: room -> rooms, in its order."""
    block = re.search(r"```includes\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if not block:
        sys.exit(f"{PAGE}: has no list of includes (```includes)")
    result = {}
    for line in block.group(1).splitlines():
        folder, _, rest = line.partition(":")
        result[folder.strip()] = rest.split()
    return result


def main():
    files = included()
    if sys.argv[1:] == ["--list"]:
        for here in sorted(files):
            print(f"{here}:", *sorted(files[here]))
        return
    page = listed()
    faults = []
    order = list(page)
    for here, there in files.items():
        if here not in page:
            faults.append(f"{here}: is not in the list of docs/architecture.md")
            continue
        for target, shown in there.items():
            if target not in page[here]:
                faults.append(f"{shown}: {here} may not include {target}")
        faults += [f"docs/architecture.md: {here} includes nothing of {target}"
                   for target in page[here] if target not in there]
    for here, there in page.items():
        if here not in files:
            faults.append(f"docs/architecture.md: there is no folder {here}")
        faults += [f"docs/architecture.md: {target} must stand above {here}, which includes it"
                   for target in there
                   if target not in order or order.index(target) > order.index(here)]
    for fault in sorted(faults):
        print(fault)
    sys.exit(1 if faults else 0)


main()
