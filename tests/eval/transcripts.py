"""What the served model says: `serval generate --chat` over twenty prompts, written as one Markdown text.

    python3 tests/eval/transcripts.py --bin build/release/bin [--out FILE.md] [--max-tokens 200] [--temperature 0]

Starts a server of its own on free ports. Python standard library only.
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import serval_process as serval

PROMPTS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a haiku about rain.",
    "Explain in two sentences what a hash table is.",
    "What is 17 + 25?",
    "Name three animals that live in the desert.",
    "Write a Python function that reverses a string.",
    "Translate to French: Good morning, my friend.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "What causes the seasons on Earth?",
    "Summarise in one sentence: The quick brown fox jumped over the lazy dog, then ran into the forest to find its family.",
    "Write a polite e-mail that declines a meeting.",
    "What is the difference between a virus and a bacterium?",
    "List the planets of the solar system in order.",
    "Tell a short story about a lighthouse keeper.",
    "How do I boil an egg?",
    "Write an SQL query that counts the rows of a table named users.",
    "What does the word 'serendipity' mean?",
    "¿Cuál es la capital de España? 🌍",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of serval-server and serval")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="[standard output]")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0)
    options = parser.parse_args()
    parts = []
    with serval.Server(options.bin, options.model or serval.model_path()) as server:
        for number, prompt in enumerate(PROMPTS, 1):
            begin = time.monotonic()
            answer = server.generate(prompt, "--chat", "--max-tokens", options.max_tokens, "--temperature", options.temperature,
                                     "--seed", 1)
            tokens = answer["usage"]["completion_tokens"]
            seconds = time.monotonic() - begin
            parts.append(f"## {number}. {prompt}\n\n{answer['text'].strip()}\n\n"
                         f"({tokens} tokens, {answer['finish_reason']}, {seconds:.2f} s)\n")
            if not answer["text"].strip():
                sys.exit(f"prompt {number} got an empty answer")
    text = "\n".join(parts)
    if options.out:
        options.out.write_text(text)
        print(f"{len(PROMPTS)} transcripts in {options.out}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
