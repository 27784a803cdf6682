#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares examples/chats with apply_chat_template() of transformers, template by template:

    pip install transformers jinja2
    tests/chats/compare_transformers.py [TEMPLATE_OR_FOLDER...]   # default: tests/chats/templates
    tests/chats/compare_transformers.py --tool build/bin/vocabpipe [...]
    tests/chats/compare_transformers.py --write                   # records transformers.json and tokenizer.json

Every template renders the chats of chats.jsonl, with and without the prompt that asks for an answer. Texts must
be equal, chats that one side refuses must be refused by the other, and where the template marks what the
assistant says, the tokens that transformers masks must be those that overlap our ranges. With --tool, data prepare
encodes the chats of these templates, and its tokens and weights must be the tokens and masks of transformers.
"""
import array
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import tokenizers
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "examples" / "chats"))

from chat_lines import ChatReader, byte_ranges, tools_of
from chat_template import ChatError, ChatTemplate, ChatTemplates, InputError, plain_messages

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def byte_tokenizer():
    """Every byte is a token; <s>, </s> and those of ChatML are one, too."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({letter: at for at, letter in enumerate(letters)}, [])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, extra_special_tokens=["<|im_start|>", "<|im_end|>"], **TOKENS)


def trained_tokenizer(sources, vocab_size=1500):
    """Pieces of several words of these templates and chats, so that they reach over borders of messages."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    texts = [source for _, source in sources] + (HERE / "chats.jsonl").read_text(encoding="utf-8").splitlines()
    made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=[*TOKENS.values(), "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, extra_special_tokens=["<|im_start|>", "<|im_end|>"], **TOKENS)


def prepared(tool, folder, lines):
    """[(ids, weights)] of every line, as vocabpipe data prepare encodes it."""
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([tool, "data", "prepare", "--input", folder / "lines.jsonl", "--output", folder / "set",
                    "--tokenizer-model", folder / "tokenizer.json"], check=True, stdout=subprocess.DEVNULL)
    index = (folder / "set.idx").read_bytes()
    [count] = struct.unpack_from("<Q", index, 18)
    ids = array.array("H", (folder / "set.bin").read_bytes())
    weights = (folder / "set.weights").read_bytes()[16:-16]
    assert len(weights) == len(ids)
    documents, first = [], 0
    for length in struct.unpack_from(f"<{count}i", index, 34):
        documents.append((list(ids[first:first + length]), list(weights[first:first + length])))
        first += length
    return documents


def lines_and_masks(tokenizer, name, source, chats):
    """Rendered lines of a template that marks, and for each (input_ids, assistant_masks) of transformers."""
    end = tokenizer.eos_token_id
    reader = ChatReader(ChatTemplates({"default": ChatTemplate(source, name, TOKENS)}), False)
    lines, expected = [], []
    for chat in chats:
        try:
            lines += reader.read(json.dumps(chat).encode())
        except ChatError:
            continue
        made = tokenizer.apply_chat_template(chat["messages"], tools=tools_of(chat), chat_template=source,
                                             tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = made["input_ids"], made["assistant_masks"]
        # data prepare ends every document.
        expected.append((ids, mask) if ids[-1] == end else (ids + [end], mask + mask[-1:]))
    return lines, expected


def compare_prepared(tool, sources, chats):
    """Chats of templates that mark, whose tokens and masks data prepare makes, too."""
    tokenizer = trained_tokenizer(sources)
    equal, different, pieces = 0, 0, 0
    for name, source in sources:
        if "endgeneration" not in source:
            continue
        lines, expected = lines_and_masks(tokenizer, name, source, chats)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            found = prepared(tool, pathlib.Path(folder), lines)
        for at, (ours_made, theirs_made) in enumerate(zip(found, expected, strict=True)):
            pieces += len(ours_made[0])
            if ours_made == theirs_made:
                equal += 1
            else:
                different += 1
                print(f"{name}: chat {at}: data prepare differs\n  {ours_made}\n  {theirs_made}")
    print(f"data prepare: tokens and weights of {equal} chats equal, {different} different ({pieces} tokens)")
    return different


def theirs(tokenizer, source, chat, prompt):
    """The text, and per character whether a learnt token covers it (None: the template marks nothing)."""
    arguments = dict(tools=tools_of(chat), chat_template=source, add_generation_prompt=prompt)
    try:
        text = tokenizer.apply_chat_template(chat["messages"], tokenize=False, **arguments)
    except Exception:
        return None, None
    if "endgeneration" not in source:
        return text, None
    result = tokenizer.apply_chat_template(chat["messages"], tokenize=True, return_dict=True,
                                           return_assistant_tokens_mask=True, **arguments)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert encoding["input_ids"] == result["input_ids"]
    learnt = [span for span, mask in zip(encoding["offset_mapping"], result["assistant_masks"]) if mask]
    return text, (encoding["offset_mapping"], learnt)


def ours(template, chat, prompt):
    try:
        return template.render(plain_messages(chat["messages"]), tools_of(chat), {}, prompt)
    except ChatError:
        return None, None


def compare(tokenizer, name, source, chats):
    """Texts that were equal, chats that both refuse, masks that were equal; differences are printed."""
    try:
        template = ChatTemplate(source, name, TOKENS)
    except InputError as error:
        template = None
        print(f"{name}: {error}")
    equal, refused, masks, different = 0, 0, 0, 0
    for at, chat in enumerate(chats):
        for prompt in (False, True):
            text, mask = theirs(tokenizer, source, chat, prompt)
            rendered, spans = ours(template, chat, prompt) if template else (None, None)
            if text != rendered:
                different += 1
                print(f"{name}: chat {at}, prompt {prompt}: texts differ\n  {text!r}\n  {rendered!r}")
            elif text is None:
                refused += 1
            else:
                equal += 1
            if text is not None and text == rendered and mask is not None:
                offsets, learnt = mask
                overlap = [(begin, end) for begin, end in offsets
                           if any(begin < last and end > first for first, last in spans)]
                masks += overlap == learnt
                if overlap != learnt:
                    different += 1
                    print(f"{name}: chat {at}: masks differ\n  {learnt}\n  {overlap}")
    return equal, refused, masks, different


def learns(name, source, chat, last):
    """Whether it is found what the assistant says in all messages, or in the last one."""
    try:
        templates = ChatTemplates({"default": ChatTemplate(source, name, TOKENS)})
        return bool(ChatReader(templates, last).read(json.dumps(chat).encode()))
    except (ChatError, InputError):
        return False


def record(sources, chats):
    """What transformers makes of the committed templates: of each chat the text and its marked bytes, and of templates
    that mark the tokens and masks, with a tokenizer that is saved, too."""
    made = {}
    for name, source in sources:
        made[name] = []
        for chat in chats:
            # transformers' own function that also says where {% generation %} is.
            try:
                [text], spans = transformers.utils.chat_template_utils.render_jinja_template(
                    [plain_messages(chat["messages"])], tools=tools_of(chat), chat_template=source,
                    return_assistant_tokens_mask=True, **TOKENS)
            except Exception:
                made[name].append(None)
                continue
            one = {"text": text}
            if "endgeneration" in source:
                one["marked"] = byte_ranges(text, [span for span in spans[0] if span[0] < span[1]])
            made[name].append(one)
    tokenizer = trained_tokenizer(sources, vocab_size=400)
    tokenizer.backend_tokenizer.save(str(HERE / "tokenizer.json"))
    prepared_chats = {name: lines_and_masks(tokenizer, name, source, chats)[1] for name, source in sources
                      if "endgeneration" in source}
    record = {"texts": made, "tokens and masks": prepared_chats}
    (HERE / "transformers.json").write_text(json.dumps(record, ensure_ascii=True, sort_keys=True).replace(
        "}, {", "},\n{").replace("]], [[", "]],\n[[") + "\n")
    print(f"transformers.json: {len(sources)} templates, {len(chats)} chats, transformers {transformers.__version__}")


def main():
    words = sys.argv[1:]
    tool = words.pop(words.index("--tool") + 1) if "--tool" in words else None
    paths = [pathlib.Path(word) for word in words if not word.startswith("--")] or [HERE / "templates"]
    files = sorted(file for path in paths for file in (path.glob("*.jinja") if path.is_dir() else [path]))
    sources = [(file.stem, file.read_text(encoding="utf-8")) for file in files]
    chats = [json.loads(line) for line in (HERE / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    tokenizer = byte_tokenizer()
    if "--write" in sys.argv:
        return record(sources, chats)
    totals = [0, 0, 0, 0]
    exchanges = max((chat for chat in chats if "tools" not in chat), key=lambda chat: len(chat["messages"]))
    for name, source in sources:
        found = compare(tokenizer, name, source, chats)
        print(f"{name:<55} {found[0]:3} equal, {found[1]:3} refused by both, {found[2]:3} masks equal, "
              f"{found[3]:3} different")
        totals = [total + one for total, one in zip(totals, found)]
    print(f"{len(sources)} templates: {totals[0]} texts equal, {totals[1]} refused by both, {totals[2]} masks equal, "
          f"{totals[3]} different (transformers {transformers.__version__})")
    found = [sum(learns(name, source, exchanges, last) for name, source in sources) for last in (False, True)]
    print(f"what the assistant says in {len(exchanges['messages']) // 2} exchanges is found for {found[0]} of them, "
          f"with --learn last for {found[1]}")
    if tool:
        totals[3] += compare_prepared(tool, sources, chats)
    return 1 if totals[3] or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
