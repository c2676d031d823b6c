"""What every algorithm has to do, whoever invented it. A new one joins by its line in `CASES`."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import ALGORITHMS, Algorithm, AlgorithmSettings, Prompts
from unmask.decoding import Decoding, Rollout
from unmask.models import Denoiser
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

LEFT_TO_RIGHT = Decoding(length=6, temperature=0.9)
STATIC = Decoding(order="static", length=6, steps=4, block=3, temperature=0.9)
DYNAMIC = Decoding(order="dynamic", length=6, block=6, threshold=0.4, temperature=0.9)

STOPPING = LEFT_TO_RIGHT.model_copy(update={"stop_at_end": True})

FAST: list[tuple[dict[str, Any], Decoding]] = [
    ({"sparse_replay": True}, LEFT_TO_RIGHT),
    ({"state_share": 0.6}, LEFT_TO_RIGHT),
    ({"pilot": 3, "sparse_replay": True, "state_share": 0.6, "state_draw": "confidence"}, STOPPING),
    ({"pilot": 3, "state_share": 0.6}, DYNAMIC),
    ({"sparse_replay": True}, DYNAMIC),
]
"""ForkGRPO-Fast's settings, one by one and together."""

CASES: dict[str, list[tuple[dict[str, Any], Decoding]]] = {
    "coupled_grpo": [({}, STATIC)],
    "diffu_grpo": [({}, STATIC)],
    "espo": [({}, STATIC)],
    "forkgrpo": [
        *(({"windows": [[1, 2], [3, 4]]}, order) for order in (LEFT_TO_RIGHT, STATIC, DYNAMIC)),
        *(({"windows": [[1, 2], [3, 4]], **fast}, order) for fast, order in FAST),
    ],
    "justgrpo": [({}, LEFT_TO_RIGHT), *((fast, LEFT_TO_RIGHT) for fast, _ in FAST[:3]), ({}, STOPPING)],
    "rldf": [({"steps": 2, "normalization": norm}, DYNAMIC) for norm in ("sample", "token")],
    "spg": [({"block": 3}, STATIC)],
    "tracerl": [({}, DYNAMIC)],
    "wd1": [({}, STATIC)],
}
"""Settings beside the group size, and a decoding, for each algorithm."""

WITHOUT_KL = {"forkgrpo", "justgrpo", "wd1", "spg"}
WITHOUT_RATIO = {"wd1", "spg"}
ALL = pytest.mark.parametrize(
    ("name", "options", "decoding"),
    [(name, options, decoding) for name, cases in CASES.items() for options, decoding in cases],
    ids=[
        f"{name}-{decoding.order}-{index}" for name, cases in CASES.items() for index, (_, decoding) in enumerate(cases)
    ],
)


def build(name: str, options: dict[str, Any], decoding: Decoding, objective: ObjectiveSettings) -> Algorithm:
    settings = TypeAdapter(AlgorithmSettings).validate_python({"name": name, "group_size": 4, **options})
    settings.check(decoding, objective)
    return ALGORITHMS[name](settings, objective)


def test_every_algorithm_is_here() -> None:
    assert CASES.keys() == ALGORITHMS.keys()


@ALL
def test_equal_rewards_give_exactly_zero_policy_gradient(
    make_model: Callable, name: str, options: dict[str, Any], decoding: Decoding
) -> None:
    actor = FixedActor(make_model(), decoding, lambda rollout: torch.full((len(rollout.group),), 0.1))
    algorithm = build(name, options, decoding, ObjectiveSettings())
    experience = algorithm.collect(make_prompts(3, 5, 8, pad=2), actor)
    for plan in algorithm.replay(experience, actor, 2):
        replay = Replay(actor.model, experience.rollout, temperature=0.9, batch_tokens=100)
        _, loss = replay.accumulate(plan.states, plan.objective)
        assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients(actor.model).values())


@ALL
def test_the_ratio_is_exactly_one_in_the_first_update(
    make_model: Callable, name: str, options: dict[str, Any], decoding: Decoding
) -> None:
    """With a clip range of zero any other ratio would count as clipped."""
    actor = FixedActor(make_model(), decoding, parity_reward)
    clip = {} if name in WITHOUT_RATIO else {"clip_low": 0, "clip_high": 0}
    algorithm = build(name, options, decoding, ObjectiveSettings(**clip))
    experience = algorithm.collect(make_prompts(3, 5, 8, pad=2), actor)
    plan = algorithm.replay(experience, actor, 2)[0]
    replay = Replay(actor.model, experience.rollout, temperature=0.9, batch_tokens=100)
    scores, _ = replay.accumulate(plan.states, plan.objective)
    assert plan.states.tokens and torch.equal(scores.old, scores.logprob)
    assert all(gradient.isfinite().all() for gradient in gradients(actor.model).values())
    clipped = plan.objective.measure(scores).get("policy/clip_fraction", torch.zeros(1))
    assert clipped.double().sum() == 0


@dataclass
class Worker(FixedActor):
    """One of several that add up their numbers, each in a thread of its own."""

    meeting: "Meeting | None" = None

    def total(self, value: float) -> float:
        return value if self.meeting is None else self.meeting.total(value)

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        return (rows, 0) if self.meeting is None else self.meeting.gather(rows)


