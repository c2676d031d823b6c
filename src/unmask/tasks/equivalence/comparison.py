"""Whether two answers say the same.

The rules, where mathematics alone does not decide: a unit that one of them leaves out does not matter, another unit
does; a list without brackets may come in any order, a tuple may not; a name in front (`x = 5`) may be left out; an
equation counts by the value it ends in where a value is asked for. Nothing is right because it is close.
"""

import re
from collections.abc import Sequence

from unmask.tasks.equivalence.answers import (
    Answer,
    Equation,
    Interval,
    Many,
    Matrix,
    Named,
    Numeral,
    Ordered,
    Ratio,
    Unequal,
    Union,
    Value,
    Words,
)
from unmask.tasks.equivalence.expressions import Expression, combined, equal, proportional, read_expression
from unmask.tasks.equivalence.notations import NUMBER_WORDS
from unmask.tasks.equivalence.spelling import Unreadable, words_key
from unmask.tasks.equivalence.units import unit_key, worth


def same(gold: Answer, answer: Answer) -> bool:
    """Whether `answer` is right where `gold` is the data set's.

    Raises:
        Unreadable: the values in it are too large to be worked out, or have no value.
    """
    match gold, answer:
        case Named(), Named():
            # y and f(x) are one thing under two names; x and y are not
            may_match = gold.name == answer.name or "(" in gold.name + answer.name
            return may_match and same(gold.value, answer.value)
        case (Named(), Equation()) | (Equation(), Named()) | (Equation(), Equation()):
            return proportional(_difference(gold), _difference(answer))
        case Equation(left=Words()), Value():
            return same(gold.right, answer)
        case Equation(left=Value() as left), Value() if not left.expression.symbols:
            return same(gold.right, answer)
        case Named(), _:
            return same(gold.value, answer)
        case _, Named():
            return same(gold, answer.value)
        case _, Equation():
            return not _is_normal_form(answer) and same(gold, answer.right)
        case Unequal(), Unequal():
            return gold.sign == answer.sign and equal(_difference(gold), _difference(answer))
        case Value(), Value():
            return _same_value(gold, answer)
        case Value(), Numeral():
            return gold.text == answer.digits
        case Many(), Many():
            return _same_in_any_order(*map(_flat, (gold, answer)))
        case Many(is_set=False), Ordered():
            return _all_same(_named_point(gold), answer.items)
        case Ordered(), Many(is_set=False):
            return _all_same(gold.items, _named_point(answer))
        case Many(items=(item,)), _:
            return same(item, answer)
        case _, Many(items=(item,)):
            return same(gold, item)
        case Ordered(), Ordered():
            return _all_same(gold.items, answer.items)
        case Interval(), Interval():
            return gold.brackets == answer.brackets and _all_same((gold.low, gold.high), (answer.low, answer.high))
        case Interval(brackets="()"), Ordered():
            return _all_same((gold.low, gold.high), answer.items)
        case Ordered(), Interval(brackets="()"):
            return _all_same(gold.items, (answer.low, answer.high))
        case Union(), Union() | Many(is_set=False):
            return _same_in_any_order(gold.parts, answer.parts if isinstance(answer, Union) else answer.items)
        case Many(is_set=False), Union():
            return _same_in_any_order(gold.items, answer.parts)
        case Matrix(), Matrix():
            return len(gold.rows) == len(answer.rows) and all(
                _all_same(*rows) for rows in zip(gold.rows, answer.rows, strict=True)
            )
        case Ratio(), Ratio():
            if gold.is_time and answer.is_time:
                return _all_same(gold.parts, answer.parts)
            return equal(_quotient(gold), _quotient(answer))
        case (Ratio(), Value()) | (Value(), Ratio()):
            return equal(
                *(_quotient(side) if isinstance(side, Ratio) else _expression(side) for side in (gold, answer))
            )
        case (Words(key=key), Value(text=text)) | (Value(text=text), Words(key=key)):
            words = gold if isinstance(gold, Words) else answer
            assert isinstance(words, Words)
            is_named = text == words.symbol if words.symbol else text.isalpha() and words_key(text) == key
            return is_named or text == NUMBER_WORDS.get(key)
        case _:
            return bool(gold == answer)  # words and numerals; of two kinds never


def _is_normal_form(equation: Equation) -> bool:
    """Whether it is an equation like 5x + 4 = 0, which does not say that anything asked for is 0, as a + b = 0 may."""
    match equation:
        case Equation(left=Value() as left, right=Value(text="0")):
            return (
                bool(left.expression.symbols)
                and re.search(r"(?<![\^_{\d])\d", re.sub(r"[A-Za-z]'*\([^()]*\)", "", left.text)) is not None
            )
    return False


def _same_value(gold: Value, answer: Value) -> bool:
    gold, answer = _unit_found(gold, answer.unit), _unit_found(answer, gold.unit)
    (gold_unit, gold_factor), (answer_unit, answer_factor) = worth(gold.unit), worth(answer.unit)
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return False
    # one of them may leave the unit out, also a percent sign or a million: 50 for 50 %
    if (not gold.unit or not answer.unit or gold.unit == answer.unit) and equal(gold.expression, answer.expression):
        return True
    if gold_factor == answer_factor:
        return equal(gold.expression, answer.expression)
    return equal(
        combined("*", read_expression(gold_factor), gold.expression),
        combined("*", read_expression(answer_factor), answer.expression),
    )


def _unit_found(value: Value, unit: str) -> Value:
    """12m is twelve times a symbol m, unless the other answer has the unit."""
    found = None if value.unit or not unit else re.fullmatch(r"(.*[\d)}])([A-Za-z](?:\^\{?\d\}?)?)", value.text)
    if not found or unit_key(found[2]) != unit:
        return value
    return Value(read_expression(found[1]), unit, found[1])


def _all_same(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    return len(gold) == len(answer) and all(same(*pair) for pair in zip(gold, answer, strict=True))


def _same_in_any_order(gold: Sequence[Answer], answer: Sequence[Answer]) -> bool:
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for item in gold:
        found = next((index for index, other in enumerate(left) if same(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _flat(many: Many) -> list[Answer]:
    """The items with those of lists inside (1 ± √5 is two); a set holds each once."""
    items = [inner for item in many.items for inner in (_flat(item) if isinstance(item, Many) else [item])]
    if not many.is_set:
        return items
    kept: list[Answer] = []
    for item in items:
        if not any(same(item, other) for other in kept):
            kept.append(item)
    return kept


def _named_point(many: Many) -> Sequence[Answer]:
    """x = 1, y = 2 as the coordinates 1, 2; none when they are not named in the order of the alphabet."""
    names = [item.name.lstrip("\\") for item in many.items if isinstance(item, Named)]
    if len(names) != len(many.items) or names != sorted(set(names)):
        return ()
    return [item.value for item in many.items if isinstance(item, Named)]


def _expression(side: Answer) -> Expression:
    if isinstance(side, Value):
        return side.expression
    if isinstance(side, Words) and len(side.key) == 1:
        return read_expression(side.key.upper())  # a capital letter: a choice elsewhere, a symbol in an equation
    raise Unreadable("an equation of something else than expressions")


def _difference(answer: Answer) -> Expression:
    """Left side minus right side."""
    if isinstance(answer, Named):
        return combined("-", read_expression(answer.name), _expression(answer.value))
    assert isinstance(answer, Equation | Unequal)
    return combined("-", _expression(answer.left), _expression(answer.right))


def _quotient(ratio: Ratio) -> Expression:
    return combined("/", *map(_expression, ratio.parts))
