"""Where the answer stands in a response."""

import re


def last_boxed(text: str) -> str | None:
    """What is inside the last `\\boxed{}` or `\\fbox{}` of a text; none without one.

    Braces are balanced, so `\\boxed{\\frac{1}{2}}` is read whole; a last box that never closes is no answer.
    """
    starts = list(re.finditer(r"\\(?:boxed|fbox)\s*", text))
    content = _group(text, starts[-1].end()) if starts else None
    return None if content is None else content.strip()


def _group(text: str, start: int) -> str | None:
    """The inside of the `{...}` at `start`, or the single token there."""
    if not text.startswith("{", start):
        token = re.compile(r"[0-9.,]*[0-9]|[A-Za-z]").match(text, start)
        return token[0] if token else None
    depth, index = 0, start
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1  # an escaped brace is a character
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return text[start + 1 : index]
        index += 1
    return None


def after_hashes(text: str) -> str | None:
    """The rest of the line after the last `####`, as GSM8K marks answers; none without one."""
    found = re.findall(r"####[ \t]*([^\n#]*)", text)
    return found[-1].strip() if found else None
