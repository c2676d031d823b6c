"""Mathematical expressions: read without `eval`, and compared exactly or to hundreds of digits.

An expression becomes a function of its symbols. Rational arithmetic stays exact; anything else is worked out with
mpmath, twice, the second time with twice the digits: a true difference stays what it is, rounding noise shrinks to
nothing. So numbers that merely lie close (1/2⁹⁸ and 1/2⁹⁹) are different, and 1/√2 and √2/2 are the same.
Expressions with symbols are compared at several points where all of them are defined in the real numbers.
"""

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

from unmask.tasks.equivalence.spelling import CONSTANTS, FUNCTIONS, TooLarge, Unreadable

DIGITS = 250
LARGEST_BITS = 100_000
"""Size up to which integers are exact; beyond, powers and factorials are floating-point numbers of `DIGITS` digits."""
DEEPEST = 40
"""Nesting of brackets, fractions and exponents."""
POINTS = 8

Number = Any
"""A Fraction, or one of mpmath's numbers."""
Values = Mapping[str, Fraction]
Formula = Callable[[Values], Number]


class Undefined(Exception):
    """The expression has no (real) value at this point."""


@dataclass(frozen=True)
class Expression:
    """A formula and the symbols in it."""

    formula: Formula
    symbols: frozenset[str]


def read_expression(text: str) -> Expression:
    """An expression in the common notation.

    Raises:
        Unreadable: it holds something else.
    """
    reader = _Reader(text)
    formula = reader.sum()
    if reader.rest():
        raise Unreadable(f"{reader.rest()!r} in an expression")
    return Expression(formula, frozenset(reader.symbols))


def combined(sign: str, a: Expression, b: Expression) -> Expression:
    """a − b, a · b or a / b."""
    operation = {"-": _minus, "*": _times, "/": _over}[sign]
    return Expression(lambda values: operation(a.formula(values), b.formula(values)), a.symbols | b.symbols)


def real(expression: Expression) -> Number | None:
    """A real number to be put in order with others; none where the expression has symbols or is no such number."""
    if expression.symbols:
        return None
    with mpmath.workdps(DIGITS):
        try:
            value = expression.formula({})
        except Undefined:
            return None
        return None if mpmath.im(_float(value)) else mpmath.re(_float(value))


def equal(a: Expression, b: Expression) -> bool:
    """Whether `a` is `b` for all values of their symbols.

    Raises:
        Unreadable: too large to be worked out, or defined almost nowhere.
    """
    agreed = 0
    for values in _points(a.symbols | b.symbols):
        try:
            if not _vanishes(lambda values=values: _minus(a.formula(values), b.formula(values))):  # type: ignore[misc]
                return False
        except Undefined:
            continue
        agreed += 1
    if not agreed:
        raise Unreadable("undefined")
    return True


def proportional(a: Expression, b: Expression) -> bool:
    """Whether `a` = 0 and `b` = 0 say the same because one is a constant times the other."""
    ratios: list[Callable[[], Number]] = []
    for values in _points(a.symbols | b.symbols):
        try:
            ratio = lambda values=values: _over(a.formula(values), b.formula(values))  # noqa: E731
            with mpmath.workdps(DIGITS):
                ratio()
        except Undefined:
            continue
        if ratios and not _vanishes(lambda ratio=ratio: _minus(ratio(), ratios[0]())):  # type: ignore[misc]
            return False
        ratios.append(ratio)
    if not ratios:
        raise Unreadable("undefined")
    return not _vanishes(ratios[0])


def _points(symbols: frozenset[str]) -> list[dict[str, Fraction]]:
    """Where to compare: the first points are positive, for answers with roots and logarithms."""
    if not symbols:
        return [{}]
    draw = random.Random("points")
    points = []
    for index in range(POINTS):
        signs = (1,) if index < POINTS // 2 else (1, -1)
        points.append({name: Fraction(draw.randint(7, 997) * draw.choice(signs), 101) for name in sorted(symbols)})
    return points