class Meeting:
    """Brings workers' numbers together; all must come, equally often."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.values: dict[int, Any] = {}

    def total(self, value: float) -> float:
        return sum(self._exchange(value).values())

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        parts = self._exchange(rows)
        before = sum(len(part) for worker, part in parts.items() if worker < threading.get_ident())
        return torch.cat([parts[worker] for worker in sorted(parts)]), before

    def _exchange(self, value: Any) -> dict[int, Any]:
        self.values[threading.get_ident()] = value
        self.barrier.wait()
        result = dict(self.values)
        self.barrier.wait()
        return result


def part(prompts: Prompts, index: Tensor) -> Prompts:
    return Prompts(
        prompts.ids[index], prompts.mask[index], prompts.key[index], tuple(prompts.examples[i] for i in index.tolist())
    )


@dataclass
class Outcome:
    """Loss and gradients of two updates on one experience, added up."""

    loss: Tensor
    gradients: dict[str, Tensor]


@dataclass
class Policies:
    """The policy, what it was before the last update, and the reference policy."""

    current: Denoiser
    before: Denoiser
    reference: Denoiser


def outcome(
    policies: Policies,
    algorithm: Algorithm,
    decoding: Decoding,
    prompts: Prompts,
    meeting: Meeting | None = None,
    batch_tokens: int = 10**6,
) -> Outcome:
    actor = Worker(policies.current, decoding, parity_reward, meeting=meeting)
    experience = algorithm.collect(prompts, actor)
    replay = Replay(policies.current, experience.rollout, temperature=0.9, batch_tokens=batch_tokens)
    total = torch.zeros((), dtype=torch.float64)
    for number, plan in enumerate(algorithm.replay(experience, actor, 2)):
        _, loss = replay.accumulate(
            plan.states,
            plan.objective,
            old=replay.score(plan.states, policies.before) if number else None,
            reference=replay.score(plan.states, policies.reference),
        )
        total = total + loss
    return Outcome(total, gradients(policies.current))


def assert_same(found: Outcome, expected: Outcome) -> None:
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-6, atol=1e-12)
    assert found.gradients.keys() == expected.gradients.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.gradients.values())
    assert largest > 0
    for name, gradient in expected.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-6, atol=1e-9 * largest)


def make_policies(make_model: Callable) -> Policies:
    def moved(seed: int) -> Denoiser:
        model: Denoiser = make_model()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator).to(parameter))
        return model

    return Policies(make_model(), moved(1), moved(2))


@ALL
def test_loss_and_gradient_do_not_depend_on_how_the_work_is_divided(
    make_model: Callable, name: str, options: dict[str, Any], decoding: Decoding
) -> None:
    kl = {} if name in WITHOUT_KL else {"kl_weight": 0.3}
    algorithm = build(name, options, decoding, ObjectiveSettings(**kl))
    policies = make_policies(make_model)
    prompts = make_prompts(5, 5, 8, pad=2)
    expected = outcome(policies, algorithm, decoding, prompts)

    for batch_tokens in (1, 45):
        assert_same(outcome(policies, algorithm, decoding, prompts, batch_tokens=batch_tokens), expected)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert_same(outcome(policies, algorithm, decoding, part(prompts, order)), expected)
    pad = torch.nn.functional.pad
    padded = replace(prompts, ids=pad(prompts.ids, (3, 0)), mask=pad(prompts.mask, (3, 0)))
    assert_same(outcome(policies, algorithm, decoding, padded), expected)

    meeting, found = Meeting(2), dict[int, Outcome]()

    def work(worker: int, own: Policies, share: list[int]) -> None:
        found[worker] = outcome(own, algorithm, decoding, part(prompts, torch.tensor(share)), meeting)

    shares = [[0, 2, 3], [1, 4]]
    threads = [
        threading.Thread(target=work, args=(worker, make_policies(make_model), share))
        for worker, share in enumerate(shares)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = {
        key: sum(result.gradients[key] for result in found.values() if key in result.gradients)
        for key in expected.gradients
    }
    assert_same(Outcome(found[0].loss + found[1].loss, together), expected)  # type: ignore[arg-type]


@ALL
@pytest.mark.parametrize("row", [0, 1, 3])
def test_the_only_rewarded_response_becomes_more_probable(
    make_model: Callable, name: str, options: dict[str, Any], decoding: Decoding, row: int
) -> None:
    """After a small step, in the states in which the algorithm itself looks at it. The policy is close to uniform, so
    that the responses share little and none is carried along by what happens to the others."""

    if "pilot" in options:
        pytest.skip("responses are judged as they come, and have no numbers yet")

    def judge(rollout: Rollout) -> Tensor:
        return (torch.arange(len(rollout.group)) == row).double()

    actor = FixedActor(make_model(), decoding, judge)
    with torch.no_grad():
        for parameter in actor.model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.3)
    algorithm = build(name, options, decoding, ObjectiveSettings())
    experience = algorithm.collect(make_prompts(1, 5, 8), actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    replay = Replay(actor.model, experience.rollout, temperature=0.9, batch_tokens=10**6)
    scores, _ = replay.accumulate(plan.states, plan.objective)
    with torch.no_grad():
        for parameter in actor.model.parameters():
            if parameter.grad is not None:
                parameter.sub_(1e-6 * parameter.grad)
    change = replay.score(plan.states) - scores.logprob
    assert change[plan.states.row == row].sum() > 0
