"""Units: one name for each, and how many of another unit or of the plain number it is worth.

Lengths, weights and times are not converted: where a problem asks for metres, centimetres are another answer.
"""

import re

UNITS = {
    "%": "percent percents",
    "°": "degree degrees deg",
    "rad": "radian radians",
    "$": "dollar dollars usd",
    "cent": "cents ¢",
    "€": "euro euros eur",
    "£": "gbp",
    "₹": "rs rupee rupees inr",
    "¥": "yen jpy yuan cny",
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
    "n": "newton newtons",
    "j": "joule joules",
    "w": "watt watts",
    "v": "volt volts",
    "hz": "hertz",
    "pa": "pascal pascals",
    "mi / h": "mph",
    "km / h": "kph kmh",
    "": "unit units",
}
"""Short name of a unit → its other names."""

CURRENCIES = ("$", "€", "£", "¥", "₹")
UNIT_NAMES = {other: name for name, others in UNITS.items() for other in (name, *others.split()) if other}

WORTH = {
    "%": ("%", "1/100"),
    "cent": ("$", "1/100"),
    "°": ("rad", r"\pi/180"),
    "dozen": ("", "12"),
    "hundred": ("", "100"),
    "thousand": ("", "10^3"),
    "million": ("", "10^6"),
    "billion": ("", "10^9"),
    "trillion": ("", "10^12"),
}
"""Unit → the unit that it is a multiple of, and the multiple. `50 %` and `2 million` are also written without these."""


def unit_key(text: str) -> str:
    """One name for a unit: `square centimeters`, `cm^2` and `sq cm` are `cm^2`; `units` is none at all."""
    text = re.sub(r'\\cdot(?![A-Za-z])|["{}()*]', " ", text.lower().replace(".", ""))
    text = re.sub(r"\bper\b", "/", text)
    for before, after, power in (("square|sq", "squared", 2), ("cubic|cu", "cubed", 3)):
        text = re.sub(rf"\b(?:{before})\s+([a-z]+)", rf"\1^{power}", text)
        text = re.sub(rf"([a-z]+)\s+{after}\b", rf"\1^{power}", text)
    names = []
    for word, power in re.findall(r"(/|[^\s/^]+)(?:\s*\^\s*(-?\d))?", text):
        name = UNIT_NAMES.get(word, word if len(word) < 4 else word.removesuffix("s"))
        if not name or word in ("of", "the", "about", "approximately"):
            continue
        if power.startswith("-"):
            names.append("/")
        power = power.removeprefix("-")
        names.append(name + (f"^{power}" if power not in ("", "1") else ""))
    return "%" if "%" in names else " ".join(names)


def worth(unit: str) -> tuple[str, str]:
    """A unit as a multiple of another: (`$`, `10^6*1/100`) for `million cent`."""
    factors, names = [], []
    for word in unit.split():
        name, factor = WORTH.get(word, (word, ""))
        names.append(name)
        factors.append(factor)
    return " ".join(filter(None, names)), "*".join(filter(None, factors)) or "1"
