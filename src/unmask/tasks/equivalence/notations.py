"""Tables for `spelling.py`: symbols and LaTeX commands, and what each is written as, in the order it is done."""

import re
import unicodedata
from collections.abc import Callable

ROW_END = "⏎"
"""Stands for the two backslashes that end a matrix row."""
CURRENCY_SIGNS = {"＄": "$", "€": "€", "£": "£", "₹": "₹", "¥": "¥"}
"""Sign beside a number → name of the unit. A dollar sign that money has and mathematics has not is made wide first."""

_TO_NINETEEN = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_TO_NINETY_NINE = _TO_NINETEEN + [tens + ones for tens in _TENS for ones in ["", *_TO_NINETEEN[1:10]]]
NUMBER_WORDS = {
    sign_word + word: f"{sign}{number}"
    for number, word in enumerate(_TO_NINETY_NINE)
    for sign_word, sign in (("", ""), ("negative", "-"), ("minus", "-"))
}
"""Words, without spaces and hyphens → the number."""

SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "﹣": "-", "×": r"\times ", "✕": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "•": r"\cdot ", "∗": "*", "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "√": r"\sqrt ", "∛": r"\sqrt[3]",
    "∞": r"\infty ", "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "±": r"\pm ", "∓": r"\mp ", "°": r"\degree ", "º": r"\degree ", "∪": r"\cup ", "∖": r"\setminus ", "∈": r"\in ",
    "ℝ": r"\reals ", "⇒": r"\implies ", "∴": r"\therefore ", "⟨": r"\langle ", "⟩": r"\rangle ", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "“": '"', "”": '"', "’": "'", "¢": r"\text{cent}",
    **{
        sign: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", sign).split("⁄"))
        for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
    },
}  # fmt: skip

_INSIDE = r"((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)"
"""What `{...}` holds, with two more levels inside."""
_COMMA_INSIDE = r"([^\[\](),\s][^\[\](),]*,[^\[\](),]*[^\[\](),\s])\s*"


