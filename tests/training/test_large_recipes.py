"""The recipes for 8B models, two steps each on a small checkpoint in the released layout, then resumed."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import unmask
from unmask.models import save
from unmask.models.dream import DreamConfig, DreamModel
from unmask.models.scratch import ScratchSettings, build
from unmask.runs import resume, train

CHAT = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<' + message['role'] + '>' + message['content'] | trim %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A folder with a small LLaDA and a small Dream with chat templates, which can write the sudoku instruction."""
    alphabet = "".join(sorted({chr(code) for code in range(32, 127)} | {"\n"}))
    model, tokenizer = build(ScratchSettings(alphabet=alphabet, width=16, layers=2, heads=2, mlp_width=32), 0)
    tokenizer.chat_template = CHAT
    save(model, tokenizer, tmp_path / "llada")
    config = DreamConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=len(tokenizer),
        mask_token_id=tokenizer.mask_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save(DreamModel(config), tokenizer, tmp_path / "dream")
    return tmp_path


BLOCKS = ["decoding.steps=4", "decoding.block=4", "trainer.updates_per_rollout=2"]
"""For recipes that decode in blocks and learn from a batch several times."""

DYNAMIC = [
    "algorithm.threshold=0.001",
    "decoding.block=4",
    "decoding.horizon=2",
    "trainer.prompts_per_step=4",
    "evaluation.decoding.block=8",
]
RECIPES = {
    "dream/coupled_grpo": BLOCKS,
    "dream/rldf_code": DYNAMIC,
    "dream/rldf_math": DYNAMIC,
    "llada/diffu_grpo": BLOCKS,
    "llada/espo": BLOCKS,
    "llada/forkgrpo": ["algorithm.windows=[[1,2],[3,4],[5,6]]"],
    "llada/forkgrpo_fast": ["algorithm.windows=[[1,2],[3,4],[5,6]]", "algorithm.pilot=2", "decoding.stop_at_end=true"],
    "llada/justgrpo": [],
    "llada/rldf_code": DYNAMIC,
    "llada/rldf_math": DYNAMIC,
    "llada/spg": [*BLOCKS, "algorithm.block=4"],
    "llada/tracerl": BLOCKS,
    "llada/wd1": BLOCKS,
}
"""What fits each to short responses."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_large_recipes_run_and_resume(
    recipe: str, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = checkpoints / recipe.split("/")[0]
    # a reward that an untrained model can vary in
    monkeypatch.setattr("unmask.tasks.Sudoku.reward", lambda *asked: float(sum(map(ord, asked[-1])) % 2))
    overrides = [
        f"model.name={checkpoint}",
        "task={name: sudoku}",
        "model.dtype=float32",
        "model.lora.rank=4",
        "trainer.prompts_per_step=2",
        "trainer.checkpoint_every=1",
        "algorithm.group_size=2",
        "decoding.length=8",
        "evaluation.every=1",
        "evaluation.examples=2",
        "evaluation.decoding.length=32",
        *(["evaluation.decoding.steps=8"] if "rldf" not in recipe else []),
        *RECIPES[recipe],
    ]
    straight = train(recipe, [*overrides, "trainer.steps=2", f"run.dir={tmp_path / 'straight'}"])
    assert sum(step["states/replayed"] for step in straight.metrics) > 0
    train(recipe, [*overrides, "trainer.steps=1", f"run.dir={tmp_path / 'halved'}"])
    halved = resume(tmp_path / "halved", ["trainer.steps=2"])
    untimed = [
        [{k: v for k, v in step.items() if not k.startswith("time/")} for step in result.metrics]
        for result in (straight, halved)
    ]
    assert untimed[0] == untimed[1]
    last = "checkpoints/step-000002/adapter_model.safetensors"
    one, other = load_file(tmp_path / "straight" / last), load_file(tmp_path / "halved" / last)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert any(weight.abs().sum() > 0 for name, weight in one.items() if "lora_B" in name)
    model, _ = unmask.load(str(tmp_path / "straight" / "checkpoints" / "step-000002"))
    base, _ = unmask.load(str(checkpoint))
    ids = torch.randint(2, 50, (1, 10), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), unmask.models.without_adapter(model):
        torch.testing.assert_close(model(ids).logits, base(ids).logits)
