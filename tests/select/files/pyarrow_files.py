#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parquet files that pyarrow wrote are read, and pyarrow reads what is written.

    pyarrow_files.py PROGRAM

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
failures = 0


def expect(claim, holds, shown=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim} {shown}")


def run(*words):
    return subprocess.run([PROGRAM, "select", *words], capture_output=True, text=True, timeout=60)


def succeed(*words):
    done = run(*words)
    expect(" ".join(words), done.returncode == 0, done.stderr)


def refuse(code, text, *words):
    done = run(*words)
    line = done.stderr.strip()
    expect(f"{words} ends with {code}", done.returncode == code, f"{done.returncode}: {line}")
    expect(f"{words} says {text!r} in one line", text in line and "\n" not in line, line)
    expect(f"{words} writes nothing", not os.path.exists("refused"))


def write_npy(name, descr, shape, data):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)


def write_scores(name, utility, embedding, loss):
    n, h = len(embedding), len(embedding[0])
    tensors = [("embedding", "F32", [n, h], b"".join(struct.pack(f"<{h}f", *x) for x in embedding)),
               ("loss", "F32", [n], struct.pack(f"<{n}f", *loss)),
               ("utility", "I32", [n], struct.pack(f"<{n}i", *utility))]
    header = {"__metadata__": {"format": "vocabpipe scores 1", "utility.kind": "margin", "corpus.data": "",
                               "corpus.seq_length": "0", "corpus.samples": str(n)}}
    at = 0
    for tensor, kind, shape, data in tensors:
        header[tensor] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors))


