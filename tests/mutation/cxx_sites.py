# SPDX-License-Identifier: Apache-2.0
"""Where one-line faults can be put into a C++ file, found in its tokens.

No parser of C++: the sources are formatted by clang-format, so that a binary operator stands between
spaces and a template's bracket does not. What it takes for an expression and is none does not compile,
and mutants.py drops it.
"""

import bisect
import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""\s+|(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<directive>\#(?:[^\n\\]|\\\n|\\.)*)
      |(?P<string>(?:u8|[uUL])?R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
      |(?P<number>\.?\d(?:[\w.']|(?<=[eEpP])[+-])*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<operator><=>|->\*|<<=|>>=|\.\.\.|->|\+\+|--|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|::|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)

OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
# An operand of the operators of a level ends at those of the levels above it in this list.
LEVELS = [{",", ";", "return", "case", "throw", "else", "do"}, ASSIGNMENTS, {"?", ":"}, {"||"}, {"&&"},
          {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<=>"}, {"<<", ">>"}, {"+", "-"},
          {"*", "/", "%"}]
LEVEL = {token: level for level, tokens in enumerate(LEVELS) for token in tokens}
TYPES = {"namespace", "class", "struct", "union", "enum", "concept"}
NOT_A_CALL = {"return", "throw", "const", "auto", "using", "delete", "static", "constexpr", "new", "if", "for",
              "while", "switch", "case", "default", "goto", "typedef", "template", "public", "private",
              "protected", "friend", "extern", "inline", "do", "else", "try", "static_assert", "requires",
              "co_return", "co_await", "co_yield", "struct", "class", "enum", "union", "namespace", "unsigned",
              "int", "bool", "char", "float", "double", "void", "long", "short", "volatile", "mutable", "asm"}
LONGEST = 240
ASKED = "@is active@"


@dataclass
class Token:
    kind: str
    text: str
    begin: int
    end: int
    binary: bool = False  # an operator between spaces
    match: int = -1       # of a bracket: its partner's index
    inside: str = ""      # the bracket that it stands in
    in_code: bool = False # in the body of a function


@dataclass
class Site:
    """Text [begin, end) of the file becomes `text` with ASKED for the question whether it is active."""
    rule: str
    begin: int
    end: int
    text: str
    operator: int  # where it is reported


class File:
    def __init__(self, source):
        self.source = source
        self.tokens = [Token(m.lastgroup if m.lastgroup != "d" else "string", m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(source) if m.lastgroup not in (None, "comment", "directive")]
        self.comments = [m.start() for m in TOKEN.finditer(source) if m.lastgroup in ("comment", "directive")]
        self._mark_operators()
        self._match_brackets()
        self._mark_code()

    def _mark_operators(self):
        for token in self.tokens:
            before, after = self.source[token.begin - 1:token.begin], self.source[token.end:token.end + 1]
            token.binary = token.kind == "operator" and before.isspace() and after.isspace()

    def _match_brackets(self):
        stack = []
        for index, token in enumerate(self.tokens):
            token.inside = self.tokens[stack[-1]].text if stack else ""
            if token.kind != "operator":
                continue
            if token.text in OPENING or (token.text == "<" and not token.binary):
                stack.append(index)
            elif token.text in CLOSING or (token.text == ">" and not token.binary):
                # A template's bracket that was none is left behind.
                while stack and self.tokens[stack[-1]].text == "<" and token.text != ">":
                    stack.pop()
                if stack and OPENING.get(self.tokens[stack[-1]].text, ">") == token.text:
                    self.tokens[stack[-1]].match, token.match = index, stack[-1]
                    stack.pop()

    def _mark_code(self):
        stack, header = [], []
        for token in self.tokens:
            code = bool(stack) and stack[-1]
            token.in_code = code
            if token.text == "{" and token.kind == "operator":
                words = [t.text for t in header]
                if any(word in TYPES for word in words) and "(" not in words:
                    stack.append(False)
                elif code:
                    stack.append(True)
                else:
                    first = words.index("(") if "(" in words else -1
                    constant = "constexpr" in words or "consteval" in words
                    stack.append(first >= 0 and "=" not in words[:first] and not constant)
                header = []
            elif token.text == "}" and token.kind == "operator":
                if stack:
                    stack.pop()
                header = []
            elif token.text == ";":
                header = []
            else:
                header.append(token)

    def _text(self, begin, end):
        return re.sub(r"\n\s*", " ", self.source[begin:end])

    def _usable(self, begin, end):
        # Comments within would swallow what follows on the line.
        at = bisect.bisect_left(self.comments, begin)
        return end - begin <= LONGEST and (at == len(self.comments) or self.comments[at] >= end) and \
            'R"' not in self.source[begin:end]

    def _left(self, index, level):
        """The first token of the operand that ends before token index."""
        at = index - 1
        while at >= 0:
            token = self.tokens[at]
            if token.match >= 0 and token.match < at:
                at = token.match - 1
                continue
            if token.text in OPENING and token.kind == "operator" or self._ends(token, level, True):
                break
            at -= 1
        return at + 1

    def _right(self, index, level):
        """The last token of the operand that begins behind token index."""
        at = index + 1
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.match > at:
                at = token.match + 1
                continue
            if token.text in CLOSING and token.kind == "operator" or self._ends(token, level, False):
                break
            at += 1
        return at - 1

    def _ends(self, token, level, left):
        if token.kind == "string":
            return False
        found = LEVEL.get(token.text)
        if found is None or (token.text in "+-*&" and not token.binary):
            return False
        return found < level or (not left and found == level)

    def _binary(self, index):
        token = self.tokens[index]
        level = LEVEL[token.text]
        first, last = self._left(index, level), self._right(index, level)
        if first >= index or last <= index:
            return None
        a = self._text(self.tokens[first].begin, self.tokens[index - 1].end)
        b = self._text(self.tokens[index + 1].begin, self.tokens[last].end)
        return self.tokens[first].begin, self.tokens[last].end, a, b, self.tokens[first:last + 1]

    def sites(self):
        found = []
        for index, token in enumerate(self.tokens):
            if token.in_code:
                found += self._sites_at(index)
        return [site for site in found if self._usable(site.begin, site.end) and not self._in_constant(site)]

    def _in_constant(self, site):
        line = self.source[self.source.rfind("\n", 0, site.begin) + 1:site.end]
        return re.search(r"\b(constexpr|static_assert|template|case|throw|enum|requires)\b", line) is not None

    def _sites_at(self, index):
        token = self.tokens[index]
        if token.kind == "operator" and token.binary and token.text in (
                "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%", "&&", "||"):
            operands = self._binary(index)
            if operands is None:
                return []
            begin, end, a, b, tokens = operands
            text, flipped = token.text, {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
            if text in flipped:
                return [Site(f"{text} -> {flipped[text]}", begin, end,
                             f"({ASKED} ? ({a}) {flipped[text]} ({b}) : ({a}) {text} ({b}))", token.begin)]
            if text in ("&&", "||"):
                # One of the two questions is not asked.
                whole = f"({ASKED} || (%s))" if text == "&&" else f"(!{ASKED} && (%s))"
                kept = f"({whole % a}) {text} ({b})", f"({a}) {text} {whole % b}"
                return [Site(f"{text}: left dropped", begin, end, f"({kept[0]})", token.begin),
                        Site(f"{text}: right dropped", begin, end, f"({kept[1]})", token.begin)]
            if any(t.kind == "string" or t.text in ("to_string", "string") for t in tokens):
                return []  # texts
            return [Site(f"{text}: right dropped", begin, end, f"({ASKED} ? ({a}) : ({a}) {text} ({b}))",
                         token.begin)]
        if token.kind == "name" and token.text in ("min", "max") and self._follows(index, "std", "::"):
            opening = index + 1
            if self.tokens[opening].text != "(" or self.tokens[opening].match < 0:
                return []
            begin, end = self.tokens[index - 2].begin, self.tokens[self.tokens[opening].match].end
            arguments = self._text(self.tokens[opening].begin, end)
            other = "max" if token.text == "min" else "min"
            return [Site(f"{token.text} -> {other}", begin, end,
                         f"({ASKED} ? std::{other}{arguments} : std::{token.text}{arguments})", token.begin)]
        if token.kind == "number" and token.text in ("0", "1", "2"):
            other = {"0": "1", "1": "2", "2": "1"}[token.text]
            before = self.tokens[index - 1]
            if before.text == "<" and not before.binary or before.text == "case":
                return []
            return [Site(f"{token.text} -> {other}", token.begin, token.end,
                         f"({ASKED} ? {other} : {token.text})", token.begin)]
        if token.kind == "name" and token.text in ("true", "false"):
            other = "false" if token.text == "true" else "true"
            return [Site(f"{token.text} -> {other}", token.begin, token.end,
                         f"({ASKED} ? {other} : {token.text})", token.begin)]
        if token.text == "if" and self.tokens[index + 1].text == "(" and self.tokens[index + 1].match > 0:
            opening, closing = index + 1, self.tokens[index + 1].match
            condition = self.tokens[opening + 1:closing]
            if any(t.text == ";" or (t.text == "=" and t.kind == "operator") for t in condition):
                return []
            begin, end = self.tokens[opening].end, self.tokens[closing].begin
            text = self._text(begin, end)
            return [Site("if: never", begin, end, f"!{ASKED} && ({text})", token.begin),
                    Site("if: always", begin, end, f"{ASKED} || ({text})", token.begin)]
        if index > 0 and self.tokens[index - 1].text in (";", "{", "}", ")", "else"):
            return self._statement(index)
        return []

    def _follows(self, index, *texts):
        return index >= len(texts) and all(
            self.tokens[index - len(texts) + k].text == text for k, text in enumerate(texts))

    def _ends_switch(self, index):
        """Whether the token is the bracket that closes the body of a switch."""
        body = self.tokens[index].match if index < len(self.tokens) and self.tokens[index].text == "}" else -1
        condition = self.tokens[body - 1].match if body > 0 else -1
        return condition > 0 and self.tokens[condition - 1].text == "switch"

    def _statement(self, index):
        """A statement that is left out: an assignment, a call, continue, break, a bare return."""
        first = self.tokens[index]
        if first.inside != "{":
            return []  # for (...; here; ...)
        at, depth0 = index, []
        while at < len(self.tokens) and self.tokens[at].text != ";":
            token = self.tokens[at]
            if token.text in CLOSING and token.kind == "operator":
                return []
            depth0.append(token)
            at = token.match + 1 if token.match > at else at + 1
        if at >= len(self.tokens) or not depth0:
            return []
        # `)` before it: the end of if (...), for (...) or while (...), and no cast, no call.
        if self.tokens[index - 1].text == ")":
            opening = self.tokens[index - 1].match
            if opening < 1 or self.tokens[opening - 1].text not in ("if", "for", "while"):
                return []
        texts = [t.text for t in depth0]
        begin, end = first.begin, self.tokens[at].end
        replaced = f"{{ if (!{ASKED}) {self._text(begin, end)} }}"
        if texts == ["break"] and self._ends_switch(at + 1):
            return []  # nothing is left to jump over
        if texts in (["continue"], ["break"], ["return"]):
            return [Site(f"{texts[0]} dropped", begin, end, replaced, begin)]
        if texts[0] in ("++", "--"):
            return [Site(f"{texts[0]} dropped", begin, end, replaced, begin)]
        if first.kind != "name" and texts[0] not in ("*", "("):
            return []
        if first.text in NOT_A_CALL:
            return []
        assigned = next((k for k, t in enumerate(texts) if t in ASSIGNMENTS and depth0[k].kind == "operator"), -1)
        left = depth0[:assigned] if assigned >= 0 else depth0
        for one, other in zip(left, left[1:]):
            if other.kind == "name" and (one.kind == "name" or one.text in ("&", "*", "<", ">")):
                return []  # a declaration
        if assigned < 0:
            called = depth0[-2].text if len(depth0) > 1 else ""
            plain = all(t.kind == "name" or t.text in ("(", "[", "<", ".", "->", "::") for t in depth0)
            # Memory alone differs without a reserve().
            if depth0[-1].text != "(" or not plain or called in ("reserve", "static_cast", "fflush"):
                return []
        return [Site("assignment dropped" if assigned >= 0 else "call dropped", begin, end, replaced, begin)]
