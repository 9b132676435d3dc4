#!/usr/bin/env python3
"""The rules of the house that a machine can hold: house.py RULE [ROOT]. CONTRIBUTING.md says why each exists.

A rule is a function of the tree (path from the root -> text) that yields one line for each breach. Exit code 0: none; 1: some;
77: the rule's tool is not installed (the test is skipped).
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import cpp

ROOMS = ("kernels", "engine", "models", "proto", "server", "clients", "tests", "docker")
EXTENSIONS = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".md", ".txt", ".json", ".yaml", ".yml")
TOP = ("quickstart", "check", "README.md", "CONTRIBUTING.md", "CMakeLists.txt", "CMakePresets.json", ".ci/run")
CODE = (".h", ".cc", ".cu", ".cuh")

# Who may include whom, and which libraries belong to which rooms. Tests may include all.
ARROWS = {
    "kernels": {"kernels"},
    "engine": {"engine", "kernels"},
    "models": {"models", "engine", "kernels"},
    "server": {"server", "models", "engine", "kernels", "proto"},
    "clients": {"clients", "proto"},
    "tests": set(ROOMS),
    "docker": set(),
}
# The composition root may run the HTTP proxy inside the server's process.
EXCEPTIONS = {("server/main.cc", "clients/openai/")}
LIBRARIES = {
    "hwy/": {"kernels"},
    "absl/": {"engine", "models", "server", "clients"},
    "grpc/": {"server", "clients"},
    "grpcpp/": {"server", "clients"},
    "google/protobuf/": {"server", "clients"},
    "nlohmann/": {"models", "server", "clients"},
    "pcre2.h": {"models"},
    "utf8proc.h": {"models"},
    "boost/": {"server", "clients"},
    "openssl/": {"server", "clients"},
    "prometheus/": {"server"},
    "spdlog/": {"server"},
    "yaml-cpp/": {"server"},
    "gtest/": set(),
    "gmock/": set(),
    "benchmark/": set(),
}
MOST_LINES = {".h": 150, ".cc": 400, ".cu": 600, ".cuh": 600}
MOST_FUNCTION_LINES = 60


def room_of(path):
    return path.split("/")[0]


def code(tree):
    return [(path, text) for path, text in sorted(tree.items()) if path.endswith(CODE)]


def arrows(tree):
    """Includes go from left to right: clients, server | proto, models, engine, kernels."""
    include = re.compile(r'^\s*#\s*(?:include|define\s+HWY_TARGET_INCLUDE)\s*([<"])([^>"]+)[>"]', re.M)
    for path, text in code(tree):
        room = room_of(path)
        for match in include.finditer(text):
            quoted, target = match[1] == '"', match[2]
            line = text.count("\n", 0, match.start(2)) + 1
            into = "proto" if target.startswith("serval/v1/") else room_of(target)
            if any(path == source and target.startswith(prefix) for source, prefix in EXCEPTIONS):
                continue
            if "/" in target and into in ROOMS:
                if into not in ARROWS[room]:
                    yield f"{path}:{line}: {room} may not include {into} ({target})"
                continue
            library = next((prefix for prefix in LIBRARIES if target.startswith(prefix)), None)
            if library is None and quoted:
                yield f"{path}:{line}: \"{target}\" is not a path from the root of the tree"
            elif library is not None and room != "tests" and room not in LIBRARIES[library]:
                yield f"{path}:{line}: {room} may not use <{target}>"


def sizes(tree):
    """What is too long is split by idea."""
    for path, text in code(tree):
        kind = ".cc" if path.endswith("-inl.h") else os.path.splitext(path)[1]  # -inl.h: Highway's sources
        lines, most = text.count("\n"), MOST_LINES[kind]
        if lines > most:
            yield f"{path}: {lines} lines, at most {most}"
        for name, line, length in cpp.functions(text):
            if length > MOST_FUNCTION_LINES:
                yield f"{path}:{line}: {name} has {length} lines, at most {MOST_FUNCTION_LINES}"


def words(tree):
    """No promises without an address, no switched-off tests or code, no paths of one person's machine."""
    # In pieces, so that this file does not break its own rule.
    rules = [
        (r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))", "a promise names its issue: TO" + "DO(#12)"),
        (r"\bDIS" + r"ABLED_\w+|\bDIS" + r"ABLED\s+(?:TRUE|ON|1)\b", "a test that does not run is no test"),
        (r"^\s*#\s*if\s+0\b", "dead code is deleted; git keeps it"),
        (r"(?<![\w.$}/-])/(?:ho" + r"me/\w+|ro" + r"ot)/", "a path of one machine"),
    ]
    for path, text in sorted(tree.items()):
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, why in rules:
                if re.search(pattern, line):
                    yield f"{path}:{number}: {why}: {line.strip()}"


def headers(tree):
    """A header opens by saying what it is, and guards itself."""
    for path, text in code(tree):
        if path.endswith(".h"):
            if not text.startswith("//"):
                yield f"{path}:1: opens with a comment: what it is, its thread rule, shapes, units, errors"
            if "#pragma once" not in text and not path.endswith("-inl.h"):
                yield f"{path}: no #pragma once"


def listed(tree):
    """Sources are listed by hand in CMake: one that is not listed is dead."""
    listed_paths = set()
    for path, text in tree.items():
        if path.endswith("CMakeLists.txt"):
            for name in re.findall(r"[\w./${}-]+\.(?:cc|cu)\b", text):
                absolute = re.sub(r"^\$\{\w+_SOURCE_DIR\}/", "/", name)
                listed_paths.add(os.path.normpath(os.path.join("/", os.path.dirname(path), absolute)).lstrip("/"))
    for path, _ in code(tree):
        if path.endswith((".cc", ".cu")) and path not in listed_paths:
            yield f"{path}: no CMakeLists.txt lists it"


def layout(tree):
    """clang-format changes nothing."""
    tool = shutil.which("clang-format")
    if tool is None:
        print("clang-format is not installed: apt-get install clang-format")
        sys.exit(77)
    files = [path for path, _ in code(tree)]
    if not files:
        return
    done = subprocess.run([tool, "--dry-run", "-Werror", "--ferror-limit=1", *files], capture_output=True, text=True)
    for path in sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", done.stderr, re.M))):
        yield f"{path}: run clang-format -i on it"
    if done.returncode != 0 and "error:" not in done.stderr:
        yield f"clang-format failed: {done.stderr.strip()}"


RULES = {rule.__name__: rule for rule in (arrows, sizes, words, headers, listed, layout)}


def read_tree(root):
    """All files of the rooms and the top level, build folders aside."""
    tree = {}
    for room in ROOMS:
        for path in (root / room).rglob("*"):
            if path.is_file() and path.suffix in EXTENSIONS and "__pycache__" not in path.parts:
                tree[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    for name in TOP:
        if (root / name).is_file():
            tree[name] = (root / name).read_text(encoding="utf-8", errors="replace")
    return tree


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in RULES:
        sys.exit(f"Usage: house.py {'|'.join(RULES)} [ROOT]")
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".").resolve()
    os.chdir(root)
    tree = read_tree(root)
    if not code(tree):
        sys.exit(f"no source files under {root}: is it the root of the tree?")
    breaches = list(RULES[sys.argv[1]](tree))
    print("\n".join(breaches) or f"{len(tree)} files keep the rule")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
