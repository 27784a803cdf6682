# SPDX-License-Identifier: Apache-2.0
"""Copies the project with one-line faults ("mutants") planted, each behind a number (mutant.hpp).

All mutants of by_hand.txt, and as many as asked for that rules find (cxx_sites.py), the same number from
every part of the host code. Which ones depends on the seed alone, so that another seed gives faults that
nobody has seen.
"""

import hashlib
import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

from cxx_sites import ASKED, File

# Host code, in parts that are reported together; the first that fits.
PARTS = [("kernels", "kernels/host/"), ("kernels", "kernels/reference/"), ("schedules", "schedules/"),
         ("schedule", "src/schedule/"), ("plan", "src/plan/"), ("runtime", "src/runtime/"),
         ("model", "src/model/"), ("train", "src/train/"), ("step", "src/step/"), ("select", "src/select/"), ("tool", "src/tool/"),
         ("support", "src/support/"), ("schedule", "include/vocabpipe/")]
# What neither runs on hosts nor in a test of a program.
LEFT_OUT = ("/cuda/", "/nccl/", "/wasm/")


class Stale(Exception):
    """A line of by_hand.txt names code that is not there."""


def part_of(path):
    if any(folder in path for folder in LEFT_OUT):
        return None
    return next((part for part, folder in PARTS if path.startswith(folder)), None)


def by_hand(root, table):
    """(path, begin, end, text) of each: FILE, then `- original` and `+ replacement` of a part of a line."""
    mutants, path, old = [], None, None
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("- "):
            old = line[2:]
        elif line.startswith("+"):
            source = (root / path).read_text()
            if source.count(old) != 1:
                raise Stale(f"{table}:{number}: {path} has `{old}` {source.count(old)} times")
            new, begin = line[2:], source.index(old)
            if old.endswith(";"):
                text = f"{{ if ({ASKED}) {{ {new} }} else {{ {old} }} }}"
            else:
                text = f"({ASKED} ? ({new}) : ({old}))"
            mutants.append((path, begin, begin + len(old), text, f"{old} -> {new or 'nothing'}"))
        else:
            path = line
    return mutants


def _order(seed, *of):
    return hashlib.sha256("\0".join(map(str, (seed, *of))).encode()).digest()


def by_rule(root, paths, count, seed, dropped, taken):
    """The same number from every part and, within it, from every rule as long as it has some."""
    sites = defaultdict(lambda: defaultdict(list))
    for path in paths:
        part = part_of(path)
        if part is None:
            continue
        source = (root / path).read_text()
        for site in File(source).sites():
            name = f"{path}: {site.rule}: {' '.join(source[site.begin:site.end].split())}"
            if name not in dropped:
                sites[part][site.rule].append((_order(seed, name, site.begin), path, site))
    chosen = []
    for part, rules in sorted(sites.items()):
        for found in rules.values():
            found.sort(key=lambda entry: entry[0], reverse=True)
        wanted = count // len(sites)
        while wanted > 0 and any(rules.values()):
            for rule in sorted(rules, key=lambda rule: _order(seed, part, rule)):
                while rules[rule] and wanted > 0:
                    _, path, site = rules[rule].pop()
                    if all(site.end <= begin or end <= site.begin for begin, end in taken[path]):
                        taken[path].append((site.begin, site.end))
                        chosen.append((path, site))
                        wanted -= 1
                        break
    return chosen


def files_of(root):
    """Paths of the project's files, those too that are not committed."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True)
    return {path for path in listed.stdout.split("\0") if path and (root / path).is_file()}


def choose(root, count, seed, dropped=()):
    """The mutants, numbered, and the edits of each file that plant them."""
    edits, taken, mutants = defaultdict(list), defaultdict(list), []

    def add(path, begin, end, text, what):
        source = (root / path).read_text()
        lines = [source.count("\n", 0, at) + 1 for at in (begin, end)]
        edits[path].append((begin, end, text.replace(ASKED, f"vocabpipe_mutant({len(mutants)})")))
        mutants.append({"number": len(mutants), "part": part_of(path) or "other", "path": path,
                        "line": lines[0], "lines": lines, "what": what,
                        "code": " ".join(source[begin:end].split())})

    for path, begin, end, text, what in by_hand(root, root / "tests/mutation/by_hand.txt"):
        if any(begin < other_end and other < end for other, other_end in taken[path]):
            raise Stale(f"by_hand.txt: two mutants of {path} overlap at `{what}`")
        taken[path].append((begin, end))
        add(path, begin, end, text, what)
    sources = sorted(path for path in files_of(root) if path.endswith((".cpp", ".hpp"))) if count else []
    for path, site in by_rule(root, sources, count, seed, dropped, taken):
        add(path, site.begin, site.end, site.text, site.rule)
    return mutants, edits


def plant(root, copy, count, seed, dropped=()):
    """Writes the copy and returns the list of mutants. Files that stay as they are keep their times."""
    mutants, edits = choose(root, count, seed, dropped)
    paths = files_of(root)
    for old in copy.rglob("*"):
        if old.is_file() and str(old.relative_to(copy)) not in paths:
            old.unlink()
    for path in paths:
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = (root / path).read_bytes()
        if path in edits:
            text = content.decode()
            for begin, end, new in sorted(edits[path], reverse=True):
                # Lines keep their numbers, for what a compiler says of them.
                text = text[:begin] + new + "\n" * text.count("\n", begin, end) + text[end:]
            content = text.encode()
        if not target.is_file() or target.read_bytes() != content:
            target.write_bytes(content)
            os.chmod(target, os.stat(root / path).st_mode)
    (copy.parent / "mutants.json").write_text(json.dumps(mutants, indent=0))
    return mutants
