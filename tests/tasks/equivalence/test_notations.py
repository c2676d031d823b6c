"""Ways to write an answer, by family: what is the same and what only looks like it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.tasks import Verdict
from unmask.tasks.equivalence import compare
from unmask.tasks.equivalence.deciding import decide
from unmask.tasks.equivalence.spelling import TooLarge, spell

SAME = {
    "units": [
        (r"12\text{ m}^2", "12 m²"),
        (r"12\text{ m}^2", "12 m^2"),
        ("12", r"12\,\mathrm{m}"),
        (r"10\text{ cm}", r"\text{10 cm}"),
        (r"5\text{ m/s}", r"5\,\mathrm{m\,s^{-1}}"),
        (r"5\text{ m/s}", r"5\,\mathrm{\frac{m}{s}}"),
        (r"5\text{ m/s}^2", r"5\text{ meters per second squared}"),
        (r"60\text{ mph}", r"60\text{ miles per hour}"),
        ("100", r"100\,^\circ\mathrm{C}"),
        (r"30^\circ", r"\frac{\pi}{6}"),
        (r"30^\circ", r"{30^\circ}"),
        ("3", r"3 \text{ different red apples}"),
    ],
    "money and large numbers": [
        (r"\$0.50", r"50\text{ cents}"),
        (r"5.4 \text{ cents}", "5.4¢"),
        (r"2.5\text{ million}", "2500000"),
        (r"\$2.5\text{ million}", r"\$2{,}500{,}000"),
        ("24", r"2\text{ dozen}"),
        ("150", "€150"),
        ("150", r"\text{Rs. }150"),
        (r"\$5", r"US\$5"),
        (r"\$32,\!348", r"$\$32,\!348$"),
    ],
    "digits": [
        ("1080", "1~080"),
        ("1080", "1'080"),
        ("58,500", r"\left.58,500\right."),
        ("1080, 2050", "1,080, 2,050"),
        ("52_8", "$52_8$"),
        ("52_8", r"52\text{ (base 8)}"),
        ("x^{10}", "x¹⁰"),
        ("0.001", "10⁻³"),
        ("52_{16}", "52₁₆"),
        (r"\sqrt{13}", "√13"),
        (r"\sqrt[3]{2}", "∛2"),
        (r"\frac{16}{5}", "3⅕"),
        ("31", "0x1f"),
        ("21", r"\text{twenty-one}"),
        ("-5", r"\text{negative five}"),
    ],
    "fractions and decimals": [
        (r"\frac{3}{4}", r"{3 \over 4}"),
        (r"\frac{\sqrt{3}}{2}", r"\sqrt{3} \over 2"),
        (r"\frac13", "0.333..."),
        (r"\frac16", r"0.1666\ldots"),
        (r"\frac13", "0.(3)"),
        (r"\frac{4}{33}", r"0.\dot{1}\dot{2}"),
        (r"-\frac34", r"\text{negative }\frac34"),
    ],
    "equations": [
        ("18", "= 18"),
        ("18", r"\therefore x = 18"),
        ("5", r"x+2=7 \Rightarrow x=5"),
        ("18", "P(X=2) = 18"),
        ("10", r"\gcd(20,30)=10"),
        ("0", "a+b=0"),
        ("0", "f(0)=0"),
        (r"\frac13", r"P(A \cap B) = \frac13"),
    ],
    "intervals": [
        ("(2,5)", "]2,5["),
        (r"(-\infty,2)\cup(3,\infty)", r"]-\infty,2[\cup]3,\infty["),
        ("[2,5)", r"x \ge 2 \text{ and } x < 5"),
        ("[-3,3]", r"|x|\le 3"),
        (r"(-\infty,-1)\cup(1,\infty)", "|x|>1"),
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}\setminus\{2\}"),
        (r"(-\infty,1)\cup(1,2)\cup(2,\infty)", r"x\ne 2 \text{ and } x\ne 1"),
        (r"(0,\infty)", r"\mathbb{R}^+"),
        ("(-1,0) \\cup (0,1)", "(-1,0) U (0,1)"),
    ],
    "matrices": [
        (r"\begin{pmatrix}4\\8\end{pmatrix}", r"4\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\begin{pmatrix}-1\\-2\end{pmatrix}", r"-\begin{bmatrix}1\\2\end{bmatrix}"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\cr3&4\end{pmatrix}"),
        (r"\begin{pmatrix}-1\\2\end{pmatrix}", r"\begin{pmatrix}-1\\\phantom{-}2\end{pmatrix}"),
        ("12", r"\begin{array}{c}12\end{array}"),
        ("(2,3)", r"\begin{aligned}x&=2\\y&=3\end{aligned}"),
    ],
    "choices and words": [
        (r"\text{(C)}", r"\text{Option C}"),
        (r"\text{(C)}", r"\text{The answer is C}"),
        ("C", r"(\text{C})"),
        ("C", "[C]"),
        (r"\textbf{(B)}\ 12", "B"),
        (r"\textbf{(B)}\ 12", "12"),
        (r"\infty", r"\text{infinity}"),
        (r"6:30 \text{ p.m.}", "6:30 pm"),
        ("5", "The answer is 5."),
        ("5", "Total: 5"),
        ("5", r"\text{Therefore, the answer is } 5"),
    ],
    "layout": [
        ("12", r"12\\"),
        ("12", r"\hspace{2pt}12"),
        ("12", r"\underline{12}"),
        ("12", "**12**"),
        ("12", "12\u200b"),
        ("12", "{}12"),
        ("12", r"12 \tag{1}"),
        ("90", r"\color{red}{90^\circ}"),
    ],
}
"""Family → (the data set's answer, a right one)."""

DIFFERENT = {
    "units": [
        (r"5\text{ m/s}^2", r"5\text{ m}^2\text{/s}"),
        (r"30^\circ", r"30\text{ radians}"),
        (r"30^\circ", r"\frac{\pi}{3}"),
        (r"27^\circ\text{C}", r"27^\circ\text{F}"),
        (r"12\text{ cm}", "12x"),
        ("5", "5m"),
    ],
    "another number beside it": [
        ("5", r"5\text{ to }6"),
        ("5", r"5\sim 6"),
        ("5", r"5\text{ apples } 6"),
        ("5", r"5\text{ cm} \times 6\text{ cm}"),
        ("5", r"5\text{ or more}"),
        ("5", "at least 5"),
        ("18", "18 is not the answer"),
        ("18", r"18 \text{ is wrong}"),
        ("18", r"3\times 6 = "),
    ],
    "money and large numbers": [
        (r"\$5", r"50\text{ cents}"),
        (r"\$2.5\text{ million}", r"\$2.5"),
        (r"2.5\text{ million}", r"2.5\text{ billion}"),
        (r"\$5", "€5"),
        ("1080", "1,0800"),
    ],
    "digits": [
        (r"\sqrt{13}", r"\sqrt13"),
        ("0", "0x1f"),
        ("0", "0.(3)"),
        ("e", "2.718281828..."),
        (r"\pi", "3.14159..."),
        ("x^{10}", "x¹0"),
    ],
    "equations": [
        ("0", "5x - 7y + 11z + 4 = 0"),
        ("0", "x^2-1=0"),
        ("i", "I"),
    ],
    "intervals": [
        ("(-2,3)", r"x>-2 \text{ or } x<3"),
        ("[2,5)", r"x\ge 2, y<5"),
        ("[-3,3]", "|x|<3"),
        (r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}\setminus\{2,3\}"),
        ("(2,5)", "]2,5]"),
        (r"(0,\infty)", r"\mathbb{R}"),
        (r"x \in [-2,7]", r"-x \in [-2,7]"),
    ],
    "matrices": [
        (r"\begin{pmatrix}4\\8\end{pmatrix}", r"4\begin{pmatrix}1\\3\end{pmatrix}"),
        (r"\begin{pmatrix}4\\8\end{pmatrix}", "(4,8,0)"),
    ],
    "choices and words": [
        ("A", "(A)(B)(C)(D)"),
        ("A", r"\text{A. B. C.}"),
        (r"\text{(C)}", r"\text{(C) or (D)}"),
        (r"\textbf{(B)}\ 12", "C"),
        (r"\text{café}", r"\text{caf}"),
        (r"\text{Tom is faster}", r"\text{Ann is faster}"),
    ],
}
"""Family → (the data set's answer, one that is not right)."""


def _pairs(families: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [pair for pairs in families.values() for pair in pairs]


@pytest.mark.parametrize(("gold", "answer"), _pairs(SAME))
def test_other_ways_to_write_it_are_right(gold: str, answer: str) -> None:
    assert compare(gold, answer) is Verdict.RIGHT


@pytest.mark.parametrize(("gold", "answer"), _pairs(DIFFERENT))
def test_what_only_looks_like_it_is_never_right(gold: str, answer: str) -> None:
    assert compare(gold, answer) is not Verdict.RIGHT


WRITTEN = ["{:,}", "${:,}$", r"\$ {:,}", "+{:,}", "{:,}.00", r"\text{{{:,}}}", "0{}", "{}.0"]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 10**7),
    st.integers(1, 10**7),
    st.sampled_from(WRITTEN),
    st.sampled_from([",", "{,}", r"\,", ",\\!"]),
)
def test_whole_numbers_are_equal_only_to_themselves_however_they_are_grouped(
    a: int, b: int, written: str, separator: str
) -> None:
    answer = written.format(a).replace(",", separator)
    assert decide(str(a), answer) is True
    assert decide(str(b), answer) is (a == b)


@pytest.mark.parametrize("text", ["{" * 500, "(" * 900, "[" * 101 + "]" * 101, "1" * 2_001])
def test_what_is_too_long_or_too_deep_is_not_read(text: str) -> None:
    with pytest.raises(TooLarge):
        spell(text)
