import pytest

from unmask.errors import UnmaskError
from unmask.evaluation import SETTINGS, setting


def test_forkgrpos_setting_is_its_appendix_c() -> None:
    (decoding,) = SETTINGS["forkgrpo"]
    assert (decoding.length, decoding.steps, decoding.block) == (256, 256, 32)
    assert (decoding.order, decoding.measure, decoding.temperature) == ("static", "probability", 0)


@pytest.mark.parametrize("name", ["rldf-dynamic", "rldf-static"])
def test_rldfs_settings_are_the_columns_of_its_tables(name: str) -> None:
    decodings = SETTINGS[name]
    assert [decoding.length for decoding in decodings] == [128, 256, 512]
    for decoding in decodings:
        assert decoding.order == name.removeprefix("rldf-") and decoding.block == 32
        if decoding.order == "dynamic":
            assert decoding.threshold == 0.9
        else:
            assert decoding.most_steps == decoding.length, "one token a step"


def test_an_option_picks_among_a_settings_columns_and_changes_nothing() -> None:
    assert setting("rldf-static", {}) == SETTINGS["rldf-static"]
    assert setting("rldf-static", {"length": 512, "block": 32}) == SETTINGS["rldf-static"][2:]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("rldf-dynamc", {}, "--setting rldf-dynamc: unknown; did you mean rldf-dynamic?"),
        ("rldf-dynamic", {"length": 64}, "length=64: --setting rldf-dynamic has 128 or 256 or 512; leave one of them"),
        ("rldf-dynamic", {"steps": 64}, "steps=64: --setting rldf-dynamic has none"),
        ("rldf-static", {"length": 128, "steps": 256}, "steps=256: --setting rldf-static has 128"),
        ("forkgrpo", {"temperature": 0.5}, "temperature=0.5: --setting forkgrpo has 0.0"),
    ],
)
def test_an_option_that_says_something_else_is_a_mistake(name: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UnmaskError) as error:
        setting(name, options)
    assert says in str(error.value)
