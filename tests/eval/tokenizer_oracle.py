#!/usr/bin/env python3
"""Compares Serval's token ids with those of Hugging Face `tokenizers` built from the GGUF's own vocabulary and merges.

    tokenizer_oracle.py --model MODEL.gguf --tool build/bin/tokenize_lines [--pre all|NAME] [--write-golden FILE.h]

Needs the packages tokenizers, gguf and numpy. The lines are made here, the same in every run. --pre rewrites the model's
pre-tokenizer name (tokens and merges stay), to check the other rules; --write-golden writes the C++ test's expected ids.
"""
import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+",
           r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+", r"[0-9][0-9][0-9]"]
OTHER_RULES = ["gpt-2", "starcoder", "llama-bpe", "qwen2", "gpt-4o", "default"]


def pre_tokenizer(name):
    """The rule as the models' own tokenizer.json files write it."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    if name in ("smollm", "starcoder"):
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if name == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    patterns = {"llama-bpe": [LLAMA3], "qwen2": [QWEN2], "gpt-4o": [GPT4O], "default": DEFAULT}[name]
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


class Metadata:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        get = lambda key: reader.fields["tokenizer.ggml." + key].contents()
        self.tokens, self.types, self.merges, self.pre = get("tokens"), get("token_type"), get("merges"), get("pre")

    def added(self):
        return [text for text, kind in zip(self.tokens, self.types) if kind in (CONTROL, USER_DEFINED)]

    def oracle(self, pre):
        merges = [tuple(merge.split(" ")) for merge in self.merges]
        vocab = {token: i for i, token in enumerate(self.tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizer(pre)
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in self.added()])
        return tokenizer

    def write(self, path, pre):
        """The metadata alone, under another pre-tokenizer."""
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(False)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()


SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u0085", "\u200b", "\u180e", "\u2028",
          "\u2029", "\u1680", "\u2003", "\u202f", "\u205f", "\x0b", "\x0c", "\x1c", "\x1f", "\ufeff", " " * 17, "\t" * 5]
DIGITS = ["0", "7", "42", "1234567", "\u0663", "\u0967\u0968", "\u00bd", "\u2167", "\u2460", "\u4e09", "\u3007", "\U0001d7d8",
          "\u0bf0", "\u00b2", "\u2084", "\uff17", "3.14", "1e-9", "0xFF", "\U00010107", "\U0001f100"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308",
         "\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f9d1\u200d\U0001f4bb",
         "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "\U0001fae0", "\u263a"]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0301", "n\u0303o", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d", "\u0915\u094d\u0937\u093f",
         "\u1100\u1161\u11a8", "\u05e9\u05c1\u05b8", "\u0e01\u0e34\u0e49", "\u064b\u0651", "\u212b", "\ufb01", "\u017f"]
SCRIPTS = ["今天天气很好，我们去公园吧。", "日本語のテキスト、カタカナとひらがな。", "한국어 문장입니다.", "Привет, мир!", "Γειά σου Κόσμε",
           "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Xin chào thế giới", "ÇğışÖü", "𠜎𠜱𠝹", "ﷺ", "ꙮ", "Ⅷ",
           "«Être ou ne pas être»", "ǅungla", "ʻokina", "ªº", "ﬃ", "𝕳𝖊𝖑𝖑𝖔", "ᏣᎳᎩ", "ⴰⵎⴰⵣⵉⵖ"]
PROSE = ("It's a truth universally acknowledged, that we'll see what they've done; I'm sure you'd agree they're right. "
         "THEY'LL SAY IT'S FINE. Don't panic! The year 1984 had 366 days? O'Neil's cat -- 'twas grey -- sat (quietly) on "
         "e-mail@example.com, https://example.com/a?b=c&d=%20#x, and C:\\path\\file.txt; cost: $3.50/€2,99 (~15%).").split(" ")
CODE = ["def f(x: int) -> str:\n    return f\"{x!r:>10}\"\n", "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2.5f; }  // sum\n",
        "#include <vector>\n#define X(a) \\\n\t((a) << 3)\n", "SELECT * FROM t WHERE a='x' AND b>=10;--", "<div class=\"a\">&nbsp;</div>\n",
        "if err != nil {\n\t\treturn nil, fmt.Errorf(\"x: %w\", err)\n\t}\n", "x = {'a': [1, 2, {}], 'b': None}\n\n\n", "$ ls -la | grep '^d' > /dev/null 2>&1",
        "fn main() { let v: Vec<_> = (0..10).map(|x| x * x).collect(); }", "\\begin{equation} \\frac{a}{b} \\end{equation}", "a\t\tb\t c \t d", "snake_case camelCase __init__"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'\u017f", "''s", "' s", "\u2019s", "'sa", "'1", "'"]
MALFORMED = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf4\x90\x80\x80",
             b"\xf8\x88\x80\x80\x80", b"\x80", b"\xbf\xbf", b"\xf0\x80\x80\x80", b"\xe2\x28\xa1", b"\xf0\x28\x8c\xbc", b"\xf0\x90\x28\xbc", b"\xc3\x28", b"\xfe\xff", b"\xe2\x82\xff\xac"]


def any_character(rng):
    """Any code point that UTF-8 can carry, low planes more often."""
    while True:
        code = rng.randrange(rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000]))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def make_lines(added):
    rng = random.Random(20240607)
    lines = [b"", b" ", b"\n", b"\x00", b"a", b"  a  b  "]
    # Every character between letters, and behind a space, sixteen to a line, as far as all libraries know the same Unicode.
    for start in range(0, 0x3400, 16):
        block = [chr(code) for code in range(start, start + 16)]
        lines.append("".join("a" + c + "b " + c for c in block).encode())
    kinds = [SPACES, DIGITS, EMOJI, MARKS, SCRIPTS, PROSE, CODE, CONTRACTIONS, added]
    for kind in kinds:
        for _ in range(700):
            lines.append("".join(rng.choice(kind) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 8))).encode())
    for _ in range(4000):  # all kinds mixed
        parts = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(2, 14))]
        lines.append("".join(parts).encode())
    for _ in range(1000):  # malformed UTF-8 anywhere
        parts = [rng.choice(MALFORMED) if rng.random() < 0.5 else rng.choice(rng.choice(kinds)).encode() for _ in range(rng.randint(1, 10))]
        lines.append(b"".join(parts))
    for _ in range(1000):  # any bytes at all
        lines.append(bytes(rng.randrange(256) for _ in range(rng.randint(1, 60))))
    for _ in range(1000):  # cut-off and mangled text
        text = bytearray(rng.choice(SCRIPTS + EMOJI + MARKS).encode() * 2)
        text[rng.randrange(len(text))] = rng.randrange(256)
        lines.append(bytes(text[: rng.randint(1, len(text))]))
    for _ in range(500):  # pieces of special tokens
        token = rng.choice(added)
        cut = rng.randint(0, len(token))
        lines.append((token[:cut] + rng.choice(["", "<", "<|", token]) + token[cut:]).encode())
    for _ in range(1000):
        lines.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 30))).encode() + rng.choice([b"", b"x", b"1", b".", "é".encode()]))
    for _ in range(1000):
        lines.append("".join(any_character(rng) for _ in range(rng.randint(1, 40))).encode())
    for size in (300, 5000, 100000):  # long words
        lines.append(b"a" * size)
        lines.append(bytes(rng.choice(b"etaoinshrdlu") for _ in range(size)))
        lines.append(b" " * size + b"x")
        lines.append("語".encode() * size)
    return lines


def run_tool(tool, model, lines):
    data = b"".join(struct.pack("<I", len(line)) + line for line in lines)
    out = subprocess.run([tool, model], input=data, stdout=subprocess.PIPE, check=True).stdout
    ids, pos = [], 0
    for _ in lines:
        (count,) = struct.unpack_from("<I", out, pos)
        ids.append(list(struct.unpack_from(f"<{count}i", out, pos + 4)))
        pos += 4 + 4 * count
    return ids


def compare(name, oracle, ours, lines):
    wrong = 0
    for line, got in zip(lines, ours):
        text = line.decode("utf-8", errors="replace")
        want = oracle.encode(text).ids
        if want != got:
            wrong += 1
            if wrong <= 10:
                print(f"  {name}: {line[:80]!r}\n    want {want[:24]}\n    got  {got[:24]}")
    print(f"{name}: {len(lines) - wrong} of {len(lines)} lines equal")
    return wrong


GOLDEN = [b"", b" ", b"Hello, world!", b"  leading and   inner", b"tail  ", b"tabs\tand\t\tmore", b"line\nline\r\nline\n\n\n", b"I'm you're we'll they've he'd it's can't",
          b"IT'S", b"it\xe2\x80\x99s", b"1234567 3.14 a1b2", "\u0663\u00bd\u2167\u4e09".encode(), "a\u00a0b\u3000c".encode(), "a\u0085b\u200bc\u180ed".encode(), "今天天气很好。".encode(),
          "日本語テキスト".encode(), "한국어 문장".encode(), "Привет, мир!".encode(), "مرحبا".encode(), "नमस्ते".encode(), EMOJI[0].encode(), EMOJI[1].encode(), EMOJI[2].encode(), EMOJI[8].encode(),
          "e\u0301 a\u0308\u0323".encode(), MARKS[4].encode(), b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", b"<|im_start<|im_start|>|>", b"<reponame><repo_name>x", b"<|endoftext|>",
          b"a<|im_end|>b <|im_end|> c", b"<|im_end", b"\xff", b"\xc3", b"ab\xe2\x82cd", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xc0\xaf\xe0\x80\xaf", b"\x00\x01\x02\x7f", b"\xe2\x82\xff\xac",
          CODE[0].encode(), CODE[1].encode(), CODE[2].encode(), CODE[5].encode(), b"snake_case camelCase __init__", b"https://example.com/a?b=c&d=%20#x", b"        x = 1", b"a   1", b"a   b", b" 7 8  9",
          b"!!!???...", b" !!! ???", b"--- ***", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", b"antidisestablishmentarianism", b"\r\n\r\n \r\n", b" \n \n ", b"'", b"''s", "ﬃ ª Ⅷ ǅ".encode(), "𝕳𝖊𝖑𝖑𝖔 𠜎".encode(), b"The quick brown fox jumps over the lazy dog."]


def write_golden(path, oracle):
    with open(path, "w") as out:
        out.write("// Expected token ids of the default model, by Hugging Face tokenizers. Written by\n// tests/eval/tokenizer_oracle.py.\n"
                  "// clang-format off\n#pragma once\n\n#include <cstdint>\n#include <string_view>\n#include <vector>\n\n"
                  "namespace serval {\n\nstruct GoldenLine {\n  std::string_view text;\n  std::vector<int32_t> ids;\n};\n\n"
                  "inline const std::vector<GoldenLine> kGoldenLines = {\n")
        for line in GOLDEN:
            text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in line)
            ids = ", ".join(map(str, oracle.encode(line.decode("utf-8", errors="replace")).ids))
            out.write(f'    {{{{"{text}", {len(line)}}}, {{{ids}}}}},\n')
        out.write("};\n\n}  // namespace serval\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--pre", default="")
    parser.add_argument("--write-golden", default="")
    args = parser.parse_args()

    metadata = Metadata(args.model)
    if args.write_golden:
        write_golden(args.write_golden, metadata.oracle(metadata.pre))
    lines = make_lines(metadata.added()) + GOLDEN
    wrong = compare(metadata.pre, metadata.oracle(metadata.pre), run_tool(args.tool, args.model, lines), lines)

    word = bytes(random.Random(1).choice(b"etaoinshrdlu") for _ in range(1 << 20))
    started = time.time()
    run_tool(args.tool, args.model, [word])
    print(f"a word of 1 MB: {time.time() - started:.2f} s, loading included")

    rules = OTHER_RULES if args.pre == "all" else [args.pre] if args.pre else []
    for name in rules:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocabulary.gguf")
            metadata.write(path, name)
            wrong += compare(name, metadata.oracle(name), run_tool(args.tool, path, lines), lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
