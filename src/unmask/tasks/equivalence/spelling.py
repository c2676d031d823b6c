"""One spelling for what can be written in many ways: LaTeX, Unicode and plain text → a small common notation.

Layout is dropped, digits are grouped no more, and words are put in double quotes (`12\\text{ cm}` → `12 "cm"`), so that
what is left outside quotes is mathematics. Nothing is calculated here.
"""

import re
import unicodedata
from collections.abc import Callable

LONGEST = 2_000
"""Characters in an answer; a longer one is not read."""
ROW_END = "⏎"
"""Stands for the two backslashes that end a matrix row."""


class Unreadable(Exception):
    """The text is not in a notation that this package reads."""


class TooLarge(Unreadable):
    """The value cannot be worked out in reasonable time."""


UNITS = {
    "%": "percent percents",
    "°": "degree degrees deg",
    "$": "dollar dollars usd",
    "cent": "cents ¢",
    "mm": "millimeter millimeters millimetre millimetres",
    "cm": "centimeter centimeters centimetre centimetres",
    "m": "meter meters metre metres",
    "km": "kilometer kilometers kilometre kilometres kms",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards yds",
    "mi": "mile miles",
    "mg": "milligram milligrams",
    "g": "gram grams",
    "kg": "kilogram kilograms kgs",
    "lb": "pound pounds lbs",
    "oz": "ounce ounces",
    "ml": "milliliter milliliters millilitre millilitres",
    "l": "liter liters litre litres",
    "s": "second seconds sec secs",
    "min": "minute minutes mins",
    "h": "hour hours hr hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years yr yrs",
    "mph": "",
    "": "unit units",
}
"""Short name of a unit → its other names."""

UNIT_NAMES = {other: name for name, others in UNITS.items() for other in (name, *others.split()) if other}

FUNCTIONS = (
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "lg",
    "exp", "sqrt", "abs", "floor", "ceil",
)  # fmt: skip
"""Longer names before those they begin with."""
CONSTANTS = ("pi", "infty", "infinity", "inf", "oo")

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "÷": "/",
    "∕": "/", "⁄": "/", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "°": r"\degree ", "º": r"\degree ",
    "∪": r"\cup ", "∈": r"\in ", "ℝ": r"\reals ", "⟨": r"\langle ", "⟩": r"\rangle ", "θ": r"\theta ", "“": '"',
    "α": r"\alpha ", "β": r"\beta ", "”": '"', "’": "'",
    **{digit: f"^{index}" for index, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{digit: f"_{index}" for index, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}",
}  # fmt: skip

