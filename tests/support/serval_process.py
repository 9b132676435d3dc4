"""The real binaries as processes, for tests and benchmarks: a server on free loopback ports, and clients. Standard library only."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

DEFAULT_MODEL = pathlib.Path.home() / ".cache/serval/models/SmolLM2-135M-Instruct.Q4_1.gguf"
SKIPPED = 77  # the exit status ctest is told to read as "skipped"
READY = re.compile(r"ready: gRPC on \S*?:(\d+)")
BAD_LOG = re.compile(r"\[(error|critical)\]|\"level\":\s*\"(error|critical)\"|check failed|Sanitizer|terminate called")


def model_path():
    """The model tests use; ends the script with the skip status where there is none."""
    path = pathlib.Path(os.environ.get("SERVAL_TEST_MODEL", DEFAULT_MODEL))
    if not path.exists():
        print(f"skipped: no model at {path}; './quickstart --model-path' fetches it, or set SERVAL_TEST_MODEL")
        raise SystemExit(SKIPPED)
    return path


class Server:
    """serval-server as a context: ready on entry, stopped on exit."""

    def __init__(self, binaries, model, *flags, start_timeout=120):
        self.binaries = pathlib.Path(binaries)
        self.command = [str(self.binaries / "serval-server"), "--model", str(model), "--host", "127.0.0.1", "--grpc-port", "0",
                        "--port", "0", *map(str, flags)]
        self.start_timeout = start_timeout
        self.process = None

    def __enter__(self):
        self.log_file = tempfile.NamedTemporaryFile(mode="w+", prefix="serval-log-", suffix=".txt")
        begin = time.monotonic()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=subprocess.STDOUT)
        try:
            while not (ready := READY.search(self.log())):
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended with status {self.process.returncode} before it was ready:\n{self.log()}")
                if time.monotonic() - begin > self.start_timeout:
                    raise SystemExit(f"the server was not ready after {self.start_timeout} s:\n{self.log()}")
                time.sleep(0.01)
        except BaseException:
            self.process.kill()
            raise
        self.ready_seconds = time.monotonic() - begin
        self.target = f"127.0.0.1:{ready.group(1)}"
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.log_file.close()

    def log(self):
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    def bad_log_lines(self):
        return [line for line in self.log().splitlines() if BAD_LOG.search(line)]

    def client(self, *arguments, text=None):
        """A started `serval` process with piped output; `text` becomes its standard input."""
        process = subprocess.Popen([str(self.binaries / "serval"), *map(str, arguments), "--target", self.target],
                                   stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        if text is not None:
            process.stdin.write(text.encode())
            process.stdin.close()
            process.stdin = None
        return process

    def generate(self, prompt, *arguments, timeout=120):
        """One whole answer as `serval generate --json` gives it."""
        process = self.client("generate", "--json", *arguments, text=prompt)
        out, err = process.communicate(timeout=timeout)
        if process.returncode != 0:
            raise RuntimeError(f"serval generate ended with {process.returncode}: {err.decode(errors='replace')}")
        return json.loads(out)

    def stats(self):
        process = self.client("stats", "--json", "--timeout", 30)
        out, err = process.communicate(timeout=60)
        if process.returncode != 0:
            raise RuntimeError(f"serval stats ended with {process.returncode}: {err.decode(errors='replace')}")
        return json.loads(out)

    def wait_for(self, what, condition, timeout=30):
        """Asks for statistics until condition(stats) holds, and returns them."""
        begin = time.monotonic()
        while True:
            stats = self.stats()
            if condition(stats):
                return stats
            if time.monotonic() - begin > timeout:
                raise RuntimeError(f"after {timeout} s still not so: {what}; the server says {json.dumps(stats)}")
            time.sleep(0.05)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)


def is_idle(stats):
    """Nothing runs, nothing waits, and every pool is full."""
    return (stats["num_requests_running"] == 0 and stats["num_requests_waiting"] == 0 and stats["banks"] and
            all(bank["used_bytes"] == 0 and bank["free_bytes"] == bank["capacity_bytes"] for bank in stats["banks"]))
