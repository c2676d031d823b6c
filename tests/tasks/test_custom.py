from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.runs import train
from unmask.tasks import CustomTaskSettings

PARITY = """
import unmask

class Parity(unmask.Task):
    response_length = 1
    def train(self): return [{"bits": format(i, "08b")} for i in range(200)]
    def evaluation(self): return [{"bits": format(i, "08b")} for i in range(200, 256)]
    def prompt(self, example): return example["bits"] + "="
    def reward(self, example, response): return float(response == str(example["bits"].count("1") % 2))

class NotATask: pass
"""


def test_a_class_in_the_users_folder_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_parity.py").write_text(PARITY)
    overrides = [
        "task={name: 'my_parity:Parity'}",
        "decoding.length=1",
        "trainer.steps=2",
        "evaluation.decoding.length=1",
    ]
    result = train("tiny/justgrpo", [*overrides, "trainer.prompts_per_step=4"])
    assert result.evaluations and (result.run / "recipe.yaml").read_text().count("my_parity:Parity") == 1
    with pytest.raises(UnmaskError, match=r"my_parity has no Paritee; did you mean Parity\?"):
        CustomTaskSettings(name="my_parity:Paritee").build()
    with pytest.raises(UnmaskError, match=r"NotATask is not a subclass of unmask\.Task"):
        CustomTaskSettings(name="my_parity:NotATask").build()
    with pytest.raises(UnmaskError, match="there is no module nowhere_at_all"):
        CustomTaskSettings(name="nowhere_at_all:Task").build()
