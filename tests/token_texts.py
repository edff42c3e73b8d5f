"""Texts that try a tokenizer: scripts, marks, spaces, controls, code, long words."""

from __future__ import annotations

import numpy as np

_HAND = (
    "a", " ", "  ", "\n", "\r\n", "\t", "\x00", "a\x00b", "\x01\x02\x1f\x7f\x85", "\ufeff",
    "\ufffd", "don't", "I'LL WE'VE they're it'd", "'s'S’s", "x'y''z", "0", "007", "3.14159",
    "1,234,567.89", "１２３", "²³½", "٣٤٥",
    "१२३", "Ⅷ", "a1b2", "v2.0.1-rc.3", "2020-01-02T03:04:05Z",
    "   leading", "trailing   ", "a  b   c    d", "a \n b", "\n\n\n", " \n \n", "a\r\n\r\nb", "\r",
    "\u00a0", "\u3000x\u3000", "\u2003\u2009", "\u200b\u200d\u2060", "a\u2028b\u2029c", "\v\f",
    "👩‍🔬", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "☺️", "1️⃣", "😀😀😀", "🫠 a", "x🚀y",
    "Привет, мир", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "\u202eabc\u202c", "لا إله",
    "नमस्ते दुनिया", "สวัสดีชาวโลก",
    "ကမ္ဘာ", "你好，世界", "日本語のテキスト", "한국어", "ㄱㅏ", "𠮷野家", "𝔘𝔫𝔦",
    "cafe\u0301", "A\u030a", "\u1e9b\u0323", "q\u0307\u0323", "e\u0301\u0301", "\u0301", " \u0301a",
    "\u1100\u1161\u11a8", "\u212b", "\u2126", "ﬁ", "\uac01", "\u0344", "\ufb1d", "naïve façade",
    "if (x != 0) { return a[i]++; }", "def f(x):\n    return x ** 2\n", "#include <stdio.h>\r\n",
    "SELECT * FROM t WHERE a='b' --c", "<html><body>&nbsp;</body></html>", "a_b-c.d/e\\f",
    "https://example.com/?q=1&r=%20#x", '{"k": [1, 2.5, null]}', "\\u0041\\n", "$$\\int_0^1$$",
    "!!!???...", "—–-", "“quoted” ‘text’", "()[]{}<>", "@user #tag", "a+b=c", "~`^|", "€£¥",
    "x" * 1000, "ab" * 700, "é" * 300, "字" * 300, "🚀" * 100, " " * 200, "\n" * 50, "1" * 300,
    "Donaudampfschifffahrtsgesellschaftskapitän", "antidisestablishmentarianism " * 20,
    "<tool_call>", "</tool_call>x", "a<tool_call>b</tool_call>",
    "<__media__>", "<|", "|>", "<||>", "<|im_start", "im_start|>", "< |im_start|>", "<|IM_START|>",
)  # fmt: skip
_ODD = (
    "\u0378",
    "\U000e0fff",
    "\ue000",
    "\U000f0000",
    "\U0010ffff",
    "\ufffe",
    "\uffff",
    "\ufdd0",
    "\U000e0041\U000e007f",
    "\ufe0f",
    "a\ufe0eb",
    "\u200e\u200fa",
    "\u2066x\u2069",
    "\u061c",
    "\u034f",
    "\ufeffa",
    "a\ufeffb",
    "\ufffda",
    "\x00" * 50,
    "\x1b[31mred\x1b[0m",
    "\x7f\x80\x9f",
    "\u2028" * 9,
    "o\u0308",
    "\u00f6",
    "\u1ed9",
    "o\u0323\u0302",
    "o\u0302\u0323",
    "\u2ade",
    "\ufb2c",
    "\u0958",
    "\U0001d15e",
    "\u1112\u1161\u11ab",
    "\u3131\u314f",
    "\u0e33",
    "\u0f43",
    "e" + "\u0301" * 200,
    "\u0600\u06dd\u070f",
    "1\ufe0f\u20e3" * 30,
    "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\u2581",
    "a\u2581b",
    "\u2581\u2581 \u2581",
    "##ing",
    "[UNK]",
    "[CLS] a [SEP]",
    "[MASK]",
    "<unk>",
    "<s>a</s>",
    "<bos>a<eos>",
    "<0x41>",
    "<0x0A>b",
    "<pad>",
    "<start_of_turn>user",
    "<image_soft_token>",
    "<|image|>",
    "<image>",
    "\u0120the",
    "\u010a",
    "<|endoftext|>" * 20,
    "x" * 5000,
    "antidis" * 700,
    "\u5b57" * 2000,
)
_RANGES = (
    (0x20, 0x7F), (0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700),
    (0x900, 0xA00), (0x1100, 0x1200), (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x5000),
    (0xAC00, 0xAD00), (0xFF00, 0xFFF0), (0x1F300, 0x1F700),
)  # fmt: skip


def texts() -> list[str]:
    """The fixed set: by hand, and 200 seeded mixtures."""
    return [*_HAND, *mixtures(seed=0, count=200)]


def odd() -> list[str]:
    """Further texts by hand: marks, what Unicode leaves out, and spellings of special tokens."""
    return list(_ODD)


def mixtures(seed: int, count: int) -> list[str]:
    """Seeded texts of 1 to 40 characters from several scripts."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return [_mixture(rng) for _ in range(count)]


def _mixture(rng: np.random.Generator) -> str:
    blocks = rng.choice(len(_RANGES), 3)
    characters = []
    for pick in rng.integers(0, 5, rng.integers(1, 41)).tolist():
        start, stop = _RANGES[0] if pick > 2 else _RANGES[blocks[pick]]
        characters.append(chr(rng.integers(start, stop)))
    return "".join(characters)
