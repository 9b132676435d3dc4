"""Clients that are killed, cancelled, stopped or time out at random points; afterwards every pool of the server is full.

    python3 tests/reliability/kill_clients.py --bin build/release/bin [--seconds 20] [--clients 12] [--seed 1]

A real server with little memory (so that pre-emption happens too) meets `serval generate` processes. Those that are let live
must get, byte for byte, the greedy answer their prompt gets on an idle server. At the end: nothing runs or waits, all memory is
free, the server answers, its log holds no error, and its memory has not grown.
"""

import argparse
import collections
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import serval_process as serval

PROMPTS = ("The capital of France is", "def fibonacci(n):\n    ", "Once upon a time there was a queen who",
           "List three colours of the rainbow:", "The three laws of motion, which Newton published in 1687, say that " * 12)
CALM = ("--temperature", 0, "--max-tokens", 48, "--ignore-eos")


class Client:
    """One client process and what fate has for it."""

    def __init__(self, server, random_source, answers):
        self.fate = random_source.choice(("live", "live", "kill", "kill", "interrupt", "timeout", "stall", "choices"))
        self.prompt = random_source.choice(PROMPTS)
        self.end_at = time.monotonic() + random_source.expovariate(1.0)
        self.wanted = answers[self.prompt]
        self.stalled = False
        if self.fate == "live":
            flags = CALM
        elif self.fate == "timeout":
            flags = ("--max-tokens", 600, "--ignore-eos", "--timeout", round(random_source.uniform(0.02, 1.5), 3))
        elif self.fate == "choices":
            flags = ("--n", random_source.randint(2, 8), "--max-tokens", 300, "--ignore-eos", "--logprobs", 5)
        else:
            flags = ("--max-tokens", random_source.randint(1, 700), "--ignore-eos", "--prompt-logprobs", 0)
        self.process = server.client("generate", "--json", *flags, text=self.prompt)

    def tend(self):
        """Sends the signal that is due. True once the process has ended."""
        if self.process.poll() is not None:
            return True
        if time.monotonic() >= self.end_at and self.fate not in ("live", "timeout"):
            if self.fate == "stall" and not self.stalled:  # stops reading with the call open, then dies
                self.process.send_signal(signal.SIGSTOP)
                self.stalled, self.end_at = True, self.end_at + 1
            else:
                self.process.send_signal(signal.SIGINT if self.fate == "interrupt" else signal.SIGKILL)
                self.end_at += 5
        return False

    def verdict(self):
        """None, or what went wrong."""
        out, err = self.process.communicate()
        code, said = self.process.returncode, err.decode(errors="replace").strip()
        if self.fate == "live":
            if code != 0:
                return f"a client that was let live ended with {code}: {said}"
            answer = serval.json.loads(out)["text"]
            if answer != self.wanted:
                return f"another answer under load to {self.prompt[:40]!r}: {answer!r} instead of {self.wanted!r}"
        elif self.fate == "timeout" and code not in (0, 1):
            return f"a client with a deadline ended with {code}: {said}"
        elif self.fate == "interrupt" and code not in (0, 130, -signal.SIGINT):
            return f"an interrupted client ended with {code}: {said}"
        elif self.fate in ("kill", "stall", "choices") and code not in (0, -signal.SIGKILL):
            return f"a client ended with {code} before it was killed: {said}"
        return None


def storm(server, options, answers):
    """Keeps --clients processes alive for --seconds, then lets the last ones end. Returns fates, faults and a memory mark."""
    random_source = random.Random(options.seed)
    begin, alive, fates, faults, mark = time.monotonic(), [], collections.Counter(), [], None
    while alive or time.monotonic() - begin < options.seconds:
        spent = time.monotonic() - begin
        if mark is None and spent > options.seconds / 4:
            mark = server.stats()["resident_bytes"]
        if spent < options.seconds and len(alive) < options.clients:
            alive.append(Client(server, random_source, answers))
        for client in [client for client in alive if client.tend()]:
            alive.remove(client)
            fates[client.fate] += 1
            if fault := client.verdict():
                faults.append(fault)
        if server.process.poll() is not None:
            for client in alive:
                client.process.kill()
            faults.append(f"the server died with status {server.process.returncode}")
            break
        if spent > options.seconds + 120:
            raise RuntimeError(f"{len(alive)} clients did not end within 120 s")
        time.sleep(0.01)
    return fates, faults, mark


def run(options):
    flags = ("--max-model-len", 1024, "--kv-cache-bytes", "24MiB", "--max-num-seqs", 8, "--kv-cache-dtype", "bf16")
    with serval.Server(options.bin, serval.model_path(), *flags) as server:
        answers = {prompt: server.generate(prompt, *CALM)["text"] for prompt in PROMPTS}
        fates, faults, mark = storm(server, options, answers)
        if server.process.poll() is None:
            stats = server.wait_for("all requests gone and every pool full", serval.is_idle)
            again = server.generate(PROMPTS[0], *CALM)["text"]
            if again != answers[PROMPTS[0]]:
                faults.append(f"another answer after the storm: {again!r} instead of {answers[PROMPTS[0]]!r}")
            if stats["resident_bytes"] > mark * 1.1 + (64 << 20):
                faults.append(f"the server grew from {mark >> 20} to {stats['resident_bytes'] >> 20} MiB")
            print(f"{sum(fates.values())} clients: " + ", ".join(f"{n} {fate}" for fate, n in sorted(fates.items())))
            print(f"the server: finished {stats['finished']}, pre-empted {stats['num_preemptions']}, "
                  f"{stats['generation_tokens']} tokens, {stats['resident_bytes'] >> 20} MiB resident")
        faults += [f"in the server's log: {line}" for line in server.bad_log_lines()]
    for fault in faults[:20]:
        print("FAULT", fault)
    print("every pool is full again" if not faults else f"{len(faults)} faults; --seed {options.seed}")
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of serval-server and serval")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