def same(a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


def check_embeddings():
    rng = random.Random(1)
    n, h = 700, 24
    # Halves of small integers are the same number in every type.
    rows = [[rng.randrange(-16, 17) / 2 or 1.0 for _ in range(h)] for _ in range(n)]
    write_npy("x.npy", "<f4", (n, h), b"".join(struct.pack(f"<{h}f", *row) for row in rows))
    succeed("knn", "--embeddings", "x.npy", "--output", "npy.graph")
    types = {"list": pa.list_(pa.float32()), "large": pa.large_list(pa.float64()),
             "fixed": pa.list_(pa.float32(), h), "half": pa.list_(pa.float16())}
    for name, kind in types.items():
        values = pa.array(rows, pa.list_(pa.float32())).cast(kind) if name == "half" else pa.array(rows, kind)
        table = pa.table({"other": ["x"] * n, "embedding": values, "id": pa.array(range(n), pa.int32())})
        pq.write_table(table, f"{name}.parquet", row_group_size=97, compression="zstd")
        for ranks in ("1", "3"):
            succeed("knn", "--embeddings", f"{name}.parquet", "--output", "parquet.graph", "--ranks", ranks,
                    "--transport", "threads")
            expect(f"{name}: the graph is that of x.npy on {ranks} ranks", same("npy.graph", "parquet.graph"))

    def refused(text, columns):
        pq.write_table(pa.table(columns), "bad.parquet")
        refuse(3, text, "knn", "--embeddings", "bad.parquet", "--output", "refused")

    refused("row 2: embedding has 1 numbers, the first row 2", {"embedding": [[1.0, 2.0], [2.0, 3.0], [1.0]]})
    refused("row 1: embedding is missing", {"embedding": [[1.0, 2.0], None]})
    refused("row 1: embedding lacks a number", {"embedding": [[1.0, 2.0], [1.0, None]]})
    refused("row 1: embedding has nan", {"embedding": [[1.0, 2.0], [1.0, float("nan")]]})
    refused("row 0: embedding has no numbers", {"embedding": pa.array([[], []], pa.list_(pa.float32()))})
    refused("it must be lists of numbers", {"embedding": [1.0, 2.0]})
    refused("it must be integers or floating-point numbers", {"embedding": [["a"], ["b"]]})
    refused("row 1: id is 2", {"embedding": [[1.0], [2.0]], "id": [0, 2]})
    refused("has no column \"embedding\"", {"embeddings": [[1.0]]})
    refused("has no samples", {"embedding": pa.array([], pa.list_(pa.float32()))})
    with open("bad.parquet", "wb") as file:
        file.write(b"PAR1 but no more")
    refuse(3, "cannot be read as Parquet", "knn", "--embeddings", "bad.parquet", "--output", "refused")
    refuse(3, "missing.parquet", "knn", "--embeddings", "missing.parquet", "--output", "refused")


def check_edges():
    src, dst, weight = [0, 5, 2, 2], [1, 4, 0, 3], [0.5, 1.0, 0.25, 0.0]
    types = [(pa.int64(), pa.float64()), (pa.uint32(), pa.float32()), (pa.int16(), pa.float32())]
    for ids, weights in types:
        pq.write_table(pa.table({"weight": pa.array(weight, weights), "src": pa.array(src, ids),
                                 "dst": pa.array(dst, ids)}), "edges.parquet", row_group_size=3)
        succeed("import", "--edges", "edges.parquet", "--output", "edges.graph")
        succeed("export", "edges.graph", "--output", "out.parquet")
        out = pq.read_table("out.parquet").to_pydict()
        expect("edges come back", out == {"src": [0, 0, 2, 4], "dst": [1, 2, 3, 5], "weight": [0.5, 0.25, 0.0, 1.0]},
               out)
    schema = pq.read_schema("out.parquet")
    expect("columns are int64 and float64",
           [f.type for f in schema] == [pa.int64(), pa.int64(), pa.float64()], schema)

    def refused(text, columns):
        pq.write_table(pa.table(columns), "bad.parquet")
        refuse(3, text, "import", "--edges", "bad.parquet", "--output", "refused")

    refused("row 1: weight is -1", {"src": [0, 1], "dst": [1, 2], "weight": [1.0, -1.0]})
    refused("row 1: dst is missing", {"src": [0, 1], "dst": [1, None], "weight": [1.0, 1.0]})
    refused("row 0: names sample -3", {"src": [-3], "dst": [1], "weight": [1.0]})
    refused("column src is of type double", {"src": [0.0], "dst": [1], "weight": [1.0]})
    refused("has no column \"dst\"", {"src": [0], "weight": [1.0]})


def check_scores():
    utility = [1 << 20, 0, 3 << 18]
    embedding = [[1.0, 2.0], [3.0, 4.0], [5.0, -6.5]]
    loss = [0.5, 1.25, 2.0]
    write_scores("scores.safetensors", utility, embedding, loss)
    succeed("export", "scores.safetensors", "--output", "scores.parquet")
    out = pq.read_table("scores.parquet")
    expect("scores come out", out.to_pydict() == {"id": [0, 1, 2], "utility": [1.0, 0.0, 0.75],
                                                  "embedding": embedding, "loss": loss}, out.to_pydict())
    kind = out.schema.field("embedding").type
    expect("embeddings are lists of one length", pa.types.is_fixed_size_list(kind) and kind.list_size == 2, kind)
    # And in again.
    succeed("knn", "--embeddings", "scores.safetensors", "--output", "a.graph")
    succeed("knn", "--embeddings", "scores.parquet", "--output", "b.graph")
    expect("embeddings come back", same("a.graph", "b.graph"))


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pq.write_table(pa.table({"src": [0], "dst": [1], "weight": [1.0]}), "edges.parquet")
    first = run("import", "--edges", "edges.parquet", "--output", "edges.graph")
    if "VOCABPIPE_ENABLE_PARQUET" in first.stderr:
        expect("a build without Parquet ends with 2", first.returncode == 2, first.stderr)
        print("SKIPPED: built without -DVOCABPIPE_ENABLE_PARQUET=ON")
        sys.exit(1 if failures else 77)
    check_embeddings()
    check_edges()
    check_scores()
    os.chdir("/")
print(f"pyarrow {pa.__version__}: {failures} failures")
sys.exit(1 if failures else 0)
