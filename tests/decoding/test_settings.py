import pytest
from pydantic import ValidationError

from unmask.decoding import Decoding


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"order": "static", "length": 10, "block": 4}, "block=4 does not divide length=10"),
        ({"order": "static", "length": 8, "block": 2, "steps": 6}, "does not divide over the 4 blocks"),
        ({"order": "dynamic", "length": 8, "threshold": 1.5}, "less than or equal to 1"),
        ({"order": "dynamic", "length": 8, "threshold": 0}, "greater than 0"),
        ({"order": "dynamic", "length": 8, "steps": 8}, "leave it out"),
        ({"order": "dynamic", "length": 8, "schedule": "linear"}, "has no schedule"),
        ({"order": "random", "length": 8, "measure": "margin"}, "random order has no use for it"),
        ({"order": "random", "length": 8, "opening": "first_token"}, "random order has no use for it"),
        ({"order": "left_to_right", "length": 8, "steps": 4}, "one token a step"),
        ({"order": "left_to_right", "length": 8, "block": 4}, "knows no blocks"),
        ({"order": "left_to_right", "measure": "margin"}, "leave measure out"),
        ({"order": "left_to_right", "cache": "prefix"}, "leave cache out"),
        ({"order": "static", "length": 8, "block": 4, "steps": 2, "opening": "first_token"}, "at least 2 steps"),
        ({"order": "static", "length": 8, "cache": "dual"}, "set block, which is not given"),
        ({"order": "static", "length": 8, "block": 1, "cache": "dual"}, "at least 2 tokens"),
        ({"order": "static", "length": 8, "block": 4, "horizon": 2}, "only a cache has one"),
        ({"order": "static", "length": 8, "block": 4, "cache": "dual", "guidance": 1}, "does not work with guidance"),
        ({"sampler": "gumbel", "top_k": 5}, "top_k=5: gumbel"),
        ({"sampler": "gumbel", "top_p": 0.5}, "top_p=0.5: gumbel"),
        ({"top_k": 0}, "greater than or equal to 1"),
        ({"top_p": 1.1}, "less than or equal to 1"),
        ({"guidance": -1}, "greater than or equal to 0"),
        ({"order": "sideways"}, "left_to_right"),
        ({"order": "static", "measure": "entropy"}, "negative_entropy"),
        ({"temperature": -1.0}, "greater than or equal to 0"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as error:
        Decoding(**settings)
    assert all("\n" not in found["msg"] for found in error.value.errors())
