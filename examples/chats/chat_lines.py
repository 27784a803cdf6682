# SPDX-License-Identifier: Apache-2.0
"""From a JSON line with a chat to its text, and to the ranges of it that are learnt."""
import json

from chat_template import ChatError, plain_messages


def kind(value):
    """What JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def need(condition, why):
    if not condition:
        raise ChatError(why)


def check_messages(messages, key):
    need(isinstance(messages, list), f"\"{key}\" is no list but {kind(messages)}; a chat is a list of messages")
    need(messages, f"\"{key}\" is empty; leave the line out")
    for place, message in enumerate(messages):
        name = f"{key}[{place}]"
        need(isinstance(message, dict), f"{name} is no object but {kind(message)}; use role and content")
        role = message.get("role")
        need(isinstance(role, str) and role, f"{name} has no role; use system, user or assistant")
        content = message.get("content")
        need(not isinstance(content, list), f"{name}.content is a list of parts; join their text to a string")
        need(content is None or isinstance(content, str), f"{name}.content is no string but {kind(content)}")
        need(content is not None or message.get("tool_calls"), f"{name} has neither content nor tool_calls")


def tools_of(line):
    """The tools of a chat, which some write as JSON in a string."""
    tools = line.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError):
            raise ChatError("\"tools\" is a string that is no JSON; use a list of objects") from None
    need(tools is None or isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools),
         "\"tools\" is no list of objects; use the functions as JSON schemas")
    return tools


def answers_of(line):
    """The two answers of a pair as lines with prompt and completion; chats without a prompt have in common what
    both begin with."""
    need("chosen" in line and "rejected" in line, "has one of chosen and rejected; a pair has both")
    chosen, rejected = line["chosen"], line["rejected"]
    need(chosen != rejected, "\"chosen\" and \"rejected\" are equal; leave the line out")
    rest = {key: value for key, value in line.items() if key not in ("messages", "chosen", "rejected")}
    # Some write the question of two chats beside them, which begin with it.
    chats = isinstance(chosen, list) and isinstance(rejected, list)
    if "prompt" in line and not (chats and isinstance(line["prompt"], str)):
        for key in ("chosen", "rejected"):
            need(line[key] != "", f"\"{key}\" is empty, so there is nothing to learn")
        return [rest | {"completion": answer} for answer in (chosen, rejected)]
    for key in ("chosen", "rejected"):
        need(not isinstance(line[key], str), f"\"{key}\" is a string, so the line needs a prompt beside it")
        check_messages(line[key], key)
    same = next((at for at, (left, right) in enumerate(zip(chosen, rejected)) if left != right),
                min(len(chosen), len(rejected)))
    need(same > 0, "\"chosen\" and \"rejected\" do not begin with the same message; both answer one question")
    need(same < min(len(chosen), len(rejected)), "one of \"chosen\" and \"rejected\" ends where they begin to differ")
    return [rest | {"prompt": chat[:same], "completion": chat[same:]} for chat in (chosen, rejected)]


def byte_ranges(text, ranges):
    """Ranges of characters as ranges of bytes of UTF-8; UnicodeEncodeError for a text that has no UTF-8."""
    bytes_before = {}
    at = count = 0
    for place in sorted({place for one in ranges for place in one}):
        count += len(text[at:place].encode())
        bytes_before[place] = count
        at = place
    text[at:].encode()
    return [[bytes_before[begin], bytes_before[end]] for begin, end in ranges]


class ChatReader:
    """Turns lines into texts. `templates` None: only texts of prompt and completion can be read."""

    def __init__(self, templates, learn_last):
        self.templates = templates
        self.learn_last = learn_last  # only the last message of the assistant

    def read(self, line):
        """bytes of a line -> [{"text": ..., "learn": [[begin, end], ...]}] in bytes of UTF-8, of a pair of answers
        two, the better one first; ChatError."""
        found = self._object(line)
        if "chosen" not in found and "rejected" not in found:
            return [self._rendered(found)]
        return [self._rendered(answer) for answer in answers_of(found)]

    def _rendered(self, line):
        text, ranges = self._text_and_ranges(line)
        need(ranges, "nothing to learn: no message is the assistant's, or the template marks none")
        try:
            return {"text": text, "learn": byte_ranges(text, ranges)}
        except UnicodeEncodeError:
            raise ChatError("a string has half of a surrogate pair (\\ud800 to \\udfff); write the character") from None

    @staticmethod
    def _object(line):
        try:
            found = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ChatError(f"byte {error.start} of the line is not UTF-8") from None
        except RecursionError:
            raise ChatError("is nested too deeply") from None
        except ValueError as error:
            raise ChatError(f"is no JSON: {error}") from None
        need(isinstance(found, dict), f"is no JSON object but {kind(found)}")
        return found

    def _text_and_ranges(self, line):
        if "messages" in line:
            check_messages(line["messages"], "messages")
            return self._chat(line, line["messages"], 0)
        if "prompt" not in line or "completion" not in line:
            hint = "; conversations with from and value: name them messages, role and content" \
                if "conversations" in line else f"; its keys are {', '.join(line) or 'none'}"[:200]
            raise ChatError("has neither messages, nor prompt and completion, nor chosen and rejected" + hint)
        prompt, completion = line["prompt"], line["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            need(completion, "\"completion\" is empty, so there is nothing to learn")
            return prompt + completion, [(len(prompt), len(prompt) + len(completion))]
        check_messages(prompt, "prompt")
        check_messages(completion, "completion")
        return self._chat(line, prompt + completion, len(prompt))

    def _chat(self, line, messages, first):
        """The rendered chat; of messages before `first` nothing is learnt."""
        need(self.templates is not None, "is a chat, which needs a template; give --tokenizer or --chat-template")
        tools = tools_of(line)
        variables = line.get("chat_template_kwargs") or {}
        need(isinstance(variables, dict), "\"chat_template_kwargs\" is no object")
        template = self.templates.choose(tools is not None)
        messages = plain_messages(messages)
        said = [place for place, message in enumerate(messages) if message["role"] == "assistant" and place >= first]
        if self.learn_last:
            said = said[-1:]
            first = said[0] if said else first

        text, spans = template.render(messages, tools, variables)

        def begins(count, prompt):
            """How much of the text the first `count` messages are, and the prompt to answer them."""
            if count == 0:
                return 0
            before = template.render(messages[:count], tools, variables, add_generation_prompt=prompt)[0]
            self._check_prefix(text, before, count, prompt)
            return len(before)

        if template.marks:
            begin = begins(first, False)
            return text, [span for span in spans if span[1] > begin]
        ranges = []
        for place in said:
            begin = begins(place, True)
            end = begins(place + 1, False) if place + 1 < len(messages) else len(text)
            need(begin < end, f"the template writes nothing for message {place}")
            ranges.append((begin, end))
        return text, ranges

    def _check_prefix(self, text, before, count, prompt):
        if text.startswith(before):
            return
        same = next((at for at, (left, right) in enumerate(zip(text, before)) if left != right), len(text))
        part = json.dumps(before[same:same + 30], ensure_ascii=False)
        alone = ("the first message" if count == 1 else f"the first {count} messages") + " and the prompt" * prompt
        raise ChatError(f"the template writes {alone} in another way than in the whole chat (from {part} on), so what "
                        "the assistant says cannot be told by comparing; use "
                        f"{'--learn last, or ' * (not self.learn_last)}a template with {{% generation %}}")