_REWRITES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\\[()\[\]]|\\(?:text)?color\s*\{[^{}]*\}|\\(?:rm|bf|it|sf|tt)(?![A-Za-z])(?!\s*\{)", ""),
    (r"\\(?:left|right)\s*\.", ""),
    (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
    (r"\\[dtcs]frac(?![A-Za-z])", r"\\frac"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\\(?:leq?|leqslant)(?![A-Za-z])|<=|=<", "≤"),
    (r"\\(?:geq?|geqslant)(?![A-Za-z])|>=", "≥"),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:neq?|not\s*=)(?![A-Za-z])|!=|\\not\s*=", "≠"),
    (r"\\(?:approx|simeq|sim|doteq)(?![A-Za-z])", "≈"),
    (r"\\equiv(?![A-Za-z])", "="),
    (r"\{([^{}]*)\\choose([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"(?:m\s*)?\\(?:angle|triangle)(?![A-Za-z])", ""),
    (r"\\(?:emptyset|varnothing)(?![A-Za-z])|∅|\\\{\s*\\\}", ' "emptyset" '),
    (r"(\d\.\d+)[eE]([-+]?\d+)(?![\d.])|(\d)E([-+]?\d+)(?![\d.])", r"\1\3*10^{\2\4}"),
    (r"\\cup(?![A-Za-z])", "∪"),
    (r"\\in(?![A-Za-z])", "∈"),
    (r"\\pm(?![A-Za-z])|\+/-|\+-", "±"),
    (r"\\mp(?![A-Za-z])", "∓"),
    (r"\\(?:times|cdot|ast)(?![A-Za-z])", "*"),
    (r"\\div(?![A-Za-z])", "/"),
    (r"\\colon(?![A-Za-z])", ":"),
    (r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\(?:degree|circ)(?![A-Za-z])", "°"),
    (r"\\[lr]?vert(?![A-Za-z])|\\mid(?![A-Za-z])", "|"),
    (r"\\(?:l|r)brace(?![A-Za-z])", lambda found: r"\{" if "l" in found[0][:2] else r"\}"),
    (r"\\mathbb\s*\{?\s*R\s*\}?|\\R(?![A-Za-z])", r"\\reals "),
    (r"\\(?:mathord|mathop|boldsymbol|ensuremath|overline\s*(?=\{[A-Z]+\}))", ""),
]  # fmt: skip

_TEXT = r"\\(text(?:bf|it|rm|sf|normal)?|[mh]box|math(?:rm|bf|it|sf)|operatorname|rm|bf)\s*\{([^{}]*)\}"


def spell(text: str) -> str:
    """The answer in the common notation.

    Raises:
        TooLarge: it is longer than `LONGEST`.
    """
    if len(text) > LONGEST:
        raise TooLarge("too long")
    text = re.sub(r"\\\\(?:\[[^\]]*\])?", ROW_END, text)
    text = "".join(_SYMBOLS.get(character, character) for character in text)
    text = unicodedata.normalize("NFKC", text).replace('"', " ")
    text = (
        re.sub(r"\\\$|(?<!\\)\$(?=\s*[\d.])|(?<=\d)\s*\$$", "＄", text)
        .replace("$", "")
        .replace("\\%", "%")
        .replace("\\#", "")
    )
    text = _ungroup_digits(text)
    text = re.sub(r"\\(?:[,;:!> ]|quad|qquad)|~|\\(?=\s*$)", " ", text)
    for pattern, replacement in _REWRITES:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"(\d)\s*''", r'\1 "in" ', text)
    text = re.sub(r"(\d)\s*'", r'\1 "ft" ', text)
    while (shorter := re.sub(_TEXT, _words, text)) != text:
        text = shorter
    text = re.sub(r'\^\s*\{?\s*"(?:st|nd|rd|th)"\s*\}?', " ", text)
    text = re.sub(r'\\frac\s*\{\s*"([^"]*)"\s*\}\s*\{\s*"([^"]*)"\s*\}', r'"\1/\2"', text)
    text = re.sub(r"(?<=[\d\s}),])\s*(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])", ",", text)
    text = _quote_bare_words(text).replace("＄", '"$"')
    text = re.sub(r"(?<![\d.}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", r"(\1+\2/\3)", text)  # a mixed number
    text = re.sub(r'"\s*"', " ", re.sub(r",\s*,", ",", text))
    text = re.sub(r'^\s*"[^"]*(?:\b(?:is|about|approximately)|:)"(?=\s*[^\s"])', "", text)  # The answer is
    text = re.sub(r"\s+", " ", text).strip(" ,;:")
    return text if text.endswith("..") else text.rstrip(" .,;:")


def _ungroup_digits(text: str) -> str:
    """Digits without their thousands separators; a bare comma is one only where it cannot separate two values."""
    text = re.sub(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\s*\\!|\\[,;: !]|\{\s*\\,\s*\})\s*(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?![\d./])", lambda found: found[0].replace(" ", ""), text)

    def ungroup(found: re.Match[str]) -> str:
        before = text[: found.start()].replace("\\{", "(").replace("\\}", ")")
        depth = sum(before.count(opened) for opened in "([") - sum(before.count(closed) for closed in ")]")
        is_number = depth <= 0 or any(group.startswith("0") for group in found[0].split(",")[1:])
        return found[0].replace(",", "") if is_number else found[0]

    return re.sub(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,]|\.\d*,)", ungroup, text)


def _words(found: re.Match[str]) -> str:
    command, content = found[1], found[2].strip()
    is_symbol = command not in ("text", "textnormal", "mbox", "hbox") and (len(content) == 1 or content in FUNCTIONS)
    if is_symbol or not re.search("[A-Za-z]", content):
        return f" {content} "
    parts = [part.strip() for part in re.split(r",|(?<![A-Za-z])(?:and|or)(?![A-Za-z])", content)]
    return " " + ",".join(f'"{part}"' if re.search(r"[A-Za-z]", part) else part for part in parts) + " "


def _quote_bare_words(text: str) -> str:
    def quote(found: re.Match[str]) -> str:
        word = found[0]
        is_word = word.lower() in UNIT_NAMES or len(word) > 3
        return f' "{word}" ' if is_word and word not in (*FUNCTIONS, *CONSTANTS) else word

    parts = text.split('"')
    parts[::2] = [re.sub(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?![A-Za-z}])", quote, part) for part in parts[::2]]
    return '"'.join(parts)


def words_key(text: str) -> str:
    """Letters and digits of a text alone, for comparing words whatever their case, spaces and punctuation."""
    return re.sub(r"[^a-z0-9]", "", text.casefold())


def unit_key(text: str) -> str:
    """One name for a unit: `square centimeters`, `cm^2` and `sq cm` are `cm^2`; `units` is none at all."""
    text = re.sub(r'["{}*]', " ", text.lower().replace(".", ""))
    text = re.sub(r"\bper\b", "/", text)
    power = re.search(r"\^\s*(\d)", text) or re.search(r"\b(square|sq|cubic|cu)\b", text)
    words = re.sub(r"\^\s*\d|\b(?:square|sq|squared|cubic|cu|cubed|of|the|about|approximately)\b", " ", text)
    names = [UNIT_NAMES.get(word, word) for word in re.findall(r"[^\s/]+|/", words)]
    name = " ".join(name for name in names if name)
    if not power or not name:
        return name
    return f"{name}^{ {'square': '2', 'sq': '2', 'cubic': '3', 'cu': '3'}.get(power[1], power[1]) }"
