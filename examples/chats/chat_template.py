# SPDX-License-Identifier: Apache-2.0
"""Chat templates of a tokenizer's folder, rendered as apply_chat_template() of transformers 5 does."""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox

# Variables that transformers gives a template from the tokenizer.
TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one thing, the first is the template's


class InputError(Exception):
    """A file that cannot be used: one line with its name and the remedy; exit code 3."""


class ChatError(Exception):
    """A chat that cannot be rendered or learnt: why, and what to do."""


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: what the assistant says. Notes where it is in the text."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(written=0, spans=[])  # characters before this block; (begin, what it says)

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller):
        said = caller()
        self.environment.spans.append((self.environment.written, said))
        return said


class Namespace(jinja2.utils.Namespace):
    """namespace() whose attributes cannot reach Python's own."""

    def __init__(*args, **attributes):  # "self" may be an attribute
        attributes = dict(*args[1:], **attributes)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(args[0], attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if str(name).startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name}")


class Dict:
    """dict() without the attributes of Python's type."""

    def __call__(self, *args, **items):
        return dict(*args, **items)

    def fromkeys(self, *args):
        return dict.fromkeys(*args)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(form):
    return datetime.datetime.now().strftime(form)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict(),
                               namespace=Namespace)
    return environment


def plain_messages(messages):
    """Messages as transformers hands them to a template: no null, and reasoning under its names."""
    plain = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        reasoning = next((message[name] for name in REASONING if name in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        plain.append(message)
    return plain


class ChatTemplate:
    """One template, compiled. `name` says in messages where it is from; `variables` are what it may use."""

    def __init__(self, source, name, variables):
        self.name = name
        self.variables = variables
        self.environment = make_environment()
        try:
            tree = self.environment.parse(source)
            self.template = self.environment.from_string(source)
        except jinja2.exceptions.TemplateSyntaxError as error:
            raise InputError(f"{name} line {error.lineno}: {error.message}; a chat template is Jinja") from error
        except (jinja2.exceptions.TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise InputError(f"{name}: {str(error) or type(error).__name__}; a chat template is Jinja") from error
        # Whether it says itself what the assistant says.
        self.marks = any(isinstance(call.call, jinja2.nodes.Call) and
                         getattr(call.call.node, "name", "") == "_note"
                         for call in tree.find_all(jinja2.nodes.CallBlock))
        self.unknown_tokens = sorted(jinja2.meta.find_undeclared_variables(tree) & set(TOKENS) - set(variables))

    def render(self, messages, tools, variables, add_generation_prompt=False):
        """Text, and the (begin, end) of its {% generation %} blocks, in characters; ChatError."""
        environment = self.environment
        environment.written = 0
        environment.spans = []
        pieces = []
        try:
            for piece in self.template.generate(messages=messages, tools=tools, documents=None,
                                                add_generation_prompt=add_generation_prompt,
                                                **{**self.variables, **variables}):
                pieces.append(piece)
                environment.written += len(piece)
        except ChatError:
            raise
        except Exception as error:  # a template may do anything
            raise ChatError(f"the template {self._line_of(error)}refuses it: "
                            f"{str(error) or type(error).__name__}") from error
        text = "".join(pieces)
        spans = []
        for begin, said in environment.spans:
            if text[begin:begin + len(said)] != said:
                raise ChatError(f"{self.name}: a {{% generation %}} block in a macro, filter or set block cannot be "
                                "found in the text; write it outside of them")
            if said:
                spans.append((begin, begin + len(said)))
        return text, spans

    @staticmethod
    def _line_of(error):
        line = None
        step = error.__traceback__
        while step:
            if step.tb_frame.f_code.co_filename == "<template>":
                line = step.tb_lineno
            step = step.tb_next
        return f"(line {line}) " if line else ""


class ChatTemplates:
    """The templates of a tokenizer: one, or several by name."""

    def __init__(self, templates):
        self.templates = templates  # name: ChatTemplate

    def choose(self, has_tools):
        """The template of a chat."""
        if has_tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        return self.templates["default"]


def read_text(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error


def read_object(path):
    """The object of a JSON file; an empty one if there is no such file."""
    if not path.exists():
        return {}
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: is no JSON object but {type(found).__name__}")
    return found


def token_variables(folder):
    """bos_token and the like, as the folder's tokenizer_config.json and special_tokens_map.json name them."""
    variables = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        found = read_object(folder / name)
        for key in TOKENS:
            token = found.get(key)
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                variables[key] = token
            elif token is not None:
                raise InputError(f"{folder / name}: {key} is no token; use a string, or an object with content")
    return variables


def folder_sources(folder):
    """name: (source, where it is from). Files of their own come before tokenizer_config.json."""
    files = {"default": folder / "chat_template.jinja"}
    files.update((path.stem, path) for path in sorted((folder / "additional_chat_templates").glob("*.jinja")))
    sources = {name: (read_text(path), str(path)) for name, path in files.items() if path.exists()}
    if sources:
        return sources
    config = folder / "tokenizer_config.json"
    found = read_object(config).get("chat_template")
    where = f"{config}: chat_template"
    if found is None:
        return {}
    if isinstance(found, str):
        return {"default": (found, where)}
    if not isinstance(found, list) or not all(
            isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("template"), str)
            for one in found):
        raise InputError(f"{where} is neither a template nor a list of objects with name and template")
    return {one["name"]: (one["template"], f"{where} {one['name']}") for one in found}


def open_templates(folder, choice, variables):
    """The templates that --tokenizer `folder` and --chat-template `choice` (a name there, or a file) ask for.

    `variables` are added to those of the folder. None without a folder and a choice.
    """
    sources = {}
    tokens = {}
    if folder:
        if not pathlib.Path(folder).is_dir():
            raise InputError(f"--tokenizer {folder}: is no folder; use the one with tokenizer_config.json")
        sources = folder_sources(pathlib.Path(folder))
        tokens = token_variables(pathlib.Path(folder))
    if choice and choice in sources:
        sources = {"default": sources[choice]}
    elif choice:
        if not pathlib.Path(choice).is_file():
            names = f" nor one of {', '.join(sources)}" if sources else ""
            raise InputError(f"--chat-template {choice}: is no file{names}")
        sources = {"default": (read_text(pathlib.Path(choice)), choice)}
    if folder and not sources:
        raise InputError(f"{folder}: has no chat template, neither chat_template.jinja nor chat_template in "
                         "tokenizer_config.json; give one with --chat-template FILE")
    if sources and "default" not in sources:
        raise InputError(f"{folder}: none of its templates is the default; choose one with --chat-template: "
                         f"{', '.join(sources)}")
    templates = {name: ChatTemplate(source, where, {**tokens, **variables})
                 for name, (source, where) in sources.items()}
    for template in templates.values():
        # A folder may have no such token; a template writes nothing then.
        if template.unknown_tokens and not folder:
            missing = template.unknown_tokens[0]
            raise InputError(f"{template.name}: uses {missing}, which a tokenizer gives; use --tokenizer FOLDER, or "
                             f"--chat-template-kwargs '{{\"{missing}\": \"...\"}}'")
    return ChatTemplates(templates) if templates else None
