"""`Decoding`: every choice of how responses are sampled, checked when a recipe is read."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

OrderName = Literal["left_to_right", "static", "dynamic", "random"]
MeasureName = Literal["probability", "margin", "negative_entropy"]


class Decoding(BaseModel):
    """How responses are sampled. METHODS: explore; "Sequential decoding", RLDF "explore"."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    order: OrderName = "left_to_right"
    """Which positions a step reveals."""
    length: int = Field(256, ge=1)
    """Response length L in tokens; every response has exactly this many positions."""
    steps: int | None = Field(None, ge=1)
    """Decoding steps of a whole response (static and random order); none means one token a step."""
    block: int | None = Field(None, ge=1)
    """Tokens in a block (all orders but left_to_right); none means one block over the whole response."""
    schedule: Literal["even", "linear"] = "even"
    """How many tokens a step of the static or random order reveals: `even` is masked // steps, the first remainder
    steps one more (LLaDA); `linear` is int(masked · (1 − s/t)) on times from 1 down to 0.001, the last step all
    (Dream). Steps that would reveal nothing are not computed. Random and linear reveal each position
    with probability 1 − s/t."""
    opening: Literal["order", "first_token"] = "order"
    """What a block's first step reveals: what the order picks, or only the block's first token (static and dynamic
    order; Fast-dLLM's and RLDF's sampler for Dream)."""
    measure: MeasureName = "probability"
    """Confidence that the static and dynamic order compare: probability of the drawn token; `margin` between the two
    most likely; `negative_entropy` in nats, which is never positive, so that the dynamic order reveals one a step."""
    threshold: float = Field(0.9, gt=0, le=1)
    """Confidence from which the dynamic order reveals a position."""
    temperature: float = Field(1.0, ge=0)
    """Sampling temperature; 0 takes the most likely token."""
    sampler: Literal["categorical", "gumbel"] = "categorical"
    """How a token is drawn and what confidence is measured on: `categorical` from the tempered and truncated softmax,
    confidence from the same (Dream); `gumbel` as the largest of logits + temperature · Gumbel noise, confidence from
    the softmax at temperature 1 (LLaDA). Without truncation both draw from the same distribution."""
    top_k: int | None = Field(None, ge=1)
    """Categorical draws only among this many most likely tokens."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Categorical draws only among the most likely tokens that together reach this probability."""
    stop_at_end: bool = False
    """A response ends at its first end token: positions behind it that are still masked are never sampled, and nobody
    trains on them or counts them. They stay masked for the model and hold end tokens in the finished response."""
    guidance: float = Field(0.0, ge=0)
    """Classifier-free guidance w: logits u + (w + 1) · (c − u), u with the prompt masked out; 0 = off, else
    twice the rows."""
    cache: Literal["none", "prefix", "dual"] = "none"
    """Keys and values kept while a block is decoded, an approximation (Fast-dLLM): `prefix` those before the block,
    `dual` those after it too. Renewed by a full pass at the start of every block. Takes memory for `batch_tokens`
    tokens, 0.5 MiB each for LLaDA-8B."""
    horizon: int | None = Field(None, ge=0)
    """With a cache: tokens after the block that its steps still see; none means everything after."""
    batch_tokens: int = Field(65_536, ge=1)
    """Most tokens (rows × (prompt + response)) in flight, on a GPU in one forward pass; a limit of memory, not of
    results."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.order == "left_to_right":
            self._agree_left_to_right()
        else:
            self._agree_blocks()
        if self.sampler == "gumbel":
            for key in ("top_k", "top_p"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key}={getattr(self, key)}: gumbel draws are not truncated; use categorical")
        if self.cache == "none" and self.horizon is not None:
            raise ValueError(f"horizon={self.horizon}: only a cache has one; leave horizon out or set cache")
        if self.cache != "none" and self.guidance:
            raise ValueError(f"cache={self.cache} does not work with guidance={self.guidance:g}; leave one of them out")
        return self

    def _agree_left_to_right(self) -> None:
        if self.steps not in (None, self.length):
            raise ValueError(f"steps={self.steps}: left_to_right reveals one token a step; leave steps out")
        if self.block not in (None, 1, self.length):
            raise ValueError(f"block={self.block}: left_to_right knows no blocks; leave block out")
        for key in ("schedule", "opening", "measure", "cache"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}={getattr(self, key)}: left_to_right has no use for it; leave {key} out")

    def _agree_blocks(self) -> None:
        block = self.block or self.length
        if self.length % block:
            raise ValueError(f"block={block} does not divide length={self.length}")
        if self.order == "dynamic":
            if self.steps is not None:
                raise ValueError(f"steps={self.steps}: the dynamic order decides its steps by threshold; leave it out")
            if self.schedule != "even":
                raise ValueError(f"schedule={self.schedule}: the dynamic order has no schedule; leave it out")
        blocks = self.length // block
        if self.steps is not None and self.steps % blocks:
            raise ValueError(f"steps={self.steps} does not divide over the {blocks} blocks of {block} tokens")
        if self.order == "random":
            for key in ("measure", "opening"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}={getattr(self, key)}: the random order has no use for it; leave it out")
        if self.opening == "first_token" and self.order == "static" and self.steps_per_block == 1 < block:
            raise ValueError(f"steps={self.steps}: opening=first_token needs at least 2 steps a block")
        if self.cache != "none" and not 1 < block < self.length:
            raise ValueError(
                f"cache={self.cache} is renewed at every block and needs several of at least 2 tokens; "
                f"set block, which is {self.block or 'not given'}, to less than length={self.length}"
            )

    @property
    def block_length(self) -> int:
        return 1 if self.order == "left_to_right" else self.block or self.length

    @property
    def most_steps(self) -> int:
        """Most steps that reveal anything: one token each, unless the static or random order has fewer."""
        return min(self.length, self.steps or self.length)

    @property
    def steps_per_block(self) -> int:
        """Steps of the static and random order in each block."""
        return (self.steps or self.length) // (self.length // self.block_length)