def _vanishes(difference: Callable[[], Number]) -> bool:
    with mpmath.workdps(DIGITS):
        rough = difference()
    if isinstance(rough, Fraction) or rough == 0:
        return bool(rough == 0)
    with mpmath.workdps(2 * DIGITS):
        fine = difference()
        return bool(abs(fine) <= abs(rough) * mpmath.mpf(10) ** (-DIGITS // 2))


def _float(value: Number) -> Number:
    if isinstance(value, Fraction):
        return mpmath.mpf(value.numerator) / value.denominator
    return value


def _exact(operation: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    def apply(a: Number, b: Number) -> Number:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return operation(a, b)
        return operation(_float(a), _float(b))

    return apply


_plus = _exact(lambda a, b: a + b)
_times = _exact(lambda a, b: a * b)


@_exact
def _minus(a: Number, b: Number) -> Number:
    if not isinstance(a, Fraction) and (mpmath.isinf(a) or mpmath.isinf(b)):
        return Fraction(a != b)
    return a - b


@_exact
def _over(a: Number, b: Number) -> Number:
    if b == 0:
        raise Undefined
    return a / b


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Number, exponent: Number, is_real: bool) -> Number:
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1 and _bits(base) * abs(exponent) <= LARGEST_BITS:
            if base == 0 and exponent <= 0:
                raise Undefined
            return base**exponent.numerator
        if base < 0 and exponent.denominator % 2:  # the real root, as at school
            sign = -1 if exponent.numerator % 2 else 1
            return sign * _power(-base, exponent, is_real)
        if base == 0:
            return Fraction(0)
    base, exponent = _float(base), _float(exponent)
    if is_real and (mpmath.im(base) or (mpmath.re(base) < 0 and not mpmath.isint(exponent))):
        raise Undefined
    if base == 0:
        if mpmath.re(exponent) <= 0:
            raise Undefined
        return Fraction(0)
    # an exponent of the result's exponent: its digits would fill the memory
    if abs(exponent) * (1 + abs(mpmath.log(abs(base), 2))) > 2**40:
        raise TooLarge("too large")
    return mpmath.power(base, exponent)


def _factorial(value: Number) -> Number:
    if isinstance(value, Fraction):
        if value.denominator == 1 and 0 <= value <= 3_000:
            return Fraction(math.factorial(value.numerator))
        if value.denominator == 1 and value < 0:
            raise Undefined
    if abs(value) > 10**12:
        raise TooLarge("too large")
    return mpmath.factorial(_float(value))


def _binomial(n: Number, k: Number) -> Number:
    if all(isinstance(value, Fraction) and value.denominator == 1 and 0 <= value <= 3_000 for value in (n, k)):
        return Fraction(math.comb(n.numerator, k.numerator))
    return _over(_factorial(n), _times(_factorial(k), _factorial(_minus(n, k))))


def _log(value: Number, is_real: bool) -> Number:
    if value == 0 or (is_real and (mpmath.im(_float(value)) or mpmath.re(_float(value)) < 0)):
        raise Undefined
    return mpmath.log(_float(value))


def _root(value: Number, degree: Number, is_real: bool) -> Number:
    if isinstance(value, Fraction) and isinstance(degree, Fraction) and degree == 2 and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    return _power(value, _over(Fraction(1), degree), is_real)


def _round(value: Number, rounding: Callable[[Any], Any]) -> Number:
    if not isinstance(value, Fraction) and (mpmath.im(value) or abs(value) > 10**DIGITS):
        raise Undefined
    return Fraction(int(rounding(value)))


_TRIGONOMETRY: dict[str, Callable[[Any], Any]] = {
    name: getattr(mpmath, name.replace("arc", "a"))
    for name in FUNCTIONS
    if name not in ("log", "ln", "lg", "exp", "sqrt", "abs", "floor", "ceil")
}


def _apply(name: str, value: Number, is_real: bool) -> Number:
    match name:
        case "ln" | "log":
            return _log(value, is_real)
        case "lg":
            return _over(_log(value, is_real), mpmath.log(10))
        case "sqrt":
            return _root(value, Fraction(2), is_real)
        case "exp":
            return _power(mpmath.e + 0, value, is_real)
        case "abs":
            return abs(value)
        case "floor" | "ceil":
            return _round(value, math.floor if name == "floor" else math.ceil)
    if abs(_float(value)) > 10**6:
        raise TooLarge("too large")
    try:
        result = _TRIGONOMETRY[name](_float(value))
    except ZeroDivisionError:
        raise Undefined from None
    if is_real and mpmath.im(result):
        raise Undefined
    return result


class _Reader:
    """Recursive descent over the text; every method reads one construct and returns its formula."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.symbols: set[str] = set()

    def rest(self) -> str:
        self.take(r"\s*")
        return self.text[self.at :]

    def take(self, pattern: str) -> str | None:
        """What is next, if it looks like this; spaces before it are skipped."""
        found = re.compile(rf"\s*({pattern})").match(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        return found[1]

    def sees(self, pattern: str) -> bool:
        return bool(re.compile(rf"\s*(?:{pattern})").match(self.text, self.at))

    def expect(self, pattern: str) -> None:
        if self.take(pattern) is None:
            raise Unreadable(f"{self.rest()[:20]!r} where {pattern} should be")

    def sum(self) -> Formula:
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooLarge("nested too deeply")
        total = self.signed()
        while sign := self.take(r"[+-]"):
            total = self._binary(_plus if sign == "+" else _minus, total, self.signed())
        self.depth -= 1
        return total

    def signed(self) -> Formula:
        signs = ""
        while sign := self.take(r"[+-]"):
            signs += sign
        term = self.product()
        return self._binary(_times, lambda _: Fraction(-1), term) if signs.count("-") % 2 else term

    def product(self) -> Formula:
        begin = self.at
        total = self.factor()
        while True:
            is_number, begin = self.text[begin : self.at].strip().isdigit(), self.at
            if is_number and self.sees(r"\d"):
                raise Unreadable("two numbers side by side")
            if self.take(r"\*(?!\*)"):
                total = self._binary(_times, total, self.signed_factor())
            elif self.take("/"):
                total = self._binary(_over, total, self.signed_factor())
            elif self.sees(r"[\dA-Za-z({\[.]|\\(?!rangle|rfloor|rceil|[})])") or (
                self.sees(r"\|") and not self.in_bars
            ):
                total = self._binary(_times, total, self.factor())
            else:
                return total

    in_bars = False

    def signed_factor(self) -> Formula:
        if self.take("-"):
            return self._binary(_times, lambda _: Fraction(-1), self.factor())
        self.take(r"\+")
        return self.factor()

    def factor(self) -> Formula:
        formula = self.primary()
        while True:
            if self.take(r"!(?!!)"):
                formula = self._unary(_factorial, formula)
            elif self.take("°"):
                formula = self._binary(_times, formula, lambda _: mpmath.pi / 180)
            elif self.take("%"):
                formula = self._binary(_over, formula, lambda _: Fraction(100))
            elif self.take(r"\^|\*\*"):
                return self.power(formula, self.exponent())
            else:
                return formula

    def exponent(self) -> Formula:
        if self.sees(r"\{"):
            inner = self.group()
        else:
            negative = self.take("-")
            inner = self.primary()
            if negative:
                inner = self._binary(_times, lambda _: Fraction(-1), inner)
        if self.take(r"\^|\*\*"):
            inner = self.power(inner, self.exponent())
        return inner

    def power(self, base: Formula, exponent: Formula) -> Formula:
        return lambda values: _power(base(values), exponent(values), bool(values))

    def group(self) -> Formula:
        """`{...}`, or a single digit, letter or command: an argument of a LaTeX command."""
        if self.take(r"\{"):
            formula = self.sum()
            self.expect(r"\}")
            return formula
        if digit := self.take(r"\d"):
            return lambda _: Fraction(int(digit))
        return self.primary()

    def primary(self) -> Formula:
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooLarge("nested too deeply")
        formula = self._primary()
        self.depth -= 1
        return formula

    def _primary(self) -> Formula:
        if number := self.take(r"\d+(?:\.\d*)?|\.\d+"):
            return self.number(number)
        for opened, closed in ((r"\(", r"\)"), (r"\[", r"\]"), (r"\{", r"\}"), (r"\\\{", r"\\\}")):
            if self.take(opened):
                outside, self.in_bars = self.in_bars, False
                formula = self.sum()
                self.expect(closed)
                self.in_bars = outside
                return formula
        if self.take(r"\|"):
            outside, self.in_bars = self.in_bars, True
            formula = self.sum()
            self.expect(r"\|")
            self.in_bars = outside
            return self._unary(abs, formula)
        for name, opened, closed in (("floor", r"\\lfloor", r"\\rfloor"), ("ceil", r"\\lceil", r"\\rceil")):
            if self.take(opened):
                formula = self.sum()
                self.expect(closed)
                return self.call(name, formula)
        if self.take(r"\\frac(?![A-Za-z])"):
            return self._binary(_over, self.group(), self.group())
        if self.take(r"\\binom(?![A-Za-z])"):
            return self._binary(_binomial, self.group(), self.group())
        if self.take(r"\\?sqrt(?![A-Za-z])"):
            degree: Formula = lambda _: Fraction(2)  # noqa: E731
            if self.take(r"\["):
                degree = self.sum()
                self.expect(r"\]")
            value = self.group()
            return lambda values: _root(value(values), degree(values), bool(values))
        if function := self.take(rf"\\?(?:{'|'.join(FUNCTIONS)})(?![A-Za-z])"):
            return self.function(function.lstrip("\\"))
        if self.take(r"\\?pi(?![A-Za-z])"):
            return lambda _: mpmath.pi + 0
        if self.take(rf"\\?(?:{'|'.join(CONSTANTS[1:])})(?![A-Za-z])"):
            return lambda _: mpmath.inf
        if letter := self.take(r"\\[A-Za-z]+|[A-Za-z]"):
            return self.symbol(letter)
        raise Unreadable(f"{self.rest()[:20]!r} in an expression")

    def number(self, digits: str) -> Formula:
        value = Fraction(digits.rstrip("."))
        if "." in digits and (repeating := self.take(r"\\(?:overline|bar)\s*(?:\{\s*\d+\s*\}|\d)")):
            period = re.sub(r"\D", "", repeating)
            places = len(digits.partition(".")[2])
            value += Fraction(int(period), 10**places * (10 ** len(period) - 1))
        if digits.isdigit() and (mixed := self.take(r"\\frac\s*(?:\{\s*\d+\s*\}|\d)\s*(?:\{\s*\d+\s*\}|\d)")):
            top, bottom = map(
                int, re.findall(r"\d+|\d", mixed.replace("\\frac", "")) if "{" in mixed else re.findall(r"\d", mixed)
            )
            if bottom == 0:
                raise Unreadable("division by zero")
            part = Fraction(top, bottom)
            value = value + part if top < bottom else value * part
        return lambda _: value

    def function(self, name: str) -> Formula:
        base = power = None
        while True:
            if name == "log" and self.take("_"):
                base = self.group()
            elif self.take(r"\^"):
                power = self.exponent()
            else:
                break
        if self.sees(r"[({\[]|\\\{"):
            argument = self.primary()
        else:
            argument = self.factor()
            while self.sees(r"[\dA-Za-z]|\\(?:pi|frac|sqrt|theta|alpha|beta)(?![A-Za-z])") and not self.sees(
                rf"\\?(?:{'|'.join(FUNCTIONS[:-5])})(?![A-Za-z])"
            ):
                argument = self._binary(_times, argument, self.factor())
        formula = self.call(name, argument)
        if base is not None:
            formula = self._binary(_over, formula, self.call("log", base))
        if power is None:
            return formula
        if name in _TRIGONOMETRY and not name.startswith("arc"):
            inverse = "arc" + name
            try:
                is_inverse = power({}) == -1
            except (KeyError, Undefined):
                is_inverse = False
            if is_inverse and inverse in _TRIGONOMETRY:
                return self.call(inverse, argument)
        return self.power(formula, power)

    def symbol(self, name: str) -> Formula:
        if name == "e":
            return lambda _: mpmath.e + 0
        if name == "i" and not self.sees("_"):
            return lambda _: mpmath.mpc(0, 1)
        if name.startswith("\\") and name[1:] not in _GREEK:
            raise Unreadable(f"{name} in an expression")
        if self.take("_"):
            index = self.take(r"\{\s*[A-Za-z0-9]+\s*\}|[A-Za-z0-9]")
            if index is None:
                raise Unreadable("an index")
            name += "_" + index.strip("{} ")
        name += self.take(r"'+") or ""
        self.symbols.add(name)
        return lambda values: values[name]

    def call(self, name: str, argument: Formula) -> Formula:
        return lambda values: _apply(name, argument(values), bool(values))

    @staticmethod
    def _unary(operation: Callable[[Number], Number], a: Formula) -> Formula:
        return lambda values: operation(a(values))

    @staticmethod
    def _binary(operation: Callable[[Number, Number], Number], a: Formula, b: Formula) -> Formula:
        return lambda values: operation(a(values), b(values))


_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu",
    "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi",
    "Sigma", "Phi", "Psi", "Omega", "ell",
}  # fmt: skip
