"""One spelling for what can be written in many ways: LaTeX, Unicode and plain text → a small common notation.

Layout is dropped, digits are grouped no more, and words are put in double quotes (`12\\text{ cm}` → `12 "cm"`), so that
what is left outside quotes is mathematics. Between values, `;` stands for "or". Nothing is calculated here.
"""

import re
import unicodedata
from itertools import accumulate

from unmask.tasks.equivalence.notations import (
    CURRENCY_SIGNS,
    NUMBER_WORDS,
    REWRITES,
    ROW_END,
    SYMBOLS,
    raised_and_lowered,
)
from unmask.tasks.equivalence.units import UNIT_NAMES

LONGEST = 2_000
"""Characters in an answer; a longer one is not read."""
DEEPEST = 100
"""Brackets inside each other."""


class Unreadable(Exception):
    """The text is not in a notation that this package reads."""


class TooLarge(Unreadable):
    """The value cannot be worked out in reasonable time."""


FUNCTIONS = (
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "lg",
    "exp", "sqrt", "abs", "floor", "ceil",
)  # fmt: skip
"""Longer names before those they begin with."""
CONSTANTS = ("pi", "infty", "infinity", "inf", "oo")

_TEXT = r"\\(text(?:bf|it|rm|sf|normal)?|[mh]box|math(?:rm|bf|it|sf)|operatorname|rm|bf)\s*\{([^{}]*)\}"
_JOINED = r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
_SAID_BEFORE = (
    r'^\s*"\s*(?:the\s*)?(?:final\s*|correct\s*)?(?:answer|result|solution|option|choice)\b(?:\s*(?:is|are)\b)?\s*'
    r'(?:"\s*:?(?=\s*\S)|:?([^"]*[^"\s][^"]*)")'
)
"""What an answer may begin with and still be no more than the answer; the rest of the words, if there are any."""
_LABEL = r'^\s*"(?![^"]*\bnot\b)[^"]*(?:\b(?:is|about|approximately)"|\w\w\s*:"|\w\w"\s*:)(?=\s*[^\s"])'
"""Words that lead up to a value: `Area:`, `the area is`."""


