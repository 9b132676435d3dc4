#!/usr/bin/env python3
"""Our engine against llama.cpp on the same GGUF file and threads, interleaved round by round. Prints a table last.

    tests/bench/cpu_vs_llama.py --llama-bench PATH --llama-batched-bench PATH
        [--engine-bench build/release/bin/engine_bench] [--model FILE.gguf] [--threads N] [--rounds 7] [--json OUT.json]

prefill: one prompt of 512 random ids (pp512). decode: 128 tokens from an empty context (tg128). batched: 8 streams with prompts of
128 ids decode 128 tokens each (S_TG of llama-batched-bench -npp 128 -ntg 128 -npl 8). All in tokens/s; each round runs one after
the other on an otherwise idle machine. Python standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = pathlib.Path.home() / ".cache/serval/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def output(command):
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{command[0]} failed with status {run.returncode}:\n{run.stderr[-2000:]}")
    return run.stdout


def ours(options):
    return json.loads(output([options.engine_bench, "--model", options.model, "--threads", options.threads, "--tests",
                              "prefill,decode,batched,bandwidth"]))


def theirs(options):
    runs = json.loads(output([options.llama_bench, "-m", options.model, "-t", options.threads, "-p", 512, "-n", 128, "-r", 1,
                              "-ngl", 0, "-o", "json"]))
    speed = {("prefill" if run["n_prompt"] else "decode"): run["avg_ts"] for run in runs}
    lines = output([options.llama_batched_bench, "-m", options.model, "-t", options.threads, "-c", 4096, "-b", 2048, "-ub", 512,
                    "-npp", 128, "-ntg", 128, "-npl", 8, "-ngl", 0, "--output-format", "jsonl"]).splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    if not rows:
        sys.exit("llama-batched-bench printed no result: its JSON lines were expected")
    return speed | {"batched": rows[-1]["speed_tg"]}


def percentile(values, share):
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(values):
    return {"median": statistics.median(values), "p10": percentile(values, 0.1), "p90": percentile(values, 0.9), "all": values}


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--llama-batched-bench", required=True)
    parser.add_argument("--engine-bench", default=ROOT / "build/release/bin/engine_bench")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    for path in (options.llama_bench, options.llama_batched_bench, options.engine_bench, options.model):
        if not pathlib.Path(path).exists():
            parser.error(f"{path} does not exist; build it or name it by its flag")
    return options


def main():
    options = flags()
    names = ("prefill", "decode", "batched")
    mine, other, bandwidth = {n: [] for n in names}, {n: [] for n in names}, []
    for turn in range(options.rounds):
        we, they = {}, {}
        # Who goes first changes from round to round, so that neither always meets the warmer machine.
        for side in ("ours", "theirs") if turn % 2 == 0 else ("theirs", "ours"):
            if side == "ours":
                we = ours(options)
            else:
                they = theirs(options)
        for name in names:
            mine[name] += we[name]
            other[name].append(they[name])
        bandwidth.append(we["bandwidth"])
        print(f"round {turn + 1}/{options.rounds}: " + ", ".join(
            f"{n} {we[n][0]:.0f} vs {they[n]:.0f}" for n in names), file=sys.stderr, flush=True)

    labels = {"prefill": "prefill, 512 tokens", "decode": "decode, 128 tokens", "batched": "decode, 8 streams"}
    result = {"threads": options.threads, "rounds": options.rounds, "model": pathlib.Path(options.model).name,
              "bandwidth": summary(bandwidth), "tests": {}}
    print(f"\n{result['model']}, {options.threads} threads, {options.rounds} interleaved rounds; tokens/s, median (p10–p90)\n")
    print(f"| {'test':<20} | {'Serval':>22} | {'llama.cpp':>22} | ratio |\n|{'-' * 22}|{'-' * 23}:|{'-' * 23}:|------:|")
    for name in names:
        a, b = summary(mine[name]), summary(other[name])
        ratio = a["median"] / b["median"]
        result["tests"][name] = {"serval": a, "llama.cpp": b, "ratio": ratio}
        cells = [f"{s['median']:.0f} ({s['p10']:.0f}–{s['p90']:.0f})" for s in (a, b)]
        print(f"| {labels[name]:<20} | {cells[0]:>22} | {cells[1]:>22} | {ratio:>4.2f}× |")
    ceiling = result["bandwidth"]["median"]
    result["weight_bytes"] = we["weight_bytes"]
    share = result["tests"]["decode"]["serval"]["median"] * we["weight_bytes"] / ceiling
    print(f"\nmemory reads {ceiling / 1e9:.1f} GB/s at best; decode streams {share:.0%} of it "
          f"({we['weight_bytes'] / 1e6:.0f} MB of weights a token)")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
