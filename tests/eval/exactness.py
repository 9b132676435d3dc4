"""How far our logits are from transformers float32 on the same (dequantised) weights, teacher-forced over real text.

    python3 tests/eval/exactness.py --dump build/release/bin/dump_logits [--model FILE.gguf] [--tokens 4096]

Two runs of ours: --exact with an f32 KV cache (wanted: max |difference| <= 2e-3), and the default path with its bf16 KV cache
(wanted: mean KL <= 2e-3 nats, same most likely token on >= 98 % of the positions). Exit status 1 when one is missed.
Needs gguf, numpy, torch, tokenizers and transformers. The reference logits are kept beside --work and used again.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = ("alice.txt", "code.txt")
MAX_DIFFERENCE, MAX_KL, MIN_TOP1 = 2e-3, 2e-3, 0.98


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def compare(reference, ours):
    """Over all positions: the largest |difference| and where, mean and largest KL(reference || ours), share of equal argmax."""
    worst, place, divergence, same = 0.0, (0, 0), [], 0
    for begin in range(0, len(reference), 128):
        wanted, got = np.asarray(reference[begin:begin + 128]), np.asarray(ours[begin:begin + 128])
        difference = np.abs(wanted.astype(np.float64) - got)
        if not np.isfinite(difference).all():
            raise SystemExit(f"logits near position {begin} are not finite")
        if difference.max() > worst:
            row, token = np.unravel_index(difference.argmax(), difference.shape)
            worst, place = float(difference.max()), (begin + int(row), int(token))
        p, q = log_softmax(wanted), log_softmax(got)
        divergence.append((np.exp(p) * (p - q)).sum(axis=-1))
        same += int((wanted.argmax(axis=-1) == got.argmax(axis=-1)).sum())
    divergence = np.concatenate(divergence)
    return {"max_abs_difference": worst, "at_position": place[0], "at_token": place[1],
            "mean_kl": float(divergence.mean()), "max_kl": float(divergence.max()), "top1": same / len(reference)}


def dump(options, ids_path, out_path, flags):
    command = [options.dump, "--model", options.model, "--ids", str(ids_path), "--out", str(out_path),
               "--chunk", str(options.chunk), *flags]
    begin = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - begin


def reference_logits(options, ids):
    name = hashlib.sha256(repr((options.model, pathlib.Path(options.model).stat().st_size, ids)).encode()).hexdigest()[:16]
    path = options.work / f"reference-{name}.npy"
    if not path.exists():
        print(f"reference: transformers float32 over {len(ids)} tokens …", flush=True)
        import gguf
        import gguf_oracle
        partial = path.with_suffix(".partial")
        gguf_oracle.write_logits(gguf.GGUFReader(options.model), ids, partial)
        partial.rename(path)
    return np.load(path, mmap_mode="r")


def token_ids(options):
    text = "".join((HERE / "texts" / name).read_text(encoding="utf-8") for name in TEXTS)
    import gguf
    import gguf_oracle
    ids = gguf_oracle.encode(gguf.GGUFReader(options.model), text)
    if len(ids) < options.tokens:
        raise SystemExit(f"the texts hold {len(ids)} tokens; ask for at most that many with --tokens")
    return ids[:options.tokens]


def flags():
    default = pathlib.Path.home() / ".cache/serval/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", help="the dump_logits binary; without it only the reference is computed")
    parser.add_argument("--model", default=str(default))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=512, help="tokens a step of ours")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/serval/eval",
                        help="folder for logits (0.8 GB each at 4096 tokens)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here as well")
    return parser.parse_args()


def main():
    options = flags()
    options.work.mkdir(parents=True, exist_ok=True)
    ids = token_ids(options)
    reference = reference_logits(options, ids)
    if not options.dump:
        return 0
    ids_path, out_path = options.work / "ids.txt", options.work / "ours.f32"
    ids_path.write_text("\n".join(map(str, ids)) + "\n")
    runs = {"exact, f32 KV": ["--exact", "--kv-dtype", "f32"], "fast, f32 KV": ["--kv-dtype", "f32"],
            "fast, bf16 KV (default)": ["--kv-dtype", "bf16"]}
    results = {}
    try:
        for name, extra in runs.items():
            seconds = dump(options, ids_path, out_path, extra)
            ours = np.memmap(out_path, dtype=np.float32, mode="r").reshape(reference.shape)
            results[name] = compare(reference, ours) | {"seconds": seconds}
    finally:
        out_path.unlink(missing_ok=True)
    print(f"\n{len(ids)} tokens of {' + '.join(TEXTS)}, against transformers float32 on the dequantised weights")
    print(f"{'path':<26}{'max |diff|':>12}{'mean KL':>12}{'max KL':>12}{'same top-1':>12}")
    for name, r in results.items():
        print(f"{name:<26}{r['max_abs_difference']:>12.2e}{r['mean_kl']:>12.2e}{r['max_kl']:>12.2e}{100 * r['top1']:>11.2f}%")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    exact, fast = results["exact, f32 KV"], results["fast, bf16 KV (default)"]
    missed = [text for text, ok in (
        (f"exact: max |difference| <= {MAX_DIFFERENCE}", exact["max_abs_difference"] <= MAX_DIFFERENCE),
        (f"fast: mean KL <= {MAX_KL}", fast["mean_kl"] <= MAX_KL),
        (f"fast: same top-1 >= {MIN_TOP1:.0%}", fast["top1"] >= MIN_TOP1)) if not ok]
    print("all within bounds" if not missed else "MISSED " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
