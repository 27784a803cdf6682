#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one-line faults into host code and counts those that the tests notice.

One build holds all of them (plant.py). Each test runs once to see which it reaches; then each fault is
switched on, and the tests that reach it run, the short ones first, until one fails: the first ones alone,
the others of a program several at once, because most of their time is that of a process.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from plant import Stale, choose, plant

ROOT = Path(__file__).resolve().parents[2]
ERROR = re.compile(r"([^\s:]+):(\d+):(?:\d+:)? (?:fatal )?error:")
# Documents, packages and whole builds say nothing of a line of code.
LEFT_OUT = {"docs", "package"}
# A fault may ask for all memory, or fill a disk.
MOST_MEMORY, LARGEST_FILE = 8 << 30, 4 << 30


def limited():
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, seconds, environment, folder):
    """Whether it passed. All that it started ends with it."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True, preexec_fn=limited)
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def build(work, count, seed):
    """Plants, compiles, and leaves out what does not compile, until all does."""
    dropped_file = work / "dropped.json"
    dropped = set(json.loads(dropped_file.read_text())) if dropped_file.is_file() else set()
    folder = work / "build"
    for _ in range(8):
        mutants = plant(ROOT, work / "source", count, seed, dropped)
        configure = [work / "source/examples/configure.sh", folder, "--preset", "whole",
                     f"-DCMAKE_CXX_FLAGS=-include {work}/source/tests/mutation/mutant.hpp"]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL, cwd=work / "source",
                       env=dict(os.environ, VOCABPIPE_WERROR="OFF"))
        print(f"building with {len(mutants)} mutants", flush=True)
        output = subprocess.run(["cmake", "--build", folder, "--", "-k", "0"], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if output.returncode == 0:
            return mutants
        places = {(Path(m[1]).resolve(), int(m[2])) for m in ERROR.finditer(output.stdout)}
        wrong = {f"{m['path']}: {m['what']}: {m['code']}" for m in mutants for path, line in places
                 if path == (work / "source" / m["path"]).resolve() and m["lines"][0] <= line <= m["lines"][1]}
        if not wrong:
            sys.exit(f"run.py: error: the build fails, and not for a mutant:\n{output.stdout[-4000:]}")
        print(f"{len(wrong)} do not compile and are left out", flush=True)
        dropped |= wrong
        dropped_file.write_text(json.dumps(sorted(dropped)))
    sys.exit("run.py: error: still does not compile")


def list_tests(folder):
    """{name: (command, environment, working folder)}: tests one by one, or what CTest alone can start."""
    listing = json.loads(subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True,
                                        capture_output=True, text=True).stdout)
    tests = {}
    for entry in listing["tests"]:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        if LEFT_OUT & set(properties.get("LABELS", [])) or properties.get("DISABLED") or "command" not in entry:
            continue
        command, where = entry["command"], properties.get("WORKING_DIRECTORY", str(folder))
        environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", [])
                           if not pair.startswith("GTEST_"))
        if command[1:] != ["--gtest_brief=1"]:
            name = re.escape(entry["name"])
            tests[entry["name"]] = (["ctest", "--test-dir", str(folder), "-R", f"^{name}$"], {}, where)
            continue
        program, suite = Path(command[0]).name, ""
        if any(name.startswith(f"{program}: ") for name in tests):
            continue  # another shard
        names = subprocess.run([command[0], "--gtest_list_tests"], capture_output=True,
                               encoding="utf-8", errors="surrogateescape",
                               env=dict(os.environ, **environment)).stdout
        for line in names.splitlines():
            name = line.split("#")[0].rstrip()
            if not line.startswith(" "):
                suite = name
            elif "DISABLED_" not in suite + name:
                case = suite + name.strip()
                tests[f"{program}: {case}"] = ([command[0], f"--gtest_filter={case}"], environment, where)
    return tests


def record(test, count):
    """(seconds, mutants that it reaches), or none if it does not pass twice."""
    command, environment, folder = test
    with tempfile.NamedTemporaryFile() as seen:
        seen.truncate(count)
        began = time.monotonic()
        for _ in range(2):
            if run(command, 600, dict(os.environ, **environment, VOCABPIPE_MUTANTS_SEEN=seen.name), folder):
                numbers = [k for k, byte in enumerate(Path(seen.name).read_bytes()) if byte]
                return time.monotonic() - began, numbers
    return None


def record_all(tests, work, count, jobs):
    """What record() says of each test that passes; from the last time if nothing was built since."""
    programs = sorted((work / "build/bin").iterdir())
    stamp = [count, max(program.stat().st_mtime for program in programs)]
    cache = work / "recorded.json"
    if cache.is_file():
        before = json.loads(cache.read_text())
        if before["stamp"] == stamp:
            return before["tests"]
    recorded = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(record, test, count): name for name, test in tests.items()}
        for done, future in enumerate(concurrent.futures.as_completed(running), 1):
            if future.result() is None:
                print(f"does not pass, and is left out: {running[future]}", flush=True)
            else:
                recorded[running[future]] = future.result()
            if done % 1000 == 0:
                print(f"{done} of {len(tests)} tests recorded", flush=True)
    cache.write_text(json.dumps({"stamp": stamp, "tests": recorded}))
    return recorded


def several_at_once(tests, alone, seconds, starts):
    """Runs of (name, test, seconds): the first `alone` as they are, then tests of one program together, as long as
    all of them take less than `seconds` and their names fit a command line; the short runs first. `starts`: how
    long a program takes to begin, which is counted once."""
    groups = collections.defaultdict(list)
    took = lambda group: sum(entry[2] for entry in group) - (len(group) - 1) * starts[group[0][0].split(":")[0]]
    for name, test, alone_took in tests[alone:]:
        key = name.split(":")[0]
        while len(groups[key]) > 400 or took([*groups[key], (name, test, alone_took)]) > seconds and groups[key]:
            key += "+"
        groups[key].append((name, test, alone_took))
    runs = tests[:alone]
    for group in sorted(groups.values(), key=took):
        name, (command, environment, folder), _ = group[0]
        if len(group) > 1:
            names = ":".join(command[-1].split("=", 1)[1] for _, (command, _, _), _ in group)
            name, command = f"{name} and {len(group) - 1} others", [*command[:-1], f"--gtest_filter={names}"]
        if command[-1].startswith("--gtest_filter="):
            command = [*command, "--gtest_fail_fast"]
        runs.append((name, (command, environment, folder), took(group)))
    return runs


def judge(mutant, tests, budget, starts):
    """(found, survived or not reached, the test that noticed, seconds)"""
    began = time.monotonic()
    if not tests:
        return "not reached", "", 0
    for name, (command, environment, folder), seconds in several_at_once(tests, 5, 10, starts):
        def passes(**also):
            return run(command, 15 + 10 * seconds, dict(os.environ, **environment, **also), folder)

        # Tests that pass alone may disturb one another.
        if not passes(VOCABPIPE_MUTANT=str(mutant["number"])) and (" others" not in name or passes()):
            return "found", name, time.monotonic() - began
        if time.monotonic() - began > budget:
            return "survived", f"all of {budget} s of tests", time.monotonic() - began
    return "survived", f"all {len(tests)} tests", time.monotonic() - began


def table(results):
    counts = collections.defaultdict(collections.Counter)
    for result in results:
        for part in (result["part"], "all"):
            counts[part][result["outcome"]] += 1
    lines = ["| part | mutants | found | survived | not reached | found, % |", "|---|---|---|---|---|---|"]
    for part in sorted(counts, key=lambda part: (part == "all", part)):
        c = counts[part]
        lines.append(f"| {part} | {c.total()} | {c['found']} | {c['survived']} | {c['not reached']} "
                     f"| {100 * c['found'] / c.total():.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many are planted by rule")
    parser.add_argument("--seed", type=int, default=1, help="decides which")
    parser.add_argument("--seconds", type=float, default=60, help="tests of one mutant, at most")
    parser.add_argument("--part", help="only those of this part")
    parser.add_argument("--again", action="store_true", help="only those that were not found before")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--least", type=float, default=0, help="fails if fewer per cent are found")
    parser.add_argument("--folder", type=Path, default=ROOT / "build-mutation")
    parser.add_argument("--list", action="store_true", help="only say what would be planted")
    flags = parser.parse_args()
    work = flags.folder.resolve()
    try:
        if flags.list:
            for mutant in choose(ROOT, flags.mutants, flags.seed)[0]:
                print(f"{mutant['path']}:{mutant['line']}: {mutant['what']}: {mutant['code']}")
            return
        work.mkdir(exist_ok=True)
        mutants = build(work, flags.mutants, flags.seed)
    except Stale as stale:
        sys.exit(f"run.py: error: {stale}")

    tests = list_tests(work / "build")
    recorded = record_all(tests, work, len(mutants), flags.jobs)

    results_file = work / "results.json"
    before = json.loads(results_file.read_text()) if results_file.is_file() else []
    key = lambda m: (m["path"], m["what"], m["code"])
    found_before = {key(r): r for r in before if r["outcome"] == "found"} if flags.again else {}
    results, todo = [], []
    for mutant in mutants:
        if flags.part in (None, mutant["part"]):
            old = found_before.get(key(mutant))
            results.append(old) if old else todo.append(mutant)

    reached_by = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, (seconds, numbers) in recorded.items():
        for number in numbers:
            reached_by[number][name.split(":")[0]].append((seconds, name))

    def reaching(number):
        """The short tests first, of each program in turn: near ones and far ones are both early."""
        rounds = itertools.zip_longest(*(sorted(own) for own in reached_by[number].values()))
        order = [entry for one in rounds for entry in sorted(filter(None, one))]
        return [(name, tests[name], seconds) for seconds, name in order]

    starts = collections.defaultdict(lambda: float("inf"))
    for name, (seconds, _) in recorded.items():
        program = name.split(":")[0]
        starts[program] = min(starts[program], seconds)
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        running = {pool.submit(judge, mutant, reaching(mutant["number"]), flags.seconds, starts): mutant
                   for mutant in todo}
        for done, future in enumerate(concurrent.futures.as_completed(running), 1):
            mutant, (outcome, by, seconds) = running[future], future.result()
            results.append(dict(mutant, outcome=outcome, by=by, seconds=round(seconds, 1)))
            if outcome != "found":
                print(f"{outcome}: {mutant['path']}:{mutant['line']}: {mutant['what']}: {mutant['code']}"
                      f" ({by})", flush=True)
            if done % 50 == 0:
                print(f"{done} of {len(todo)} mutants", flush=True)
            results_file.write_text(json.dumps(results, indent=0))
    print(table(results))
    found = sum(result["outcome"] == "found" for result in results)
    if found < flags.least / 100 * len(results):
        sys.exit(f"run.py: error: {found} of {len(results)} were found, {flags.least} % are asked for")


if __name__ == "__main__":
    main()