def _repeating(found: re.Match[str]) -> str:
    """0.1666... with its period; left alone where the last digits do not repeat what stands before them."""
    digits = found[2]
    for length in range(1, min(len(digits) // 2, 30) + 1):
        period = digits[-length:]
        if digits.endswith(2 * period):
            while digits.endswith(2 * period):
                digits = digits[:-length]
            return rf"{found[1]}{digits[:-length]}\overline{{{period}}}"
    return found[0]


def _literal(found: re.Match[str]) -> str:
    """0x1f, as programs write 31; it is no product of 0, x, 1 and f."""
    try:
        return str(int(found[0], 0))
    except ValueError:
        return found[0]


REWRITES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    # layout
    (r"\\[()\[\]]|\\(?:text)?color\s*\{[^{}]*\}|\\(?:rm|bf|it|sf|tt)(?![A-Za-z])(?!\s*\{)", ""),
    (r"\\(?:left|middle|right|[bB]igg?[lrm]?|(?:display|text|script)style|(?:no)?limits)(?![A-Za-z])", ""),
    (r"\\(?:nonumber|notag|tiny|small|normalsize|[lL]arge|LARGE|[hH]uge)(?![A-Za-z])", ""),
    (r"\\(?:[hv]?phantom|[hv]space\*?|tag\*?|label)\s*\{[^{}]*\}", ""),
    (r"\\(?:mathord|mathop|mathbin|boldsymbol|ensuremath|underline|overline\s*(?=\{[A-Z]+\}))(?![A-Za-z])", ""),
    (r"\\(?:text|mbox|mathrm)\s*\{\s*\}", ""),
    (r"(\\[A-Za-z]+\s*)?(?<!\\)\{\s*([-+*/=]?)\s*\}", lambda found: found[0] if found[1] else found[2]),
    (
        r"(?s)\\begin\s*\{(aligned|align\*?|gathered|split|equation\*?)\}(.*?)\\end\s*\{\1\}",
        lambda found: found[2].replace("&", "").replace(ROW_END, ","),
    ),
    (r"\\cr(?![A-Za-z])", ROW_END),
    # brackets, also those of open intervals: ]2, 5[
    (r"\\[lr]brace(?![A-Za-z])", lambda found: r"\{" if found[0][1] == "l" else r"\}"),
    (r"\\[lr]brack(?![A-Za-z])", lambda found: "[" if found[0][1] == "l" else "]"),
    (r"\\[lr]?vert(?![A-Za-z])|\\mid(?![A-Za-z])", "|"),
    (rf"\]\s*{_COMMA_INSIDE}([\[\])])", lambda found: f"({found[1]}{found[2].replace('[', ')')}"),
    (rf"([(\[])\s*{_COMMA_INSIDE}\[", r"\1\2)"),
    # fractions, roots and decimals
    (r"\\(?:[dtcs]|nice)frac(?![A-Za-z])", r"\\frac"),
    (rf"\{{{_INSIDE}\\over(?![A-Za-z]){_INSIDE}\}}", r"\\frac{\1}{\2}"),
    (rf"^{_INSIDE}\\over(?![A-Za-z]){_INSIDE}$", r"\\frac{\1}{\2}"),
    (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\{([^{}]*)\\choose([^{}]*)\}", r"\\binom{\1}{\2}"),
    (r"\\dot\s*(?:\{(\d)\}|(\d))(?:(\d*)\\dot\s*(?:\{(\d)\}|(\d)))?", r"\\overline{\1\2\3\4\5}"),
    (r"(\d\.)\((\d+)\)", r"\1\\overline{\2}"),
    (r"(\d\.)(\d+)\s*(?:\.\.\.|\\[lc]?dots(?![A-Za-z]))", _repeating),
    (r"(?<![\w.])0[xXbBoO][0-9A-Fa-f]+(?!\w)", _literal),
    (r"(\d\.\d+)[eE]([-+]?\d+)(?![\d.])|(\d)E([-+]?\d+)(?![\d.])", r"\1\3*10^{\2\4}"),
    (r"(?<![\w.}])(\d+)e(\d+)(?![\w.])", r"\1*10^{\2}"),
    # relations and operations
    (r"\\therefore(?![A-Za-z])|(?s:^.*)\\(?:implies|Longrightarrow|Rightarrow)(?![A-Za-z])(?=.*\w)", ""),
    (r"\\(?:leq?|leqslant)(?![A-Za-z])|<=|=<", "≤"),
    (r"\\(?:geq?|geqslant)(?![A-Za-z])|>=", "≥"),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:neq?|not\s*=)(?![A-Za-z])|!=|\\not\s*=", "≠"),
    (r"\\(?:approx|simeq|doteq)(?![A-Za-z])", "≈"),
    (r"\\(?:equiv|coloneqq)(?![A-Za-z])|:=|==", "="),
    (r"\\pm(?![A-Za-z])|\+/-|\+-", "±"),
    (r"\\mp(?![A-Za-z])", "∓"),
    (r"\\(?:times|cdot|ast)(?![A-Za-z])", "*"),
    (r"\\div(?![A-Za-z])", "/"),
    (r"\\colon(?![A-Za-z])", ":"),
    (r"\^\s*\{\s*\\(?:circ|degree)\s*\}|(?:\^\s*)?\\(?:degree|circ)(?![A-Za-z])|\^\s*o(?![A-Za-z])", "°"),
    (r"(?:m\s*)?\\(?:angle|triangle)(?![A-Za-z])", ""),
    # sets
    (r"\\(?:emptyset|varnothing)(?![A-Za-z])|∅|\\\{\s*\\\}", ' "emptyset" '),
    (r"\\cup(?![A-Za-z])", "∪"),
    (r"\\in(?![A-Za-z])", "∈"),
    (r"\\(?:(?:small)?setminus|backslash)(?![A-Za-z])", "∖"),
    (r"(?<=[)\]}])\s*U\s*(?=[(\[\\])", "∪"),
    (r"\\(?:mathbb|Bbb)\s*(?:\{\s*R\s*\}|R)|\\R(?![A-Za-z])", r"\\reals "),
    (r"\\reals\s*-\s*(?=\\\{)", r"\\reals ∖"),
    (r"\\reals\s*(?:[\^_]\s*\+|_\s*\{\s*>\s*0\s*\})", r"(0,\\infty)"),
    (r"\\land(?![A-Za-z])|\\wedge(?![A-Za-z])|\\&", ","),
    (r"\\lor(?![A-Za-z])|\\vee(?![A-Za-z])", ";"),
]


def raised_and_lowered(text: str) -> str:
    """Superscripts and subscripts of Unicode as those of LaTeX, a run of them as one: x⁻¹⁰ is x^{-10}."""

    def plain(found: re.Match[str]) -> str:
        mark = "^" if found[1] else "_"
        digits = unicodedata.normalize("NFKC", found[0]).replace("−", "-")
        return f"{mark}{digits} " if len(digits) == 1 else f"{mark}{{{digits}}}"

    return re.sub("([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+)|[₀₁₂₃₄₅₆₇₈₉]+", plain, text)
