"""Just enough C++ to find functions and their lengths: braces, and what stands before them."""
import re

_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
_NOT_A_FUNCTION = re.compile(r"\s*(?:namespace|class|struct|enum|union|extern\s*\Z|requires\b|concept\b)")
_NAME = re.compile(r"((?:[\w~]+::)*(?:operator\s*\S+|[~\w]+))\s*\(")


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def functions(text):
    """(name, line, lines from the opening to the closing brace) of every function outside other functions."""
    text = _DIRECTIVE.sub(_blank, _SKIPPED.sub(_blank, text))
    depth_in_function = 0
    found = None  # of the function we are in
    head = 0  # where what stands before the next brace begins
    for match in re.finditer(r"[{};]", text):
        at, mark = match.start(), match[0]
        if found is not None:
            depth_in_function += {"{": 1, "}": -1, ";": 0}[mark]
            if depth_in_function == 0:
                name, line = found
                yield name, line, text.count("\n", 0, at) + 2 - line
                found = None
        elif mark == "{":
            before = re.sub(r"^\s*template\s*<[^{}]*?>\s*(?=\w)", "", text[head:at])
            name = _NAME.search(before)
            if name and not _NOT_A_FUNCTION.match(before):
                found = (name[1], text.count("\n", 0, at) + 1)
                depth_in_function = 1
        if found is None:
            head = at + 1
