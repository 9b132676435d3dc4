"""SIGTERM under load: what was accepted is answered in full, what comes later is refused, and the server ends with status 0.

    python3 tests/reliability/drain.py --bin build/release/bin
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import serval_process as serval

CLIENTS, RUNNING, TOKENS = 8, 4, 400


def accepted(stats):
    return stats["num_requests_running"] + stats["num_requests_waiting"] == CLIENTS


def run(binaries):
    faults = []
    flags = ("--max-model-len", 1024, "--max-num-seqs", RUNNING, "--shutdown-timeout", 120)
    with serval.Server(binaries, serval.model_path(), *flags) as server:
        clients = [server.client("generate", "--json", "--max-tokens", TOKENS, "--ignore-eos", text=f"Chapter {i}. ")
                   for i in range(CLIENTS)]
        server.wait_for(f"{CLIENTS} requests accepted", accepted)
        server.terminate()
        late = server.client("generate", "--max-tokens", 4, "--timeout", 60, text="Too late: ")
        out, err = late.communicate(timeout=90)
        if late.returncode != 1 or out.strip() or not err.strip():
            faults.append(f"a client after SIGTERM ended with {late.returncode}, printed {out!r} and said {err!r}")
        if server.process.poll() is not None:
            faults.append("the server was gone before its requests had ended")
        for client in clients:
            out, err = client.communicate(timeout=240)
            if client.returncode != 0:
                faults.append(f"an accepted request ended with {client.returncode}: {err.decode(errors='replace').strip()}")
            elif (answer := json.loads(out))["usage"]["completion_tokens"] != TOKENS or answer["finish_reason"] != "length":
                faults.append(f"a truncated answer: {answer['usage']}, {answer['finish_reason']}")
        if (code := server.process.wait(30)) != 0:
            faults.append(f"the server ended with status {code}")
        faults += [f"in the server's log: {line}" for line in server.bad_log_lines()]
    for fault in faults:
        print("FAULT", fault)
    print(f"{CLIENTS} requests, {RUNNING} at a time, SIGTERM in between: " + ("none truncated" if not faults else "see above"))
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of serval-server and serval")
    sys.exit(run(parser.parse_args().bin))
