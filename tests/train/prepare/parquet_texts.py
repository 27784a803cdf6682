#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts of Parquet files that pyarrow wrote become the tokens of the same texts in JSON lines.

    parquet_texts.py PROGRAM

PROGRAM is vocabpipe. Ends with 77 where there is no pyarrow, or PROGRAM has no Parquet.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    print(f"SKIPPED: {error}; pip install pyarrow")
    sys.exit(77)

PROGRAM = os.path.abspath(sys.argv[1])
ROWS = 3000
END = 256  # of the byte tokenizer
failures = 0


def expect(claim, holds, shown=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim} {shown}")


def prepare(*words):
    return subprocess.run([PROGRAM, "data", "prepare", *words], capture_output=True, text=True, timeout=60)


def refuse(code, text, *words):
    done = prepare("--output", "refused", *words)
    line = done.stderr.strip()
    expect(f"{words} ends with {code}", done.returncode == code, f"{done.returncode}: {line}")
    expect(f"{words} says {text!r} in one line", text in line and "\n" not in line, line)
    expect(f"{words} writes nothing", not [name for name in os.listdir(".") if name.startswith("refused")])


def random_texts():
    """Some empty, some missing, some long; more than a chunk of a MiB together."""
    numbers = random.Random(3)
    texts = []
    for i in range(ROWS):
        if i % 500 == 7:
            texts.append(None)
            continue
        first = numbers.choice([0x20, 0x410, 0x4E00, 0x1F300])
        length = 300_000 if i % 1000 == 11 else numbers.randrange(0, 800)
        texts.append("".join(chr(first + numbers.randrange(64)) for _ in range(length)))
    return texts


def read(name):
    with open(name, "rb") as file:
        return file.read()


def compare_forms(texts):
    with open("texts.jsonl", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    bad = str(texts.count(None))
    done = prepare("--input", "texts.jsonl", "--output", "lines", "--max-bad-lines", bad)
    expect("JSON lines are prepared", done.returncode == 0, done.stderr)
    numbers = pa.array(range(len(texts)))
    forms = {"plain": (pa.string(), {"compression": "none", "row_group_size": 1000}),
             "snappy": (pa.large_string(), {"compression": "snappy", "row_group_size": 7}),
             "zstd": (pa.string(), {"compression": "zstd", "use_dictionary": False}),
             "gzip": (pa.string(), {"compression": "gzip", "data_page_version": "2.0", "data_page_size": 4096})}
    for name, (kind, how) in forms.items():
        table = pa.table({"id": numbers, "text": pa.array(texts, kind), "other": pa.array(texts, kind)})
        pq.write_table(table, f"{name}.parquet", **how)
        for workers in "1", "3":
            done = prepare("--input", f"{name}.parquet", "--output", name, "--max-bad-lines", bad, "--workers", workers)
            expect(f"{name} is prepared", done.returncode == 0, done.stderr)
            expect(f"{name} names the rows without text", f"{name}.parquet row 8: has no text (null)" in done.stderr,
                   done.stderr)
            for suffix in ".bin", ".idx":
                expect(f"{name}{suffix} has the bytes of JSON lines", read(name + suffix) == read("lines" + suffix))


def compare_several_inputs():
    pq.write_table(pa.table({"a": ["one"], "b": ["1"]}), "1.parquet")
    with open("2.jsonl", "w") as file:
        file.write('{"a": "two", "b": "2"}\n')
    done = prepare("--input", "1.parquet", "2.jsonl", "--output", "both", "--json-keys", "a", "b")
    expect("a table and lines are prepared together", done.returncode == 0, done.stderr)
    for key, text in ("a", "one two"), ("b", "1 2"):
        tokens = [token for word in text.split() for token in [*word.encode(), END]]
        expect(f"both have the tokens of {key}",
               read(f"both_{key}_document.bin") == struct.pack(f"<{len(tokens)}H", *tokens))


def check_refusals():
    pq.write_table(pa.table({"text": pa.array([b"bytes"], pa.binary()), "n": [1], "empty": ["x"]}), "types.parquet")
    refuse(3, 'types.parquet: has no column "none"', "--input", "types.parquet", "--json-keys", "none")
    refuse(3, "types.parquet: column text is of type binary; it must be strings", "--input", "types.parquet")
    refuse(3, "types.parquet: column n is of type int64", "--input", "types.parquet", "--json-keys", "n")
    refuse(2, "each row of types.parquet is a document", "--input", "types.parquet", "--document-separator", "line")
    pq.write_table(pa.table({"text": pa.array([None, "x"], pa.string())}), "null.parquet")
    refuse(3, "null.parquet row 1: has no text (null)", "--input", "null.parquet")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), "none.parquet")
    refuse(3, "none.parquet: no text found", "--input", "none.parquet")
    whole = read("plain.parquet")
    numbers = random.Random(4)
    for i in range(60):
        with open("damaged.parquet", "wb") as file:
            if i < 30:
                file.write(whole[:numbers.randrange(4, len(whole))])
            else:  # the footer, and what lies before it
                at = numbers.randrange(len(whole) - 4000, len(whole))
                file.write(whole[:at] + bytes([whole[at] ^ 1 << numbers.randrange(8)]) + whole[at + 1:])
        done = prepare("--input", "damaged.parquet", "--output", "refused", "--max-bad-lines", str(ROWS))
        expect("a damaged table is refused or read, never a crash", done.returncode in (0, 3),
               f"{done.returncode} {done.stderr}")
        if i < 30:
            expect("a table that is cut off is refused", done.returncode == 3)


def main():
    pq.write_table(pa.table({"text": ["a"]}), "probe.parquet")
    done = prepare("--input", "probe.parquet", "--output", "probe")
    if done.returncode == 2 and "this build has no Parquet" in done.stderr:
        print(f"SKIPPED: {done.stderr.strip()}")
        sys.exit(77)
    compare_forms(random_texts())
    compare_several_inputs()
    check_refusals()
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
