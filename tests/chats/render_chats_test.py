#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What examples/chats renders, learns and refuses. What transformers renders is in transformers.json
(compare_transformers.py --write made it). Exit code 77: no jinja2.

    render_chats_test.py [VOCABPIPE]    # the program, to test what it makes of rendered chats
"""
import array
import gzip
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from random import Random

HERE = pathlib.Path(__file__).resolve().parent
CHATS = HERE.parent.parent / "examples" / "chats"
sys.path.insert(0, str(CHATS))

try:
    import jinja2  # noqa: F401
except ModuleNotFoundError:
    print("SKIPPED: no jinja2; apt-get install python3-jinja2")
    sys.exit(77)

TOOL = sys.argv.pop(1) if len(sys.argv) > 1 and pathlib.Path(sys.argv[1]).is_file() else None

import render_chats
from chat_lines import ChatReader, tools_of
from chat_template import ChatError, ChatTemplate, ChatTemplates, InputError, open_templates, plain_messages

RECORDED = json.loads((HERE / "transformers.json").read_text())
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
EXCHANGE = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
TWO = EXCHANGE + [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]


def template(source, name="template"):
    return ChatTemplate(source, name, TOKENS)


def committed(name):
    return template((HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8"), name)


def read(one, line, learn_last=False):
    return ChatReader(ChatTemplates({"default": one}), learn_last).read(json.dumps(line).encode())


def learnt(one, line, learn_last=False):
    """The pieces of text that are learnt of a line."""
    [chat] = read(one, line, learn_last)
    text = chat["text"].encode()
    return [text[begin:end].decode() for begin, end in chat["learn"]]


def refusal(read, *arguments):
    try:
        read(*arguments)
    except (ChatError, InputError) as error:
        return str(error)
    return "none"


class Rendering(unittest.TestCase):
    chats = [json.loads(line) for line in (HERE / "chats.jsonl").read_text(encoding="utf-8").splitlines()]

    def test_every_text_is_that_of_transformers(self):
        recorded = RECORDED["texts"]
        names = {file.stem for file in (HERE / "templates").glob("*.jinja")}
        self.assertEqual(names, set(recorded))
        for name, expected in recorded.items():
            one = committed(name)
            for at, (chat, made) in enumerate(zip(self.chats, expected, strict=True)):
                with self.subTest(template=name, chat=at):
                    if made is None:
                        with self.assertRaises(ChatError):
                            one.render(plain_messages(chat["messages"]), tools_of(chat), {})
                        continue
                    text, spans = one.render(plain_messages(chat["messages"]), tools_of(chat), {})
                    self.assertEqual(text, made["text"])
                    in_bytes = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]
                    self.assertEqual(in_bytes, made.get("marked", []))

    def test_only_template_that_marks_has_marks(self):
        marking = [file.stem for file in (HERE / "templates").glob("*.jinja") if committed(file.stem).marks]
        self.assertEqual(marking, ["marked_tools"])

    def test_sandbox_shows_nothing_of_python(self):
        for source in ("{{ ''.__class__.__mro__ }}", "{{ namespace(__class__=1) }}", "{{ dict.__init__ }}",
                       "{{ cycler.__init__.__globals__ }}", "{{ messages.append(1) }}",
                       "{% set ns = namespace() %}{% set ns._x = 1 %}"):
            with self.subTest(source=source):
                said = refusal(template(source).render, EXCHANGE, None, {})
                self.assertTrue("refuses it: " in said or template(source).render(EXCHANGE, None, {})[0] == "", said)

    def test_endless_template_is_a_bad_line(self):
        render_chats.CHAT_SECONDS = 0.3
        before = signal.signal(signal.SIGALRM, render_chats.too_slow)
        try:
            endless = template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
            reader = ChatReader(ChatTemplates({"default": endless}), False)
            line = json.dumps({"messages": EXCHANGE}).encode()
            _, chats, _, _, bad = render_chats.render_lines(reader, [(7, line)])
        finally:
            signal.signal(signal.SIGALRM, before)
            render_chats.CHAT_SECONDS = 10
        self.assertEqual((chats, bad), (0, [(7, "the template takes longer than 0.3 s")]))


class Learning(unittest.TestCase):
    def test_comparing_finds_what_the_assistant_says_and_its_end(self):
        for name, expected in {
                "chatml_default_system": ["2<|im_end|>\n", "4<|im_end|>\n"],
                "llama2": [" 2 </s>", " 4 </s>"],
                "llama3": ["2<|eot_id|>", "4<|eot_id|>"],
                "mistral_tools": [" 2</s>", " 4</s>"],
                "gemma": ["2<end_of_turn>\n", "4<end_of_turn>\n"],
                "deepseek": ["2<|end|>", "4<|end|>"]}.items():
            with self.subTest(template=name):
                self.assertEqual(learnt(committed(name), {"messages": TWO}), expected)

    def test_marks_decide_where_there_are_any(self):
        thinking = EXCHANGE[:1] + [{"role": "assistant", "content": "2", "thinking": "one more"}]
        self.assertEqual(learnt(committed("marked_tools"), {"messages": thinking + TWO}),
                         ["<think>one more</think>", "2<|im_end|>", "2<|im_end|>", "4<|im_end|>"])

    def test_last_message_alone_can_be_learnt(self):
        for name in ("marked_tools", "llama3", "thinking"):
            with self.subTest(template=name):
                self.assertEqual(len(learnt(committed(name), {"messages": TWO}, learn_last=True)), 1)
        self.assertEqual(learnt(committed("llama3"), {"messages": TWO}, learn_last=True), ["4<|eot_id|>"])

    def test_template_that_changes_earlier_messages_is_refused(self):
        thoughts = [dict(message, reasoning_content="hm") if message["role"] == "assistant" else message
                    for message in TWO]
        said = refusal(learnt, committed("thinking"), {"messages": thoughts})
        self.assertIn("the first 2 messages in another way", said)
        self.assertIn("use --learn last, or a template with {% generation %}", said)
        self.assertEqual(learnt(committed("thinking"), {"messages": thoughts}, learn_last=True),
                         ["<think>\nhm\n</think>\n\n4<|im_end|>\n"])

    def test_marks_in_a_macro_are_refused(self):
        said = refusal(learnt, template("{% macro m(x) %}Z{% generation %}{{ x }}{% endgeneration %}{% endmacro %}"
                                        "ab{{ m(messages[1].content) }}"), {"messages": EXCHANGE})
        self.assertIn("write it outside of them", said)

    def test_completion_is_learnt_and_prompt_is_not(self):
        self.assertEqual(learnt(None, {"prompt": "äb ", "completion": "cö"}), ["cö"])
        line = {"prompt": TWO[:3], "completion": TWO[3:]}
        self.assertEqual(learnt(committed("llama3"), line), ["4<|eot_id|>"])
        self.assertEqual(learnt(committed("marked_tools"), line), ["4<|im_end|>"])

    def test_pair_becomes_two_lines_that_learn_its_answers(self):
        other = TWO[:3] + [{"role": "assistant", "content": "5"}]
        expected = [read(committed("llama3"), {"prompt": TWO[:3], "completion": chat[3:]}) for chat in (TWO, other)]
        for line in ({"chosen": TWO, "rejected": other, "messages": EXCHANGE, "score": 1},
                     {"prompt": "2+2", "chosen": TWO, "rejected": other},
                     {"prompt": TWO[:3], "chosen": TWO[3:], "rejected": other[3:]}):
            self.assertEqual([[chat] for chat in read(committed("llama3"), line)], expected)
        better, worse = read(None, {"prompt": "ä ", "chosen": "b", "rejected": "cd"})
        self.assertEqual((better["text"], worse["text"]), ("ä b", "ä cd"))
        self.assertEqual((better["learn"], worse["learn"]), ([[3, 4]], [[3, 5]]))

    def test_tools_choose_the_template_for_them(self):
        templates = ChatTemplates({"default": template("plain: {{ messages[1].content }}"),
                                   "tool_use": template("tools {{ tools | length }}: {{ messages[1].content }}")})
        for tools in ([{"a": 1}], '[{"a": 1}]'):
            self.assertEqual(tools_of({"tools": tools}), [{"a": 1}])
        self.assertTrue(templates.choose(True).render(EXCHANGE, [{}], {})[0].startswith("tools 1"))
        self.assertTrue(templates.choose(False).render(EXCHANGE, None, {})[0].startswith("plain"))


class BadLines(unittest.TestCase):
    def test_every_bad_line_is_refused_by_name(self):
        reader = ChatReader(ChatTemplates({"default": committed("llama2")}), False)

        def chat(message):
            return json.dumps({"messages": [message]}).encode()

        for line, expected in {
                b"{": "is no JSON",
                b"[1]": "is no JSON object but a list",
                b"\xff{}": "byte 0 of the line is not UTF-8",
                b"[" * 100000: "is nested too deeply",
                b'{"text": "a"}': "nor prompt and completion, nor chosen and rejected; its keys are text",
                b'{"chosen": "a"}': "has one of chosen and rejected",
                b'{"chosen": "a", "rejected": "a"}': "are equal",
                b'{"chosen": "a", "rejected": "b"}': "needs a prompt beside it",
                b'{"prompt": "a", "chosen": "b", "rejected": ""}': '"rejected" is empty',
                json.dumps({"chosen": EXCHANGE, "rejected": EXCHANGE[1:]}).encode(): "begin with the same message",
                json.dumps({"chosen": EXCHANGE, "rejected": EXCHANGE[:1]}).encode(): "ends where they begin",
                b'{"conversations": []}': "name them messages, role and content",
                b'{"prompt": "a"}': "has neither messages, nor prompt and completion",
                b'{"prompt": "a", "completion": ""}': '"completion" is empty',
                b'{"prompt": "a", "completion": 1}': '"prompt" is no list but a string',
                b'{"messages": {}}': '"messages" is no list but an object',
                b'{"messages": []}': '"messages" is empty',
                b'{"messages": ["a"]}': "messages[0] is no object but a string",
                chat({"content": "a"}): "messages[0] has no role",
                chat({"role": "user"}): "messages[0] has neither content nor tool_calls",
                chat({"role": "user", "content": [{"type": "text", "text": "a"}]}): "content is a list of parts",
                chat({"role": "user", "content": 7}): "messages[0].content is no string but a number",
                chat({"role": "user", "content": "a"}): "nothing to learn",
                chat({"role": "assistant", "content": "\ud800"}): "half of a surrogate pair",
                json.dumps({"messages": EXCHANGE[:1] + EXCHANGE}).encode():
                    "(line 1) refuses it: two questions without an answer",
                json.dumps({"messages": EXCHANGE, "tools": "{"}).encode(): '"tools" is a string that is no JSON',
                json.dumps({"messages": EXCHANGE, "tools": [1]}).encode(): '"tools" is no list of objects',
                json.dumps({"messages": EXCHANGE, "chat_template_kwargs": 1}).encode(): "is no object"}.items():
            with self.subTest(line=line[:60]):
                self.assertIn(expected, refusal(reader.read, line))

    def test_chat_without_a_template_is_refused(self):
        said = refusal(ChatReader(None, False).read, json.dumps({"messages": EXCHANGE}).encode())
        self.assertIn("give --tokenizer or --chat-template", said)


class Mutations(unittest.TestCase):
    """Whatever a file holds is rendered or refused."""

    @staticmethod
    def mutated(random, content):
        content = bytearray(content)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(content))
            kind = random.randrange(3)
            if kind == 0:
                content[at] = random.choice(b'{}[]",:%\\\x00\xff1e-')
            elif kind == 1:
                del content[at:at + random.randint(1, 30)]
            else:
                content[at:at] = content[max(0, at - random.randint(1, 20)):at]
        return bytes(content) or b"{"

    def test_mutated_lines(self):
        random = Random(1)
        lines = (HERE / "chats.jsonl").read_bytes().splitlines()
        reader = ChatReader(ChatTemplates({"default": committed("marked_tools")}), False)
        outcomes = {"rendered": 0, "refused": 0}
        for _ in range(3000):
            line = self.mutated(random, random.choice(lines))
            try:
                for chat in reader.read(line):
                    size = len(chat["text"].encode())
                    self.assertTrue(all(0 <= begin < end <= size for begin, end in chat["learn"]))
                outcomes["rendered"] += 1
            except ChatError:
                outcomes["refused"] += 1
        self.assertGreater(min(outcomes.values()), 100, outcomes)

    def test_mutated_templates(self):
        random = Random(2)
        sources = [file.read_bytes() for file in sorted((HERE / "templates").glob("*.jinja"))]
        outcomes = {"rendered": 0, "refused": 0}
        for _ in range(1000):
            source = self.mutated(random, random.choice(sources)).decode(errors="replace")
            try:
                template(source).render(TWO, None, {})
                outcomes["rendered"] += 1
            except (ChatError, InputError):
                outcomes["refused"] += 1
        self.assertGreater(min(outcomes.values()), 100, outcomes)


class Prepared(unittest.TestCase):
    @unittest.skipIf(TOOL is None, "no vocabpipe")
    def test_tokens_and_weights_are_the_masks_of_transformers(self):
        [(name, expected)] = RECORDED["tokens and masks"].items()
        reader = ChatReader(ChatTemplates({"default": committed(name)}), False)
        lines = [chat for line in (HERE / "chats.jsonl").read_bytes().splitlines() for chat in reader.read(line)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "tokenizer.json").write_bytes((HERE / "tokenizer.json").read_bytes())
            (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
            (folder / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            subprocess.run([TOOL, "data", "prepare", "--input", folder / "chats.jsonl", "--output", folder / "set",
                            "--tokenizer-model", folder / "tokenizer.json"], check=True, timeout=60,
                           stdout=subprocess.DEVNULL)
            tokens = array.array("H", (folder / "set.bin").read_bytes()).tolist()
            weights = list((folder / "set.weights").read_bytes()[16:-16])
            shown = subprocess.run([TOOL, "data", "inspect", folder / "set", "--document", "0", "--tokenizer-model",
                                    folder / "tokenizer.json"], check=True, timeout=60, capture_output=True, text=True)
        self.assertEqual(tokens, [token for ids, _ in expected for token in ids])
        self.assertEqual(weights, [weight for _, mask in expected for weight in mask])
        self.assertIn("  <|im_start|>user\n  How many legs has a spider?<|im_end|>\n  <|im_start|>assistant\n"
                      "  {+Eight.+}{+<|im_end|>+}\n  </s>\n", shown.stdout)


class Folders(unittest.TestCase):
    def setUp(self):
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)

    def tearDown(self):
        self.kept.cleanup()

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def text(self, choice=None, variables=None, tools=False):
        templates = open_templates(str(self.folder), choice, variables or {})
        return templates.choose(tools).render(EXCHANGE, None, {})[0]

    def test_template_and_tokens_of_tokenizer_config(self):
        self.write("tokenizer_config.json", {
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ x }}",
            "bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": None})
        self.assertEqual(self.text(), "<b>1+1<e>")
        self.assertEqual(self.text(variables={"x": 5, "eos_token": "!"}), "<b>1+1!5")

    def test_named_templates(self):
        self.write("tokenizer_config.json", {"chat_template": [{"name": "default", "template": "d"},
                                                               {"name": "tool_use", "template": "t"},
                                                               {"name": "rag", "template": "r"}]})
        self.assertEqual([self.text(), self.text(tools=True), self.text("rag"), self.text("rag", tools=True)],
                         ["d", "t", "r", "r"])

    def test_file_comes_before_the_key(self):
        self.write("tokenizer_config.json", {"chat_template": "key"})
        self.write("chat_template.jinja", "file")
        self.write("additional_chat_templates/rag.jinja", "rag")
        self.assertEqual([self.text(), self.text("rag")], ["file", "rag"])

    def test_refusals_name_file_and_remedy(self):
        for name, content, expected in (
                ("none.json", "", "has no chat template, neither chat_template.jinja nor"),
                ("tokenizer_config.json", "{", "tokenizer_config.json: is no JSON"),
                ("tokenizer_config.json", [], "is no JSON object but list"),
                ("tokenizer_config.json", {"chat_template": 7}, "neither a template nor a list of objects"),
                ("tokenizer_config.json", {"chat_template": [{"name": "a", "template": ""}]}, "is the default"),
                ("tokenizer_config.json", {"chat_template": "", "bos_token": 7}, "bos_token is no token"),
                ("chat_template.jinja", "{% if %}", "chat_template.jinja line 1: "),
                ("chat_template.jinja", "\n{{ 1 | nofilter }}", "chat_template.jinja line 2: "),
                ("chat_template.jinja", "{% generation %}", "chat_template.jinja line 1: ")):
            with self.subTest(file=name, content=content):
                self.write(name, content)
                said = refusal(self.text)
                self.assertIn(expected, said)
                self.assertIn(str(self.folder), said)
                (self.folder / name).unlink()
        self.assertIn("is no folder", refusal(open_templates, str(self.folder / "x"), None, {}))
        self.assertIn("is no file", refusal(open_templates, None, str(self.folder / "x"), {}))

    def test_file_alone_needs_the_tokens_that_it_uses(self):
        self.write("one.jinja", "{{ eos_token }}")
        said = refusal(open_templates, None, str(self.folder / "one.jinja"), {})
        self.assertIn("one.jinja: uses eos_token, which a tokenizer gives; use --tokenizer FOLDER", said)
        self.assertIsNotNone(open_templates(None, str(self.folder / "one.jinja"), {"eos_token": ""}))


class Program(unittest.TestCase):
    def setUp(self):
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)
        self.input = self.folder / "chats.jsonl"
        self.output = self.folder / "out.jsonl"

    def tearDown(self):
        self.kept.cleanup()

    def run_program(self, *arguments, code=0):
        done = subprocess.run([sys.executable, CHATS / "render_chats.py", "--input", self.input, "--output",
                               self.output, "--chat-template", CHATS / "chatml.jinja", *arguments],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def left(self):
        return sorted(path.name for path in self.folder.iterdir())

    def write(self, count, bad=()):
        with self.input.open("w") as file:
            for number in range(1, count + 1):
                asked = [{"role": "user", "content": f"{number}? " + "x" * (number % 97)},
                         {"role": "assistant", "content": f"{number}!"}]
                file.write("{}\n" if number in bad else json.dumps({"messages": asked}) + "\n")

    def test_output_is_the_same_for_any_number_of_workers(self):
        self.write(20000)  # of several chunks
        outputs = []
        for workers in ("1", "3"):
            said = self.run_program("--workers", workers)
            self.assertIn("20000 chats", said)
            outputs.append(self.output.read_bytes())
        self.assertEqual(outputs[0], outputs[1])
        lines = [json.loads(line) for line in outputs[0].splitlines()]
        self.assertEqual([line["text"].split("\n")[1].split("?")[0] for line in lines],
                         [str(number) for number in range(1, 20001)])

    def test_gzip_is_read_and_written(self):
        self.write(10)
        self.run_program()
        plain = self.output.read_bytes()
        self.input.write_bytes(gzip.compress(self.input.read_bytes()[:200]) + gzip.compress(
            self.input.read_bytes()[200:]))
        self.output = self.folder / "out.jsonl.gz"
        self.run_program()
        self.assertEqual(gzip.decompress(self.output.read_bytes()), plain)
        self.input.write_bytes(self.input.read_bytes()[:-20])
        self.assertIn("is the file complete?", self.run_program(code=3))

    def test_bad_lines_are_counted_and_named(self):
        bad = range(2, 60, 4)
        self.write(60, bad)
        said = self.run_program(code=3)
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("chats.jsonl line 2: has neither messages, nor prompt and completion", said)
        self.assertIn("--max-bad-lines allows 0", said)
        self.assertEqual(self.left(), ["chats.jsonl"])
        said = self.run_program("--max-bad-lines", "14", code=3)
        self.assertIn("line 58: ", said)
        self.assertEqual(said.count("note: "), 10)
        self.assertEqual(self.left(), ["chats.jsonl"])
        self.assertIn("45 chats", said := self.run_program("--max-bad-lines", "15"))
        self.assertIn("15 bad lines left out", said)
        self.assertEqual(self.output.read_bytes().count(b"\n"), 45)

    def test_signal_leaves_nothing(self):
        self.write(200000)
        program = subprocess.Popen([sys.executable, CHATS / "render_chats.py", "--input", self.input, "--output",
                                    self.output, "--chat-template", CHATS / "chatml.jinja"],
                                   stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 30
        while len(self.left()) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        program.send_signal(signal.SIGTERM)
        said = program.communicate(timeout=30)[1]
        self.assertEqual((program.returncode, said),
                         (143, "render_chats.py: error: ended by SIGTERM; nothing was written\n"))
        self.assertEqual(self.left(), ["chats.jsonl"])

    def test_memory_that_a_template_takes_is_bounded(self):
        self.write(1)
        bomb = self.folder / "bomb.jinja"
        bomb.write_text("{{ 'x' * 100000000000 }}")
        self.assertIn("line 1: the template (line 1) refuses it: MemoryError",
                      self.run_program("--chat-template", bomb, code=3))

    def test_question_becomes_the_prompt_for_its_answer(self):
        done = subprocess.run([sys.executable, CHATS / "render_chats.py", "--ask", "Sky?", "--chat-template",
                               CHATS / "chatml.jinja"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr),
                         ("<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n", ""))
        for arguments, expected in ((["--ask", "a"], "give --tokenizer or --chat-template"),
                                    (["--ask", "a", "--output", "b"], "--output FILE: is for what --input has"),
                                    (["--input", "a"], "--input: needs --output FILE"),
                                    ([], "one of the arguments --input --ask is required")):
            done = subprocess.run([sys.executable, CHATS / "render_chats.py", *arguments], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)

    def test_bad_usage_is_one_line_with_code_2(self):
        self.write(1)
        for arguments, expected in ((("--output", self.input), "is an input"),
                                    (("--output", self.folder), "is no regular file"),
                                    (("--output", "/dev/null"), "is no regular file"),
                                    (("--workers", "0"), "use a number from 1"),
                                    (("--max-bad-lines", "-1"), "use a number from 0"),
                                    (("--chat-template-kwargs", "["), "is no JSON")):
            with self.subTest(arguments=arguments):
                self.assertIn(expected, self.run_program(*arguments, code=2))
        for content, expected in ((b"[{}]", "is a JSON array"), (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
                                  (b"\n\n", "no chat found")):
            self.input.write_bytes(content)
            self.assertIn(expected, self.run_program(code=3))
        self.input.unlink()
        self.assertIn("no such file", self.run_program(code=3))
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    unittest.main()
