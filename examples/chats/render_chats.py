#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders chats with a tokenizer's chat template, for vocabpipe data prepare (docs/instructions.md).

    render_chats.py --input chats.jsonl --tokenizer FOLDER --output rendered.jsonl
    render_chats.py --ask QUESTION --tokenizer FOLDER | vocabpipe generate --load MODEL --prompt -

A line of the input is {"messages": [{"role": ..., "content": ...}, ...]}, with tools if there are any, or
{"prompt": ..., "completion": ...}; or a pair of answers, {"prompt": ..., "chosen": ..., "rejected": ...}, which
becomes two lines. A line of the output is {"text": ..., "learn": [[begin, end], ...]}: the text of the chat, and
the bytes of it that the assistant says.
"""
import argparse
import gzip
import itertools
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import sys
import time
import zlib

try:
    from chat_lines import ChatReader
    from chat_template import ChatError, InputError, open_templates
except ModuleNotFoundError as missing:
    sys.exit(f"render_chats.py: error: Python has no module {missing.name}; apt-get install python3-jinja2")

CHUNK_BYTES = 1 << 18        # of lines, which a worker renders at once
LINE_BYTES = 64 << 20        # longest line
CHAT_SECONDS = 10            # to render a chat, which takes less than a millisecond
WORKER_BYTES = 4 << 30       # of memory: what a template computes is bounded by nothing else
REPORTED = 10                # bad lines that are named


class Failed(Exception):
    """The end of the run: a line to print, and the exit code."""

    def __init__(self, line, code):
        super().__init__(line)
        self.code = code


# What a worker does.

def too_slow(signal_number, frame):
    raise ChatError(f"the template takes longer than {CHAT_SECONDS} s")


def render_lines(reader, numbered_lines):
    """The rendered lines as bytes, how many, bytes of text, bytes learnt, and (number, why) of bad ones."""
    rendered, chats, text_bytes, learnt, bad = [], 0, 0, 0, []
    for number, line in numbered_lines:
        try:
            signal.setitimer(signal.ITIMER_REAL, CHAT_SECONDS)
            of_line = reader.read(line)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (ChatError, MemoryError) as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            bad.append((number, " ".join(str(error).split())[:500] or "needs too much memory"))
            continue
        for chat in of_line:
            rendered.append(json.dumps(chat, ensure_ascii=False).encode() + b"\n")
            chats += 1
            text_bytes += len(chat["text"].encode())
            learnt += sum(end - begin for begin, end in chat["learn"])
    return b"".join(rendered), chats, text_bytes, learnt, bad


def work(connection, parent, options):
    """Renders the chunks that `connection` brings, until None or the end of the process `parent`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, too_slow)
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = WORKER_BYTES if most == resource.RLIM_INFINITY else min(WORKER_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    templates = open_templates(options.tokenizer, options.chat_template, options.chat_template_kwargs)
    reader = ChatReader(templates, options.learn == "last")
    while True:
        while not connection.poll(1):
            if os.getppid() != parent:
                return
        chunk = connection.recv()
        if chunk is None:
            return
        connection.send(render_lines(reader, chunk))


# What the program does.

class Workers:
    """Processes that render chunks side by side; their results come in the order of the chunks."""

    def __init__(self, count, options):
        self.workers = []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            worker = multiprocessing.Process(target=work, args=(theirs, os.getpid(), options), daemon=True)
            worker.start()
            theirs.close()
            self.workers.append((worker, ours))

    def render(self, chunks):
        """Yields (chunk, result). A worker has one chunk at a time, so memory is bounded."""
        waiting = []
        for chunk, (worker, connection) in zip(chunks, itertools.cycle(self.workers)):
            if len(waiting) == len(self.workers):
                yield self._result(*waiting.pop(0))
            connection.send([(number, line) for _, number, line in chunk])
            waiting.append((chunk, worker, connection))
        for one in waiting:
            yield self._result(*one)

    @staticmethod
    def _result(chunk, worker, connection):
        path, number, _ = chunk[0]
        where = f"{path} line {number} or one of the {len(chunk) - 1} after it"
        # Python interrupts no single operation, however long.
        if not connection.poll(CHAT_SECONDS * (len(chunk) + 1)):
            raise Failed(f"{where}: the template does not end; give another one with --chat-template", 3)
        try:
            return chunk, connection.recv()
        except EOFError:
            worker.join()
            raise Failed(f"{where}: the process that renders it ended with code {worker.exitcode}", 3) from None

    def close(self):
        for worker, _ in self.workers:
            worker.kill()


def open_input(path):
    """The lines of a file, plain or compressed by gzip."""
    try:
        if not pathlib.Path(path).is_file():
            raise InputError(f"{path}: is no regular file" if os.path.exists(path) else f"{path}: no such file")
        file = open(path, "rb")
        head = file.peek(4)[:4]
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    if head == b"\x28\xb5\x2f\xfd":
        raise InputError(f"{path}: is compressed by zstd; decompress it with zstd -d, or use gzip")
    if head[:1] == b"[":
        raise InputError(f"{path}: is a JSON array; write one object per line (jq -c '.[]')")
    return gzip.open(file) if head[:2] == b"\x1f\x8b" else file


def numbered_lines(paths, read):
    """(path, number, line) of all lines that are not blank; read(bytes) hears how far they are."""
    for path in paths:
        with open_input(path) as file:
            for number in itertools.count(1):
                try:
                    line = file.readline(LINE_BYTES + 1)
                except (OSError, EOFError, zlib.error) as error:
                    raise InputError(f"{path} line {number}: cannot read: {error}; is the file complete?") from error
                if len(line) > LINE_BYTES:
                    raise InputError(f"{path} line {number}: is longer than {LINE_BYTES} bytes; is it JSON lines?")
                if not line:
                    break
                read(len(line))
                if line.strip():
                    yield path, number, line


def chunks_of(lines):
    """Lists of lines with about CHUNK_BYTES."""
    chunk, size = [], 0
    for path, number, line in lines:
        if chunk and (size + len(line) > CHUNK_BYTES or chunk[0][0] != path):
            yield chunk
            chunk, size = [], 0
        chunk.append((path, number, line))
        size += len(line)
    if chunk:
        yield chunk


class Output:
    """A file that appears under its name when it is complete; gzip if the name says so."""

    def __init__(self, path, partial):
        self.path = path
        self.partial = partial
        try:
            self.raw = open(partial, "xb")
        except OSError as error:
            raise Failed(f"--output {path}: cannot write: {error.strerror}", 1) from error
        self.file = gzip.GzipFile(filename="", mode="wb", fileobj=self.raw, mtime=0) if path.endswith(".gz") \
            else self.raw

    def write(self, block):
        self.file.write(block)

    def publish(self):
        if self.file is not self.raw:
            self.file.close()
        self.raw.flush()
        os.fsync(self.raw.fileno())
        self.raw.close()
        os.replace(self.partial, self.path)


class Progress:
    """A line on a terminal: how much is rendered, and how long the rest takes (rough for compressed files)."""

    def __init__(self, paths):
        self.begin = self.shown = time.monotonic()
        self.bytes = 0
        self.all = sum(os.path.getsize(path) for path in paths)
        self.terminal = sys.stderr.isatty()

    def add(self, count):
        self.bytes += count
        now = time.monotonic()
        if self.terminal and now - self.shown > 0.5:
            self.shown = now
            speed = self.bytes / (now - self.begin)
            left = f", {(self.all - self.bytes) / speed:.0f} s left" if self.bytes <= self.all else ""
            print(f"\r\033[Krendering: {self.bytes / 1e6:.0f} MB, {speed / 1e6:.1f} MB/s{left}", end="",
                  file=sys.stderr, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def template_variables(text):
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("is no JSON object")
    return found


def count_from(least):
    def count(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: use a number from {least}")
        return int(text)
    return count


def parse_options():
    parser = argparse.ArgumentParser(prog="render_chats.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--input", nargs="+", metavar="FILE", help="JSON lines, also compressed by gzip")
    task.add_argument("--ask", metavar="TEXT", help="print the prompt that asks for an answer to this, and end")
    parser.add_argument("--output", metavar="FILE", help="rendered lines; NAME.gz is compressed")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="of Hugging Face, with the template and its tokens")
    parser.add_argument("--chat-template", metavar="NAME_OR_FILE",
                        help="a template that the folder has under this name, or a file with another one")
    parser.add_argument("--chat-template-kwargs", type=template_variables, default={}, metavar="JSON",
                        help="variables of the template, such as '{\"enable_thinking\": false}'")
    parser.add_argument("--learn", choices=("all", "last"), default="all",
                        help="what all messages of the assistant say (default), or the last one alone")
    parser.add_argument("--max-bad-lines", type=count_from(0), default=0, metavar="N",
                        help="lines that may be left out because they cannot be used (default: 0)")
    parser.add_argument("--workers", type=count_from(1), default=len(os.sched_getaffinity(0)), metavar="N",
                        help="processes that render (default: all cores)")
    options = parser.parse_args()
    if (options.output is None) == (options.ask is None):
        parser.error("--output FILE: is for what --input has" if options.output else "--input: needs --output FILE")
    if options.ask is not None:
        return options
    for path in options.input:
        if os.path.exists(options.output) and os.path.exists(path) and os.path.samefile(path, options.output):
            parser.error(f"--output {options.output}: is an input; give it another name")
    if os.path.exists(options.output) and not os.path.isfile(options.output):
        parser.error(f"--output {options.output}: is no regular file; name one")
    return options


def render(options, workers, output, progress):
    """Renders all files; returns the line to print."""
    chats, text_bytes, learnt_bytes, bad_lines = 0, 0, 0, 0
    lines = numbered_lines(options.input, progress.add)
    for chunk, (rendered, count, size, learnt, bad) in workers.render(chunks_of(lines)):
        for number, why in bad:
            bad_lines += 1
            if bad_lines <= min(REPORTED, options.max_bad_lines):
                progress.clear()
                print(f"render_chats.py: note: {chunk[0][0]} line {number}: {why}; left out", file=sys.stderr)
            if bad_lines > options.max_bad_lines:
                raise Failed(f"{chunk[0][0]} line {number}: {why}; bad line {bad_lines}, --max-bad-lines allows "
                             f"{options.max_bad_lines}", 3)
        output.write(rendered)
        chats, text_bytes, learnt_bytes = chats + count, text_bytes + size, learnt_bytes + learnt
    if chats == 0:
        raise Failed(f"{options.input[0]}: no chat found, so there is nothing to write", 3)
    output.publish()
    return (f"{options.output}: {chats} chats, {text_bytes} bytes of text, {100 * learnt_bytes / text_bytes:.0f} % of "
            f"them learnt, {bad_lines} bad lines left out")


def ask(options):
    """Prints the prompt of one question."""
    templates = open_templates(options.tokenizer, options.chat_template, options.chat_template_kwargs)
    if templates is None:
        raise Failed("--ask: needs the template of the chats; give --tokenizer or --chat-template", 2)
    try:
        question = [{"role": "user", "content": options.ask}]
        sys.stdout.write(templates.choose(False).render(question, None, {}, add_generation_prompt=True)[0])
    except ChatError as error:
        raise Failed(f"--ask {options.ask}: {error}", 3) from error


def end_on_signals(partial):
    """Signals remove the unfinished output, whatever the program does at that moment."""
    program = os.getpid()

    def end(number, frame):
        if os.getpid() == program:
            partial.unlink(missing_ok=True)
            name = signal.Signals(number).name
            os.write(2, f"render_chats.py: error: ended by {name}; nothing was written\n".encode())
            for worker in multiprocessing.active_children():
                worker.kill()
        os._exit(128 + number)

    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, end)


def run(options):
    # Faults of templates and inputs before anything is written.
    open_templates(options.tokenizer, options.chat_template, options.chat_template_kwargs)
    for path in options.input:
        open_input(path).close()
    partial = pathlib.Path(f"{options.output}.partial-{os.getpid()}")
    end_on_signals(partial)
    progress = Progress(options.input)
    workers = None
    try:
        output = Output(options.output, partial)
        workers = Workers(options.workers, options)
        line = render(options, workers, output, progress)
    finally:
        progress.clear()
        if workers:
            workers.close()
        partial.unlink(missing_ok=True)
    print(line)


def main():
    options = parse_options()
    try:
        run(options) if options.ask is None else ask(options)
    except InputError as error:
        line, code = str(error), 3
    except Failed as error:
        line, code = str(error), error.code
    except OSError as error:
        where = f"--output {options.output}" if options.output else "standard output"
        line, code = f"{where}: cannot write: {error.strerror}", 1
    else:
        return 0
    print(f"render_chats.py: error: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