def spell(text: str) -> str:
    """The answer in the common notation.

    Raises:
        TooLarge: it is longer than `LONGEST`, or nested more than `DEEPEST`.
    """
    if len(text) > LONGEST:
        raise TooLarge("too long")
    if max(accumulate((character in "({[") - (character in ")}]") for character in text), default=0) > DEEPEST:
        raise TooLarge("nested too deeply")
    text = _rewrite(_ungroup_digits(_without_typography(text)))
    text = _quote_words(text)
    text = re.sub(r"(?<![\d.}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", r"(\1+\2/\3)", text)  # a mixed number
    text = re.sub(r"[,;]\s*(?:[,;]\s*)+", lambda found: ";" if ";" in found[0] else ",", text)
    while wrapped := re.fullmatch(r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\s*", text):
        text = wrapped[1]
    text = re.sub(r"\s+", " ", text).strip(" ,;:").lstrip("= ")
    return text if text.endswith("..") else text.rstrip(" .,;:")


def _without_typography(text: str) -> str:
    """ASCII and LaTeX for what Unicode has signs for, and no signs of Markdown or of LaTeX's mathematics mode."""
    text = re.sub(r"[\u200b-\u200f\u2060\ufeff\u00ad]", "", text)
    text = re.sub(r"^\s*(\*\*|`+)(.*?)\1\s*$", r"\2", text)
    text = re.sub(r"(?:\\\\\s*)+$", "", text)
    text = re.sub(r"\\\\(?:\[[^\]]*\])?", ROW_END, text)
    text = re.sub(r"√\s*(\d+(?:\.\d+)?)", r"\\sqrt{\1}", raised_and_lowered(text))
    text = "".join(SYMBOLS.get(character, character) for character in text)
    text = unicodedata.normalize("NFKC", text).replace('"', " ")
    text = re.sub(r"\\(?:left|right)\s*\.", "", re.sub(r"^\s*\$+((?:[^$]|\\\$)*[^\\$])\$+\s*$", r"\1", text))
    text = re.sub(r"(?:US\s*)?\\\$|(?<!\\)\$(?=\s*[\d.])|(?<=\d)\s*\$$", "＄", text).replace("$", "")
    text = re.sub(r"\\(?:pounds|textsterling)(?![A-Za-z])", "£", re.sub(r"\\(?:text)?euro(?![A-Za-z])", "€", text))
    return text.replace("\\%", "%").replace("\\#", "")


def _ungroup_digits(text: str) -> str:
    """Digits without their thousands separators; a bare comma is one only where it cannot separate two values."""
    text = re.sub(r"(?<=\d)(?:\s*(?:\{\s*,\s*\}|,\s*\\!|\\[,;: !]|\{\s*\\,\s*\}|~)\s*|')(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?![\d./])", lambda found: found[0].replace(" ", ""), text)

    def ungroup(found: re.Match[str]) -> str:
        before = text[: found.start()].replace("\\{", "(").replace("\\}", ")")
        depth = sum(before.count(opened) for opened in "([") - sum(before.count(closed) for closed in ")]")
        is_number = depth <= 0 or any(group.startswith("0") for group in found[0].split(",")[1:])
        return found[0].replace(",", "") if is_number else found[0]

    return re.sub(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,\S|\.\d*,)", ungroup, text)


def _rewrite(text: str) -> str:
    text = re.sub(r"\\(?:[,;:!> ]|quad|qquad)|~|\\(?=\s*$)", " ", text)
    for pattern, replacement in REWRITES:
        text = re.sub(pattern, replacement, text)
    return text


def _quote_words(text: str) -> str:
    """The text with everything that is said in words in double quotes, and without what leads up to the answer."""
    text = re.sub(r"(\d)\s*''", r'\1 "in" ', text)
    text = re.sub(r"(\d)\s*'", r'\1 "ft" ', text)
    # units as physicists write them: \mathrm{m\,s^{-1}}, \mathrm{\frac{m}{s}}
    text = re.sub(r"(\\math(?:rm|bf|sf|it)\s*\{[^{}]*\^)\s*\{\s*(-?\d)\s*\}", r"\1\2", text)
    text = re.sub(r"(\\math(?:rm|bf|sf|it)\s*\{)\s*\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"\1\2/\3", text)
    while (shorter := re.sub(_TEXT, _words, text)) != text:
        text = shorter
    text = re.sub(r'\^\s*(?:\{\s*"(?:st|nd|rd|th)"\s*\}|"(?:st|nd|rd|th)")', " ", text)
    text = re.sub(r'\\frac\s*\{\s*"([^"]*)"\s*\}\s*\{\s*"([^"]*)"\s*\}', r'"\1/\2"', text)
    text = re.sub(rf"(?<=[\d\s}}),])\s*{_JOINED}", _comma, text)
    text = re.sub(r'°\s*"?\s*([CF])(?![A-Za-z])\s*"?', r'"°\1"', text)
    text = re.sub(r'"(sq|square|cu|cubic)"\s*([A-Za-z])(?![A-Za-z])', r'"\1 \2"', _quote_bare_words(text))
    text = re.sub(r'\(\s*("[^"]*")\s*\)', r"\1", re.sub(r'"\s*"', " ", text))
    text = re.sub(r'"(?:in )?base"\s*(\d+)|"\(?(?:in )?base\s*(\w+)\)?"', r"_{\1\2}", text)
    text = re.sub(r'"(?:positive\s*)?infinity"', r"\\infty", text, flags=re.IGNORECASE)
    text = re.sub(r'"(?:negative|minus)\s*"', "-", text, flags=re.IGNORECASE)
    text = re.sub(_SAID_BEFORE, _said, text, flags=re.IGNORECASE)
    text = re.sub(_LABEL, "", text)
    return "".join(f'"{CURRENCY_SIGNS[sign]}"' if sign in CURRENCY_SIGNS else sign for sign in text)


def _said(found: re.Match[str]) -> str:
    return _quoted(found[1] or "")


def _comma(found: re.Match[str]) -> str:
    return ";" if "o" in found[0] else ","


def _words(found: re.Match[str]) -> str:
    command = found[1]
    content = re.sub(r"^(?:so|thus|hence|therefore)\b,?\s*", "", found[2].strip(), flags=re.IGNORECASE)
    is_text = command in ("text", "textnormal", "mbox", "hbox")
    is_unit = content.lower() in UNIT_NAMES and re.search(r"[\w)}]\s*$", found.string[: found.start()])
    if not re.search("[A-Za-z]", content):
        return f" {content} "
    if not is_text and not is_unit and (len(content) == 1 or content in FUNCTIONS):
        return f" {content} "
    parts = re.split(rf"(,|{_JOINED})", content)
    return " " + "".join(_quoted(part) if index % 2 == 0 else _COMMAS[part] for index, part in enumerate(parts)) + " "


_COMMAS = {",": ",", "and": ",", "or": ";"}


def _quoted(content: str) -> str:
    """A piece of text in quotes, a number that it begins with in front of them."""
    number = re.match(r"\s*([-+]?\d[\d.]*(?=\s*[A-Za-z])|)", content)
    assert number
    words = content[number.end() :].strip()
    return number[1] + (f' "{words}"' if re.search("[A-Za-z]", words) else words)


def _quote_bare_words(text: str) -> str:
    """Words that stand in no `\\text{}`: names of units, long words, and short ones in a row with long ones."""

    def is_word(word: str) -> bool:
        is_known = word.lower() in UNIT_NAMES or word.lower() in NUMBER_WORDS or word in ("sq", "cu")
        return (is_known or len(word) > 3) and word not in (*FUNCTIONS, *CONSTANTS)

    def quote(found: re.Match[str]) -> str:
        words = found[0].split()
        stands_alone = found.string[: found.start()][-1:] in ("", " ")
        if stands_alone and len(words) > 1 and any(len(word) > 3 and is_word(word) for word in words):
            return f' "{found[0]}" '
        return re.sub(r"[A-Za-z]{2,}", lambda word: f' "{word[0]}" ' if is_word(word[0]) else word[0], found[0])

    parts = text.split('"')
    run = r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?: +(?:[A-Za-z]{2,}|a))*(?![A-Za-z}])"
    time = r"(:\d\d)\s*([apAP])\.?\s*[mM]\.?(?![A-Za-z])"
    parts[::2] = [re.sub(run, quote, re.sub(time, r'\1 "\2m"', part)) for part in parts[::2]]
    return '"'.join(parts)


def words_key(text: str) -> str:
    """Letters and digits of a text alone, for comparing words whatever their case, spaces and punctuation."""
    return re.sub(r"[\W_]", "", text.casefold())
