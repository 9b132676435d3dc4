"""Ten times as many requests at once as the queue holds: each is answered in full or refused at once, none is lost.

    python3 tests/reliability/queue_full.py --bin build/release/bin
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import serval_process as serval

QUEUE, RUNNING, TOKENS = 6, 2, 160


def run(binaries):
    flags = ("--max-model-len", 1024, "--max-num-seqs", RUNNING, "--max-num-queued-reqs", QUEUE)
    with serval.Server(binaries, serval.model_path(), *flags) as server:
        begin = time.monotonic()
        clients = [server.client("generate", "--json", "--max-tokens", TOKENS, "--ignore-eos", text=f"Story {i}: ")
                   for i in range(10 * QUEUE)]
        served, refused, faults = 0, 0, []
        for client in clients:
            out, err = client.communicate(timeout=240)
            said = err.decode(errors="replace").strip()
            if client.returncode == 0:
                served += 1
                count = json.loads(out)["usage"]["completion_tokens"]
                if count != TOKENS:
                    faults.append(f"an answer of {count} tokens instead of {TOKENS}")
            elif client.returncode == 1 and "is full" in said and "try again in" in said:
                refused += 1
            else:
                faults.append(f"a client ended with {client.returncode}: {said}")
        stats = server.wait_for("all requests gone and every pool full", serval.is_idle)
        if served < QUEUE + RUNNING:
            faults.append(f"only {served} served, though {QUEUE} may wait and {RUNNING} run")
        if refused == 0:
            faults.append("none was refused: the queue was never full")
        if stats["rejected"].get("queue_full", 0) != refused:
            faults.append(f"{refused} clients were refused, the server counted {stats['rejected']}")
        faults += [f"in the server's log: {line}" for line in server.bad_log_lines()]
    for fault in faults:
        print("FAULT", fault)
    print(f"{len(clients)} requests in {time.monotonic() - begin:.1f} s: {served} served in full, {refused} refused")
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of serval-server and serval")
    sys.exit(run(parser.parse_args().bin))
