"""Recipes: every shipped one is valid, and every mistake is one line that says what would be right."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from unmask.config import load_recipe, shipped_recipes
from unmask.errors import UnmaskError
from unmask.reference import page
from unmask.training.recipe import Recipe, SftRecipe

KINDS: dict[str, Any] = {
    name: SftRecipe if "sft" in yaml.safe_load(path.read_text()) else Recipe for name, path in shipped_recipes().items()
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_shipped_recipe_is_valid_and_says_what_it_is(name: str) -> None:
    load_recipe(name, [], KINDS[name])
    text = shipped_recipes()[name].read_text()
    first, second = text.splitlines()[:2]
    assert first.startswith("# ") and second.startswith("# ")
    assert "TIME" not in text and "RESULT" not in text


def test_shipped_recipes_are_those_of_the_readme() -> None:
    assert set(KINDS) >= {"tiny/forkgrpo", "tiny/justgrpo", "tiny/sft", "llada/forkgrpo", "llada/justgrpo"}


def test_the_papers_values_are_in_the_llada_recipes() -> None:
    fork = load_recipe("llada/forkgrpo", [], Recipe)
    assert fork.algorithm.group_size == 8
    assert fork.algorithm.windows == ((32, 63), (64, 95), (96, 127))  # type: ignore[union-attr]
    assert fork.model.lora is not None
    assert (fork.model.lora.rank, fork.model.lora.alpha, fork.model.lora.dropout) == (128, 64, 0.05)
    assert (fork.optimizer.learning_rate, fork.optimizer.weight_decay, fork.optimizer.max_grad_norm) == (
        5e-5,
        0,
        1,
    )
    assert (fork.trainer.steps, fork.trainer.prompts_per_step) == (100, 64)
    assert (fork.decoding.length, fork.decoding.temperature) == (256, 1)
    assert (fork.objective.clip_low, fork.objective.clip_high) == (0.2, 0.2)
    greedy = fork.evaluation.decoding
    assert (greedy.order, greedy.block, greedy.steps, greedy.temperature) == ("static", 32, 256, 0)
    fast = load_recipe("llada/forkgrpo_fast", [], Recipe)
    switches = {"pilot": 4, "sparse_replay": True, "state_share": 0.25, "state_draw": "uniform"}
    assert fast == fork.model_copy(update={"algorithm": fork.algorithm.model_copy(update=switches)})
    just = load_recipe("llada/justgrpo", [], Recipe)
    assert (just.algorithm.group_size, just.trainer.steps) == (16, 200)
    # the paper's budgets: 200 · 16 · 256 tokens a prompt slot against 100 · 5,912..6,656
    assert pytest.approx(0.1875) == 1 - 100 * 6656 / (200 * 16 * 256)
    assert pytest.approx(0.2783, abs=1e-4) == 1 - 100 * 5912 / (200 * 16 * 256)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["algorithm.segment_wieght=1"], "algorithm.segment_wieght is unknown; did you mean segment_weight?"),
        (["algorithm.pilot=9"], "algorithm.pilot=9 is more than group_size=4"),
        (["algorithm.state_share=0"], "algorithm.state_share=0: input should be greater than 0"),
        (["trianer.steps=1"], "trianer is unknown; did you mean trainer?"),
        (["model.lora.rnk=4"], "model.lora.rnk is unknown; did you mean rank?"),
        (["algorithm.name=forkgrop"], "algorithm.name=forkgrop is unknown; did you mean forkgrpo?"),
        (["task.name=sudok"], "task.name=sudok is unknown; did you mean sudoku?"),
        (["decoding.order=statik"], "decoding.order=statik is unknown; did you mean static?"),
        (["trainer.steps=abc"], "trainer.steps='abc': input should be a valid integer"),
        (
            ["trainer.max_tokens=16"],
            "trainer.max_tokens=16: no prompt fits beside a response of decoding.length=16 tokens",
        ),
        (["trainer.steps=0"], "trainer.steps=0: input should be greater than or equal to 1"),
        (
            ["decoding.order=static", "decoding.measure=entropi"],
            "decoding.measure=entropi is unknown; known: margin, negative_entropy, probability",
        ),
        (["decoding.order=static", "decoding.block=5"], "decoding: block=5 does not divide length=16"),
        (
            ["decoding.order=dynamic", "decoding.threshold=1.5"],
            "decoding.threshold=1.5: input should be less than or equal to 1",
        ),
        (["decoding.threshold=0"], "decoding.threshold=0: input should be greater than 0"),
        (["decoding.cache=prefix"], "decoding: cache=prefix: left_to_right has no use for it; leave cache out"),
        (["decoding.horizon=4"], "decoding: horizon=4: only a cache has one"),
        (["decoding.guidance=1"], "decoding.guidance=1: what is trained is the model without guidance"),
        (
            ["algorithm={name: justgrpo}", "decoding.top_p=0.9"],
            "decoding.top_p=0.9: justgrpo's likelihood is that of all tokens; leave it out",
        ),
        (["decoding.top_p=0.5"], "decoding.top_p=0.5: forkgrpo's likelihood is that of all tokens; leave it out"),
        (
            ["decoding.order=static", "decoding.steps=8"],
            "algorithm.windows has one from step 9, but this static decoding has steps 0..7",
        ),
        (["algorithm={name: rldf, steps: 0}"], "algorithm.steps=0: input should be greater than or equal to 1"),
        (
            ["algorithm={name: rldf}", "objective.kl_weight=0.1", "objective.reference=rollout"],
            "objective.kl_weight=0.1: with objective.reference=rollout and one update the divergence is zero",
        ),
        (
            ["algorithm={name: diffu_grpo}", "decoding.temperature=0"],
            "decoding.temperature=0: diffu_grpo needs different responses; use a temperature above 0",
        ),
        (
            ["algorithm={name: espo}", "objective.mismatch=truncate"],
            "objective.mismatch=truncate: espo scores tokens in states of its own",
        ),
        (["model.dtype=bfloat16"], "model.dtype=bfloat16: whole weights in 16 bits are too coarse"),
        (["optimizer.learning_rate=-1"], "optimizer.learning_rate=-1: input should be greater than 0"),
        (
            ["algorithm={name: justgrpo}", "decoding.order=static"],
            "decoding.order=static: justgrpo samples left to right",
        ),
        (
            ["objective.kl_weight=0.1", "objective.reference=none"],
            "objective: kl_weight=0.1: a KL penalty needs a reference policy; set reference=start",
        ),
        (
            ["objective.kl_weight=0.1"],
            "objective.kl_weight=0.1: forkgrpo has no KL term; leave objective.kl_weight out",
        ),
        (["decoding.temperature=0"], "decoding.temperature=0: forkgrpo needs different responses"),
        (["decoding.length=6"], "algorithm.windows ends at 12, but decoding.length=6 has positions 0..5"),
        (["algorithm.windows=[[3,2]]"], "algorithm: windows=[[3, 2]]: each must be [first, last]"),
        (["task.min_blanks=12", "task.max_blanks=9"], "task: min_blanks=12 is more than max_blanks=9"),
        (["task={name: math, trian: x}"], "task.trian is unknown; did you mean train?"),
        (["task={name: gsm8k, train: 5}"], "task.train=5: input should be a valid string"),
        (["task={name: countdown, numbers: 9}"], "task.numbers=9: input should be less than or equal to 6"),
        (["model.name=scratch"], "model: scratch: name=scratch and the section scratch go together"),
        (["decoding.temperature=.inf"], "decoding.temperature=inf: input should be a finite number"),
        (["trainer.steps"], "write it as key=value"),
        (["seed.x=1"], "seed holds a value, not a section"),
        (["trainer.steps=[1"], "the value is not valid YAML"),
    ],
)
def test_mistakes_are_named(overrides: list[str], says: str) -> None:
    with pytest.raises(UnmaskError) as error:
        load_recipe("tiny/forkgrpo", overrides, Recipe)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(UnmaskError, match=r"rank is unknown.*\(and 1 more: trainer.stps is unknown"):
        load_recipe("tiny/forkgrpo", ["trainer.stps=1", "model.rank=1"], Recipe)


def test_numbers_in_scientific_notation_are_numbers() -> None:
    assert load_recipe("tiny/forkgrpo", ["optimizer.learning_rate=1e-5"], Recipe).optimizer.learning_rate == 1e-5


def test_misspelt_and_missing_recipes(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"recipe tiny/forkgrop: unknown; did you mean tiny/forkgrpo\?"):
        load_recipe("tiny/forkgrop", [], Recipe)
    with pytest.raises(UnmaskError, match="no such file"):
        load_recipe(str(tmp_path / "mine.yaml"), [], Recipe)
    (tmp_path / "broken.yaml").write_text("a: [1")
    with pytest.raises(UnmaskError, match="not valid YAML"):
        load_recipe(str(tmp_path / "broken.yaml"), [], Recipe)
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(UnmaskError, match="a mapping of sections"):
        load_recipe(str(tmp_path / "list.yaml"), [], Recipe)
    (tmp_path / "twice.yaml").write_text("seed: 1\nseed: 2")
    with pytest.raises(UnmaskError, match="seed is given twice"):
        load_recipe(str(tmp_path / "twice.yaml"), [], Recipe)
    (tmp_path / "empty.yaml").write_text("seed: 1")
    with pytest.raises(UnmaskError, match="task is missing"):
        load_recipe(str(tmp_path / "empty.yaml"), [], Recipe)


def test_a_recipe_given_to_the_wrong_command_is_told_the_right_one() -> None:
    with pytest.raises(UnmaskError, match="for `unmask sft`, not for `unmask train`"):
        load_recipe("tiny/sft", [], Recipe)
    with pytest.raises(UnmaskError, match="for `unmask train`, not for `unmask sft`"):
        load_recipe("tiny/forkgrpo", [], SftRecipe)


def test_the_page_of_recipe_keys_is_up_to_date_and_complete() -> None:
    text = page()
    assert (Path(__file__).parents[1] / "docs" / "recipes.md").read_text() == text, "run `make docs`"
    assert "|  |" not in text, "a key has no description"
