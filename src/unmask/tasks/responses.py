"""Where the answer stands in a response."""

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_ONLY_BOX = re.compile(rf"\s*{_BOX.pattern}")
_TOKEN = re.compile(r"[0-9.,]*[0-9]|[A-Za-z]")


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
