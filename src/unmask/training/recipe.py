"""Recipe: the settings of all parts of a run put together and checked against one another.

Each part keeps its own settings next to what they configure. Reading YAML, and errors for people, are
`unmask.config`'s.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unmask.algorithms import AlgorithmSettings
from unmask.decoding import Decoding
from unmask.models import LoraSettings
from unmask.models.scratch import ScratchSettings
from unmask.objectives import ObjectiveSettings
from unmask.tasks import TaskSettings
from unmask.training.optimizer import OptimizerSettings
from unmask.training.sft import SftSettings


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunSettings(Section):
    """Where the run is kept."""

    dir: str | None = None
    """The run's folder; none picks a free `runs/<recipe>`."""


class ModelSettings(Section):
    """The denoiser that is trained."""

    name: str = "tiny"
    """Hub name, folder, `tiny` (shipped), or `scratch` (a new model of the shape in `model.scratch`)."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Weights' number format; auto is bfloat16 for an adapter's base on a GPU, and float32 otherwise."""
    lora: LoraSettings | None = None
    """Train low-rank adapters and leave the weights alone; none trains all weights."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    scratch: ScratchSettings | None = None
    """Shape of a new model, for `name: scratch`."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.name == "scratch") != (self.scratch is not None):
            raise ValueError("scratch: name=scratch and the section scratch go together")
        if self.scratch and (self.lora or self.dtype not in ("auto", "float32")):
            raise ValueError("scratch: a new model is trained whole and in float32; leave lora and dtype out")
        return self


class TrainerSettings(Section):
    """Length of training and what is written."""

    steps: int = Field(100, ge=1)
    """Rollout batches, each followed by `updates_per_rollout` optimizer updates."""
    prompts_per_step: int = Field(64, ge=1)
    """Prompts of one update over all workers together."""
    max_tokens: int | None = Field(None, ge=2)
    """Training examples with more tokens than this, prompt (as the model is shown it) and response together, are left
    out; none = keep all."""
    updates_per_rollout: int = Field(1, ge=1)
    """Optimizer updates on each rollout batch; from the second on, ratios are clipped against the first."""
    batch_tokens: int = Field(65_536, ge=1)
    """Most tokens in one replay micro-batch; a limit of memory, not of results (but for dropout's draws)."""
    checkpoint_every: int = Field(50, ge=0)
    """Steps between checkpoints; 0 keeps only the last."""
    samples_per_step: int = Field(4, ge=0)
    """Rollouts written to samples/ at each step."""


class EvaluationSettings(Section):
    """Accuracy on the task's evaluation examples while training."""

    every: int = Field(0, ge=0)
    """Steps between evaluations, also before the first and after the last step; 0 = never."""
    examples: int | None = Field(None, ge=1)
    """Evaluation examples used; none = all."""
    decoding: Decoding = Decoding()
    """How the answers are decoded."""


class DistributedSettings(Section):
    """How workers share the job."""

    strategy: Literal["replicate"] = "replicate"
    """Every worker holds the whole model and takes its share of each step's prompts."""


class Recipe(Section):
    """Everything a reinforcement learning run needs; `unmask train` runs it."""

    seed: int = Field(0, ge=0)
    """Every random draw of the run derives from it."""
    run: RunSettings = RunSettings()
    model: ModelSettings = ModelSettings()
    task: TaskSettings
    algorithm: AlgorithmSettings
    decoding: Decoding = Decoding()
    objective: ObjectiveSettings = ObjectiveSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    trainer: TrainerSettings = TrainerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    distributed: DistributedSettings = DistributedSettings()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        self.algorithm.check(self.decoding, self.objective)
        objective = self.objective
        if objective.kl_weight and objective.reference == "rollout" and self.trainer.updates_per_rollout == 1:
            raise ValueError(
                f"objective.kl_weight={objective.kl_weight:g}: with objective.reference=rollout and one update the "
                "divergence is zero; set trainer.updates_per_rollout above 1, reference=start, or kl_weight=0"
            )
        limit, length = self.trainer.max_tokens, self.decoding.length
        if limit is not None and limit <= length:
            raise ValueError(
                f"trainer.max_tokens={limit}: no prompt fits beside a response of decoding.length={length} tokens; "
                "use more"
            )
        if self.model.dtype in ("bfloat16", "float16") and self.model.lora is None:
            raise ValueError(
                f"model.dtype={self.model.dtype}: whole weights in 16 bits are too coarse for such small steps, which "
                "would be lost; set model.dtype=float32, or train an adapter with model.lora"
            )
        if self.decoding.guidance:
            raise ValueError(
                f"decoding.guidance={self.decoding.guidance:g}: what is trained is the model without guidance, and its "
                "rollouts would be another policy's; leave it out, or set it in evaluation.decoding"
            )
        return self


class SftRecipe(Section):
    """Everything a supervised run needs; `unmask sft` runs it."""

    seed: int = Field(0, ge=0)
    """Every random draw of the run derives from it."""
    run: RunSettings = RunSettings()
    model: ModelSettings = ModelSettings()
    task: TaskSettings
    sft: SftSettings
    optimizer: OptimizerSettings = OptimizerSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
