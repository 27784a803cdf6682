#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token files of data prepare with Megatron's own reader and writer:

    pip install --no-deps megatron-core && pip install numpy
    tests/train/prepare/compare_megatron.py build/bin/vocabpipe

Documents are random text, each of one range of characters, and some of one character, under two keys. Megatron's reader
must give the tokens and borders that were encoded, and its writer must make files of the same bytes, which
preprocess_data.py names PREFIX_KEY_document. PyTorch is not needed: the one file of megatron-core that reads and
writes token files uses names of it only.
"""
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

import numpy

DOCUMENTS = 5000
KEYS = ("text", "title")
END = 256  # of the byte tokenizer


def megatron_files():
    """megatron.core.datasets.indexed_dataset, without the packages around it."""
    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made
        return made

    unused = lambda *args, **kwargs: None
    dataset = types.SimpleNamespace(data=types.SimpleNamespace(Dataset=object))
    module("torch", utils=dataset, Tensor=numpy.ndarray)
    where = pathlib.Path(importlib.util.find_spec("megatron").submodule_search_locations[0]) / "core"
    for name in ("megatron.core", "megatron.core.datasets"):
        module(name, __path__=[])
    module("megatron.core.datasets.object_storage_utils", S3Config=object, ObjectStorageConfig=object,
           cache_index_file=unused, dataset_exists=unused, get_index_cache_path=unused,
           get_object_storage_access=unused, is_object_storage_path=lambda path: False, parse_s3_path=unused)
    feature = types.SimpleNamespace(is_enabled=lambda: False)
    module("megatron.core.msc_utils", MultiStorageClientFeature=feature)
    module("megatron.core.utils", log_single_rank=unused)
    name = "megatron.core.datasets.indexed_dataset"
    spec = importlib.util.spec_from_file_location(name, where / "datasets" / "indexed_dataset.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def random_documents(seed):
    numbers = random.Random(seed)
    documents = []
    for i in range(DOCUMENTS):
        first = numbers.choice([0x20, 0xC0, 0x410, 0x4E00, 0x1F300])
        length = 1 if i % 50 == 0 else numbers.randrange(1, 400)
        documents.append("".join(chr(first + numbers.randrange(64)) for _ in range(length)))
    return documents


def write_theirs(megatron, prefix, documents):
    builder = megatron.IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    for tokens in documents:
        builder.add_document(numpy.array(tokens), [len(tokens)])
    builder.finalize(prefix + ".idx")


def compare_key(megatron, key, texts, ours, theirs):
    """The number of differences."""
    expected = [list(text.encode()) + [END] for text in texts]
    read = megatron.IndexedDataset(ours)
    wrong = sum(read[i].tolist() != tokens for i, tokens in enumerate(expected))
    borders = read.document_indices.tolist() == list(range(len(expected) + 1)) and len(read) == len(expected)
    print(f"Megatron reads ours of {key}: {len(read)} documents, {sum(read.sequence_lengths)} tokens, {wrong} documents "
          f"wrong, borders {'equal' if borders else 'different'}")

    write_theirs(megatron, theirs, expected)
    different = [suffix for suffix in (".bin", ".idx")
                 if pathlib.Path(ours + suffix).read_bytes() != pathlib.Path(theirs + suffix).read_bytes()]
    print(f"Megatron writes the same documents: {', '.join(different) or 'no file'} different")
    return wrong + (not borders) + len(different)


def compare(tool, folder):
    """The number of differences."""
    megatron = megatron_files()
    texts = {key: random_documents(seed) for seed, key in enumerate(KEYS, 5)}
    lines = (json.dumps(dict(zip(KEYS, line))) + "\n" for line in zip(*texts.values()))
    (folder / "texts.jsonl").write_text("".join(lines))
    subprocess.run([tool, "data", "prepare", "--input", str(folder / "texts.jsonl"), "--output", str(folder / "ours"),
                    "--json-keys", *KEYS], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return sum(compare_key(megatron, key, texts[key], str(folder / f"ours_{key}_document"), str(folder / f"theirs_{key}"))
               for key in KEYS)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(1 if compare(sys.argv[1], pathlib.Path(folder)) else 0)


if __name__ == "__main__":
    main()
