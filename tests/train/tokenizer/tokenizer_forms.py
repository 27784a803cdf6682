# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers in every form that published models have, trained with the package `tokenizers`."""

import json

import tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")


def byte_level(regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content, **changes):
    return dict({"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": True}, **changes)


BYTE_LEVEL_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPACE_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
MARK_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK_DECODER = {"type": "Sequence", "decoders": [MARK_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
STRIPPING_DECODER = {"type": "Sequence", "decoders": FALLBACK_DECODER["decoders"] + [STRIP]}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


# Of every form: what differs from {"normalizer": None, "model": {}, "added": [end of text]}.
FORMS = {
    "gpt2": {"pre_tokenizer": byte_level(True)},
    "gpt_neox": {"normalizer": {"type": "NFC"}, "pre_tokenizer": byte_level(True),
                 "added": [added("<|endoftext|>"), added("        ", special=False, normalized=True),
                           added("    ", special=False, normalized=True)]},
    "prefix_space": {"pre_tokenizer": byte_level(True, prefix=True),
                     "added": [added("</s>"), added("<mask>", lstrip=True)]},
    "llama3": {"pre_tokenizer": sequence(split(LLAMA3), byte_level(False)), "model": {"ignore_merges": True},
               "added": [added("<|begin_of_text|>"), added("<|end_of_text|>"), added("<|eot_id|>")]},
    "qwen2": {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(split(QWEN2), byte_level(False)),
              "added": [added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>"),
                        added("<tool_call>", special=False)]},
    "smollm": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(True))},
    "phi4": {"pre_tokenizer": sequence(split(LLAMA3), byte_level(False)),
             "added": [added("<|endoftext|>", lstrip=True, rstrip=True), added("<|im_sep|>", lstrip=True, rstrip=True),
                       added("whole", special=False, normalized=True, single_word=True)]},
    "deepseek_v3": {"normalizer": {"type": "Sequence", "normalizers": []},
                    "pre_tokenizer": sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK),
                                              byte_level(False)),
                    "added": [added("<｜begin▁of▁sentence｜>"), added("<｜end▁of▁sentence｜>"),
                              added("<think>", special=False, normalized=True)]},
    "tekken": {"pre_tokenizer": sequence(split(TEKKEN), byte_level(False)), "model": {"ignore_merges": True},
               "added": [added("<s>"), added("</s>"), added("[INST]")]},
    "nfkc": {"normalizer": {"type": "NFKC"}, "pre_tokenizer": byte_level(True)},
    "splits": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFKD"}]},
               "pre_tokenizer": sequence(split(r"\s", "Removed"), split(r"\p{Lu}", "MergedWithNext"),
                                         split(r"\p{P}", "MergedWithPrevious"),
                                         {"type": "Digits", "individual_digits": False},
                                         {"type": "Punctuation", "behavior": "Contiguous"},
                                         split(r"[aeiou]*", "Contiguous"), byte_level(False))},
    "llama2": {"normalizer": {"type": "Sequence",
                              "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE_MARK]},
               "pre_tokenizer": None, "decoder": STRIPPING_DECODER,
               "added": [added("<unk>"), added("<s>"), added("</s>")]},
    "mistral": {"pre_tokenizer": metaspace("first", False), "decoder": STRIPPING_DECODER,
                "added": [added("<unk>"), added("<s>"), added("</s>"), added("[INST]")]},
    "phi3": {"normalizer": {"type": "Sequence",
                            "normalizers": [{"type": "Prepend", "prepend": "▁"}, SPACE_MARK]},
             "pre_tokenizer": None, "decoder": STRIPPING_DECODER,
             "added": [added("<unk>"), added("<s>"), added("</s>", rstrip=True),
                       added("<|endoftext|>"), added("<|assistant|>", rstrip=True)]},
    "gemma": {"normalizer": SPACE_MARK, "decoder": FALLBACK_DECODER,
              "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                "invert": False},
              "added": [added("<unk>"), added("<bos>"), added("<eos>"), added("<start_of_turn>"),
                        added("\n\n", special=False), added("▁▁", special=False), added("<b>", special=False)]},
    "metaspace": {"pre_tokenizer": metaspace("always", True),
                  "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
                  "model": {"byte_fallback": False, "fuse_unk": False},
                  "added": [added("<unk>"), added("</s>")]},
}


def has_bytes(form):
    """Whether words are bytes."""
    return "ByteLevel" in json.dumps(FORMS[form]["pre_tokenizer"])


def tokenizer_json(form, vocab, merges, added_tokens, **model):
    """The tokenizer.json of a form with these tokens, as an object; `model`: what its BPE has besides."""
    what = FORMS[form]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
            "normalizer": what.get("normalizer"), "pre_tokenizer": what["pre_tokenizer"], "post_processor": None,
            "decoder": what.get("decoder", BYTE_LEVEL_DECODER),
            "model": dict({"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": False, "vocab": vocab, "merges": merges}, **model)}


def train(form, texts, vocab_size):
    """The tokenizer.json of a form, as an object."""
    what = FORMS[form]
    words = has_bytes(form)
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    how = byte_level(True) if words else metaspace("always", True)
    trained.pre_tokenizer = tokenizers.Tokenizer.from_str(json.dumps(
        {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": how})).pre_tokenizer
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet() if words else ["▁"]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False,
                                             limit_alphabet=300)
    trained.train_from_iterator(texts, trainer)
    learned = json.loads(trained.to_str())["model"]
    first = [token["content"] for token in what.get("added", [added("<|endoftext|>")])]
    tokens = [t for t in first if words or t in ("<unk>", "<s>", "</s>", "<bos>", "<eos>")]
    if not words:
        tokens += ["<0x%02X>" % byte for byte in range(256)]
    tokens += [t for t in sorted(learned["vocab"], key=learned["vocab"].get) if t not in tokens]
    vocab = {token: i for i, token in enumerate(tokens)}
    ids = dict(vocab)
    for token in first:
        ids.setdefault(token, len(ids))
    added_tokens = [dict({"id": ids[token["content"]]}, **token)
                    for token in what.get("added", [added("<|endoftext|>")])]
    model = {"unk_token": None if words else "<unk>", "fuse_unk": not words, "byte_fallback": not words}
    model.update(what.get("model", {}))
    return tokenizer_json(form, vocab, learned["merges"], added_tokens, **model)
