#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases/, which bpe_tokenizer_test.cpp reads: of every form of tokenizer a small one, and what it makes of texts.

    venv/bin/pip install tokenizers
    venv/bin/python tests/train/tokenizer/make_cases.py            # those here: tokenizers 0.23.3

FORM/tokenizer.json was trained by the package `tokenizers`. FORM/cases.json has texts, their ids, the bytes at which
these begin (null where the normalizer changes the text), and the text that they decode to, all by `tokenizers`. Texts
have no characters that Unicode 14 does not know: versions of libraries differ in them.
"""

import json
import os
import sys
import unicodedata

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tokenizers  # noqa: E402
import tokenizer_forms  # noqa: E402
from nasty_texts import EMOJI, MARKS, SPACES, WORDS, NastyTexts, as_text  # noqa: E402

VOCAB_SIZE = 420
RANDOM_TEXTS = 40
# One of each kind of trouble, whatever the random ones have.
FIXED = ["", " ", "The  lamb's   wool\r\n\r\nwas 12345 fine. ", "\n\n leading", "DON'T they'Re 'ſ", "a\0b", "👍👍🏽é"]


def cases(tokenizer, texts):
    plain = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    for text in texts:
        encoding = plain.encode(text, add_special_tokens=False)
        changed = plain.normalizer is not None and plain.normalizer.normalize_str(text) != text
        begins = [len(text[:begin].encode()) for begin, _ in encoding.offsets]
        yield {"text": text, "ids": encoding.ids, "begins": None if changed else begins,
               "decoded": plain.decode(encoding.ids, skip_special_tokens=True)}


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
    for form in tokenizer_forms.FORMS:
        source = NastyTexts(7, invalid=False)
        samples = [" ".join(WORDS)] * 20 + [as_text(source.text()) for _ in range(500)]
        vocab_size = VOCAB_SIZE if tokenizer_forms.has_bytes(form) else VOCAB_SIZE - 150
        trained = tokenizer_forms.train(form, samples, vocab_size)
        folder = os.path.join(here, form)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(trained, file, ensure_ascii=False, separators=(",", ":"))
        added = [token["content"] for token in trained["added_tokens"]]
        source = NastyTexts(11, added, invalid=False)
        texts = FIXED + [" x ".join(added), "".join(MARKS), "".join(SPACES), "".join(EMOJI), " ".join(WORDS)]
        texts += [as_text(source.text()) for _ in range(RANDOM_TEXTS)]
        texts = [t for t in texts if not any(unicodedata.category(c) == "Cn" for c in t)]
        with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
            lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":"))
                     for case in cases(tokenizers.Tokenizer.from_str(json.dumps(trained)), texts)]
            file.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
