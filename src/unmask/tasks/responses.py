"""Where the answer stands in a response."""

import io
import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_ONLY_BOX = re.compile(rf"\s*{_BOX.pattern}")
_TOKEN = re.compile(r"[0-9.,]*[0-9]|[A-Za-z]")
OPENING = re.compile(r"(?P<before>[^`~]*)(?P<fence>`{3,}|~{3,})[ {.]*(?P<language>[\w+-]*)")
PYTHON = re.compile(r"(?:i?python|py)[\d.]*", re.IGNORECASE)


def last_boxed(text: str) -> str | None:
    """What is inside the last `\\boxed{}` or `\\fbox{}` of a text; none without one.

    Braces are balanced, so `\\boxed{\\frac{1}{2}}` is read whole; a last box that never closes is no answer. Of boxes
    inside each other the outermost counts, with all that is in it.
    """
    closing = _closing_braces(text)
    inside: tuple[int, int] | None = None
    for box in _BOX.finditer(text):
        if inside and box.start() < inside[1]:
            continue
        inside, token = None, _TOKEN.match(text, box.end())
        if box.end() in closing:
            inside = box.end() + 1, closing[box.end()]
        elif token:
            inside = token.span()
    if inside is None:
        return None
    start, end = inside
    # a box that holds nothing but a box
    while inner := _ONLY_BOX.match(text, start, end):
        closed = closing.get(inner.end(), end)
        if closed >= end or text[closed + 1 : end].strip():
            break
        start, end = inner.end() + 1, closed
    return _BOX.sub(" ", text[start:end]).strip()


def _closing_braces(text: str) -> dict[int, int]:
    """Where each brace that opens is closed; an escaped brace is a character."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for brace in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            closing[opened.pop()] = brace.start()
    return closing


def last_tagged(text: str) -> str | None:
    """What is inside the last `<answer></answer>` of a text; none without one, or where the last never closes."""
    _, opened, rest = text.rpartition("<answer>")
    content, closed, _ = rest.partition("</answer>")
    return content.strip() if opened and closed else None


def after_hashes(text: str) -> str | None:
    """The rest of the line after the last `####`, as GSM8K marks answers, up to any tag; none without one."""
    found = re.findall(r"####+:?([^\n#<]*)", re.sub(r"<<[^<>\n]*>>", "", text))
    return found[-1].strip() if found else None


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language (`python` for all its names) and text of each fenced block, the last also where it is not closed.

    A fence stands in a line of its own; but an opening one that names Python may follow other text, a closing one the
    last line of the block, and text may follow a closing one. A fence further in than its opening belongs to a
    docstring, and closes a block only where nothing else does.
    """
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in io.StringIO(text.replace("\ufeff", ""), newline=None):
        if opening is None:
            opening, lines = _opening(line), []
            continue
        fence, bare = opening["fence"], line.strip()
        if bare.startswith(fence) and _inset(line) < _inset(opening["before"]) + 4:
            another = _opening(line)
            if another and PYTHON.fullmatch(another["language"]):
                lines = _unclosed(fence, lines)
            else:
                another = None
            blocks.append(_block(opening, lines))
            opening, lines = another, []
        elif bare.endswith(fence) and bare.count(fence) == 1 and bare != fence:
            blocks.append(_block(opening, [*lines, line.rstrip().removesuffix(fence) + "\n"]))
            opening = None
        else:
            lines.append(line)
    if opening:
        blocks.append(_block(opening, _unclosed(opening["fence"], lines)))
    return blocks


def _opening(line: str) -> re.Match[str] | None:
    """The fence in a line that begins a block."""
    found = OPENING.match(line)
    if found is None or "`" in line[found.end() :]:  # code in a line of text
        return None
    return found if not found["before"].strip() or PYTHON.fullmatch(found["language"]) else None


def _unclosed(fence: str, lines: list[str]) -> list[str]:
    """Lines of a block that has no closing fence where one should be. Those of docstrings come in pairs."""
    inner = [number for number, line in enumerate(lines) if line.strip().startswith(fence)]
    return lines[: inner[-1]] if len(inner) % 2 else lines


def _block(opening: re.Match[str], lines: list[str]) -> tuple[str, str]:
    """Language and text, without what the fence itself is set in by."""
    inset = _inset(opening["before"]) if not opening["before"].strip() else 0
    language = "python" if PYTHON.fullmatch(opening["language"]) else opening["language"].lower()
    return language, "".join(line[min(inset, _inset(line)) :] for line in lines)


def _inset(line: str) -> int:
    """White space before the text of a line."""
    return len(line) - len(line.lstrip(" \t"))
