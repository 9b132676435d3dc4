#!/usr/bin/env python3
"""Sixty-four requests of mixed length at once over gRPC, against the same requests given to the engine in process.

    tests/bench/serve_load.py [--bin build/release/bin] [--model FILE.gguf] [--rounds 3] [--width 64] [--requests 192] [--json OUT]

Also: time from start to ready (the model in the page cache), and resident memory against weights + planned KV. Standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import serval_process as serval


def run_json(*command):
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if not run.stdout.strip():
        sys.exit(f"{command[0]} failed with status {run.returncode}: {run.stderr[-2000:]}")
    return json.loads(run.stdout)


def over_grpc(options):
    """One fresh server, one run of the load; then the server's memory as /proc has it."""
    with serval.Server(options.bin, options.model, "--threads", options.threads) as server:
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        resident_at_start = int(status.split("VmRSS:")[1].split()[0]) * 1024
        load = run_json(options.bin / "grpc_load", "--target", server.target, "--width", options.width, "--requests",
                        options.requests)
        serval_log = server.bad_log_lines()
        if serval_log:
            sys.exit("in the server's log: " + serval_log[0])
        return load | {"ready_seconds": server.ready_seconds, "resident_at_start": resident_at_start}


def in_process(options):
    return run_json(options.bin / "engine_bench", "--model", options.model, "--threads", options.threads, "--tests", "mixed",
                    "--width", options.width, "--requests", options.requests)["mixed"][0]


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--model", type=pathlib.Path, default=serval.DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = flags()
    options.model.read_bytes()  # into the page cache
    served, alone = [], []
    for turn in range(options.rounds):
        served.append(over_grpc(options))
        alone.append(in_process(options))
        print(f"round {turn + 1}/{options.rounds}: {served[-1]['tokens_per_second']:.0f} tokens/s over gRPC, "
              f"{alone[-1]:.0f} in process", file=sys.stderr, flush=True)
    median = {key: statistics.median(run[key] for run in served)
              for key in ("tokens_per_second", "ready_seconds", "resident_bytes", "resident_at_start", "ttft_p50", "ttft_p99")}
    failures, engine = sum(run["failures"] for run in served), statistics.median(alone)
    planned = served[0]["weight_bytes"] + served[0]["kv_capacity_bytes"]
    rows = (
        ("requests, all rounds", f"{options.requests * options.rounds}, {options.width} at a time"),
        ("failures", f"{failures}"),
        ("output tokens/s over gRPC", f"{median['tokens_per_second']:.0f}"),
        ("output tokens/s in process", f"{engine:.0f}"),
        ("ratio", f"{median['tokens_per_second'] / engine:.3f}"),
        ("first token, p50 and p99", f"{median['ttft_p50']:.2f} s, {median['ttft_p99']:.2f} s"),
        ("start to ready", f"{median['ready_seconds']:.2f} s"),
        ("weights + planned KV", f"{planned / 1e6:.0f} MB ({served[0]['weight_bytes'] / 1e6:.0f} + "
                                 f"{served[0]['kv_capacity_bytes'] / 1e6:.0f})"),
        ("resident when ready", f"{median['resident_at_start'] / 1e6:.0f} MB"),
        ("resident after the load", f"{median['resident_bytes'] / 1e6:.0f} MB, "
                                    f"{median['resident_bytes'] / planned:.2f} x the plan"),
    )
    print(f"\n{options.model.name}, {options.threads} threads, medians of {options.rounds} rounds\n\n| what | value |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")
    if options.json:
        options.json.write_text(json.dumps({"served": served, "in_process": alone}, indent=2) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
