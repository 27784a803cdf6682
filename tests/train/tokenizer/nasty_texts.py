# SPDX-License-Identifier: Apache-2.0
"""Texts for tests of tokenizers: words and code of all kinds, and what tokenizers get wrong."""

import codecs
import random

WORDS = """the of and to in that he shall unto for I his a they be is him not them it with all thou was
 And But God I'm you're they'll we've he'd it's DON'T THEY'RE O'Neill 'tis rock'n'roll state-of-the-art
 naïve Grüße façade Ærøskøbing İstanbul ǅungla ﬁne Straße Ελληνικά Привет мир שלום مرحبا हिन्दी ภาษาไทย
 한국어 조선말 日本語 ひらがな カタカナ 你好世界 中文。，！ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱 ʼn ß ſs 'ſ 'S 'LL 'Re K Å Ω
 int main() { return 0; } <div class="x"> x+=1; #include <cstdio> /* c */ https://example.org/a?b=c&d=%20
 3.14159 1,000,000 0x1F ½ ² Ⅷ ٣٤٥ १२३ 12345678901234567890 user@example.org <unk> <0x41> ▁ ▁▁ Ġ Ċ""".split()
SPACES = ["  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\n \n", " \n", "\u00a0", "\u3000", "\u2003", "\u200b",
          "\u2028", "\u180e", "\x85", "\x0b", "\x0c", "\ufeff", "\x1c", "        ", "\n\n\n\n"]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0344", "\u1e69", "s\u0307\u0323", "\u0958", "\u0f73\u0f71", "\u1100\u1161",
         "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0b47\u0b3e", "\ufb2c", "\u2126", "\u212b", "\ufa1a", "\uff76\uff9e",
         "\u0301", "\u0301\u0316", "x\u20dd", "\u00e9", "\u0065", "\u1d15e", "\U0001d15e", "\u093c", "\u09c7\u09be"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
         "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f"]
INVALID = [b"\xff", b"\xc0\xaf", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xf0\x9f\x98", b"\xc3",
           b"\xfe\xfe", b"\xe0\x80\x80", b"\xed\xbf\xbf"]


class NastyTexts:
    """Random texts, as bytes. `added`: the added tokens of the tokenizer."""

    def __init__(self, seed, added=(), invalid=True):
        self.random = random.Random(seed)
        self.added = list(added)
        self.invalid = invalid

    def character(self):
        r = self.random
        kind = r.random()
        if kind < 0.3:
            return chr(r.randrange(0x80))
        if kind < 0.5:
            return chr(r.randrange(0x80, 0x800))
        if kind < 0.85:
            code = r.randrange(0x800, 0x10000)
            return chr(code if not 0xD800 <= code < 0xE000 else 0x4E00 + code % 0x5000)
        if kind < 0.97:
            return chr(r.randrange(0x10000, 0x32000))
        return chr(r.randrange(0x10000, 0x110000))

    def run(self):
        r = self.random
        what = r.choice([" ", "a", "A", "é", "中", "1", "\n", "!", "\u0301", "한", "👍", "▁", "ab", " a", "\r\n", "_"])
        return what * r.choice([2, 3, 5, 8, 17, 40])

    def token(self):
        r = self.random
        if not self.added:
            return "<|endoftext|>"
        token = r.choice(self.added)
        return r.choice(["", " ", "  ", "a", "\n"]) + token[:r.choice([99, 99, 99, 3])] + r.choice(["", " ", " \n", "x"])

    def part(self):
        r = self.random
        kind = r.random()
        if kind < 0.40:
            return (r.choice(WORDS) + r.choice([" ", " ", " ", "", ". ", ", "])).encode()
        if kind < 0.52:
            return r.choice(SPACES).encode()
        if kind < 0.72:
            return "".join(self.character() for _ in range(r.choice([1, 1, 2, 4]))).encode()
        if kind < 0.78:
            return r.choice(MARKS).encode()
        if kind < 0.82:
            return r.choice(EMOJI).encode()
        if kind < 0.86:
            return str(r.randrange(10 ** r.randrange(1, 12))).encode()
        if kind < 0.90:
            return self.run().encode()
        if kind < 0.96 or not self.invalid:
            return self.token().encode()
        return r.choice(INVALID) if r.random() < 0.7 else r.randbytes(r.randrange(1, 6))

    def text(self):
        count = self.random.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 12])
        return b"".join(self.part() for _ in range(count))


def as_text(data):
    """The text that a tokenizer of this library sees: U+FFFD for every byte that is not UTF-8."""
    return data.decode("utf-8", "each_byte")


def _each_byte(error):
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each_byte", _each_byte)
