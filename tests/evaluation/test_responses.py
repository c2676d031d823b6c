import json
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.evaluation import Judged, ResponseFile
from unmask.tasks import Verdict

SETTINGS: dict[str, Any] = {"model": {"name": "tiny", "weights": "ab"}, "seed": 0, "decoding": {"temperature": 0.0}}
EXAMPLES = [{"question": "1 + 1?"}, {"question": "\u2028?"}]
JUDGED = [Judged(0, 0, "2", 1.0, Verdict.RIGHT), Judged(1, 0, "a\nb", 0.0, Verdict.UNSURE)]


def written(path: Path) -> ResponseFile:
    file = ResponseFile(path, SETTINGS)
    file.append(EXAMPLES, JUDGED, {"sandbox": "unsafe"})
    return file


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "out.jsonl"
    written(path)
    again = ResponseFile(path, SETTINGS)
    assert [again.find(index, 0, EXAMPLES[index]) for index in range(2)] == JUDGED
    assert again.find(0, 1, EXAMPLES[0]) is None
    assert json.loads(path.read_text().split("\n")[0]) == {
        "question": "1 + 1?",
        "example": 0,
        "sample": 0,
        "response": "2",
        "reward": 1.0,
        "verdict": "right",
        "sandbox": "unsafe",
    }
    assert sorted(file.name for file in path.parent.iterdir()) == ["out.jsonl", "out.settings.json"]


def test_nothing_is_written_before_the_first_response(tmp_path: Path) -> None:
    ResponseFile(tmp_path / "out.jsonl", SETTINGS)
    assert not any(tmp_path.iterdir())


def test_a_line_that_a_crash_cut_short_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written(path)
    whole = path.read_text()
    path.write_text(whole[:-20])
    file = ResponseFile(path, SETTINGS)
    assert file.find(1, 0, EXAMPLES[1]) is None
    file.append(EXAMPLES[1:], JUDGED[1:], {"sandbox": "unsafe"})
    assert path.read_text() == whole


def test_other_settings_are_refused_and_the_same_weights_elsewhere_are_not(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written(path)
    ResponseFile(path, {**SETTINGS, "model": {"name": "elsewhere", "weights": "ab"}})
    for settings, says in [
        ({**SETTINGS, "seed": 1}, "out.jsonl: made with seed=0, not 1; name another file"),
        ({**SETTINGS, "decoding": {"temperature": 1.0}}, "made with decoding.temperature=0.0, not 1.0"),
        ({**SETTINGS, "model": {"name": "tiny", "weights": "cd"}}, "made with model.weights=ab, not cd"),
    ]:
        with pytest.raises(UnmaskError) as error:
            ResponseFile(path, settings)
        assert says in str(error.value)


def test_an_example_that_changed_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    file = written(tmp_path / "out.jsonl")
    file = ResponseFile(file.path, SETTINGS)
    with pytest.raises(UnmaskError, match="example 0 has another question by now"):
        file.find(0, 0, {"question": "2 + 2?"})


@pytest.mark.parametrize("line", ["{", "[]", '{"response": "x"}', '{"example": 0, "sample": 0, "verdict": "good"}'])
def test_a_file_of_something_else_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UnmaskError, match="not kept by unmask"):
        ResponseFile(path, SETTINGS)
    path.unlink()
    written(path)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UnmaskError, match="line 3 is not a judged response"):
        ResponseFile(path, SETTINGS)
