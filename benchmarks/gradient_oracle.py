"""Bias and variance of every algorithm's gradient, by enumeration.

With a vocabulary of 3 and responses of 2 tokens all trajectories can be written down: which position is revealed with
which token at which step, and how probable that is. So can all groups that an algorithm may meet. The true policy
gradient is that of the expected reward under the algorithm's own way of decoding, order included, in float64; it is
compared with the mean, over all groups, of the gradient of the algorithm's first update. Masks and steps that an
algorithm draws on top are sampled, `--draws` times for each group.

    cosine     between the mean gradient and the true one: 1 = no bias but for its length, which a learning rate absorbs
    bias       |c · mean − true| / |true| with the best factor c, that is √(1 − cosine²); 1 = orthogonal
    variance   mean |gradient − mean|² / |mean|² of one group of `--group` responses; what a batch divides by its size
    wrong      share of the variance-free signal that points elsewhere: angle between the two in degrees
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from pathlib import Path

import torch
from common import report
from pydantic import TypeAdapter
from torch import Tensor

from unmask.algorithms import ALGORITHMS, Algorithm, AlgorithmSettings, Prompts
from unmask.decoding import Follow, Rollout
from unmask.models import Denoiser
from unmask.models.scratch import ScratchSettings, build
from unmask.objectives import ObjectiveSettings
from unmask.replay import Scores, States

LENGTH = 2
THRESHOLD = 0.6

CASES: dict[str, tuple[str, str, dict[str, object]]] = {
    "JustGRPO": ("justgrpo", "left_to_right", {}),
    "ForkGRPO, groups only": ("forkgrpo", "left_to_right", {"windows": [[1, 1]], "segment_weight": 0}),
    "ForkGRPO, λ = 1": ("forkgrpo", "left_to_right", {"windows": [[1, 1]], "segment_weight": 1}),
    "RLDF, next state": ("rldf", "dynamic", {"steps": 2, "target": "next_state"}),
    "RLDF, clean state": ("rldf", "dynamic", {"steps": 2, "threshold": 0.0}),
    "RLDF, clean state, clipped": ("rldf", "dynamic", {"steps": 2, "threshold": 0.2}),
    "RLDF, clean state, clipped, k = 1": ("rldf", "dynamic", {"steps": 1, "threshold": 0.2}),
    "TraceRL, one step a slice, end tokens scored": ("tracerl", "dynamic", {"shrink": 1, "end_tokens": None}),
    "TraceRL, as its authors set it": ("tracerl", "dynamic", {}),
    "Diffu-GRPO": ("diffu_grpo", "static", {}),
    "wd1": ("wd1", "static", {}),
    "Coupled-GRPO": ("coupled_grpo", "static", {}),
    "ESPO": ("espo", "static", {}),
    "SPG": ("spg", "static", {"masking": "random"}),
}
"""Row of the table → algorithm, reveal order, settings beside the group size."""


@dataclass(frozen=True)
class Trajectory:
    """One way to a response: the tokens and the step each was revealed at (−1 = given), and its probability."""

    tokens: tuple[int, ...]
    steps: tuple[int, ...]
    probability: float


@dataclass
class Oracle:
    """The model's log-probabilities and their gradients, state by state, remembered."""

    model: Denoiser
    prompt: tuple[int, ...]
    known: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    gradients: dict[tuple[tuple[int, ...], int, int], Tensor] = field(default_factory=dict)

    def logprobs(self, state: tuple[int, ...]) -> Tensor:
        """(L, V) of a sequence with mask tokens, differentiable."""
        if state not in self.known:
            logits = self.model(torch.tensor([state])).logits[0, -LENGTH:, : self.model.vocab_size]
            self.known[state] = logits.log_softmax(-1)
        return self.known[state]

    def score_function(self, state: tuple[int, ...], position: int, token: int) -> Tensor:
        """∇ log p(token at position | state), all parameters in one vector."""
        key = (state, position, token)
        if key not in self.gradients:
            self.gradients[key] = self.flat_gradient(self.logprobs(state)[position, token])
        return self.gradients[key]

    def flat_gradient(self, value: Tensor) -> Tensor:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        return torch.cat(
            [
                (torch.zeros_like(parameter) if gradient is None else gradient).flatten()
                for parameter, gradient in zip(parameters, found, strict=True)
            ]
        )

    def state(self, tokens: tuple[int, ...], shown: tuple[bool, ...]) -> tuple[int, ...]:
        """The prompt and the shown tokens, all others masked."""
        mask = self.model.mask_token_id
        return (*self.prompt, *(token if visible else mask for token, visible in zip(tokens, shown, strict=True)))

    def reveals(self, order: str, tokens: tuple[int, ...], shown: tuple[bool, ...]) -> dict[tuple, Tensor]:
        """What one step may reveal, as ((position, token), ...), and with which probability, differentiable."""
        masked = [position for position in range(LENGTH) if not shown[position]]
        if order == "left_to_right":
            masked = masked[:1]
        probabilities = self.logprobs(self.state(tokens, shown)).exp()
        outcomes: dict[tuple, Tensor] = {}
        for drawn in product(range(self.model.vocab_size), repeat=len(masked)):
            each = {position: probabilities[position, token] for position, token in zip(masked, drawn, strict=True)}
            confidence = {position: float(value.detach()) for position, value in each.items()}
            best = max(masked, key=lambda position: confidence[position])
            sure = [p for p in masked if order == "dynamic" and confidence[p] >= THRESHOLD]
            chosen = tuple((p, drawn[masked.index(p)]) for p in masked if p == best or p in sure)
            weight = torch.stack(list(each.values())).prod()
            outcomes[chosen] = outcomes.get(chosen, torch.zeros_like(weight)) + weight
        return outcomes

    def trajectories(
        self,
        order: str,
        tokens: tuple[int, ...] = (0,) * LENGTH,
        steps: tuple[int, ...] = (99,) * LENGTH,
        step: int = 0,
    ) -> Iterator[tuple[Trajectory, Tensor]]:
        """All ways to finish a response, with their probability as a number and as a differentiable tensor."""
        shown = tuple(when < step for when in steps)
        if all(shown):
            yield Trajectory(tokens, steps, 1.0), torch.ones((), dtype=torch.float64)
            return
        for chosen, probability in self.reveals(order, tokens, shown).items():
            next_tokens, next_steps = list(tokens), list(steps)
            for position, token in chosen:
                next_tokens[position], next_steps[position] = token, step
            rest = self.trajectories(order, tuple(next_tokens), tuple(next_steps), step + 1)
            for trajectory, tail in rest:
                whole = probability * tail
                yield Trajectory(trajectory.tokens, trajectory.steps, float(whole.detach())), whole


@dataclass
class OracleActor:
    """Hands out trajectories that were enumerated, call by call."""

    oracle: Oracle
    reward_of: dict[tuple[int, ...], float]
    calls: list[list[Trajectory]]
    reward_range: float = 1.0

    @property
    def end_token_id(self) -> int:
        return self.oracle.model.end_token_id

    def sample(
        self,
        prompts: Prompts,
        prompt: Tensor,
        key: Tensor,
        group: Tensor,
        given_ids: Tensor | None = None,
        is_given: Tensor | None = None,
        follow: Follow | None = None,
    ) -> Rollout:
        rollout = self.handed_out(prompt, group)
        more = None if follow is None else follow(torch.arange(len(prompt)), rollout)
        return rollout if more is None else Rollout.cat([rollout, self.handed_out(more.prompt, more.group)])

    def handed_out(self, prompt: Tensor, group: Tensor) -> Rollout:
        """The next call's trajectories."""
        rows = self.calls.pop(0)
        logprob = torch.zeros(len(rows), LENGTH, dtype=torch.float64)
        entropy = torch.zeros_like(logprob)
        for row, trajectory in enumerate(rows):
            for position, step in enumerate(trajectory.steps):
                if step < 0:
                    continue
                shown = tuple(when < step for when in trajectory.steps)
                logprobs = self.oracle.logprobs(self.oracle.state(trajectory.tokens, shown))[position].detach()
                logprob[row, position] = logprobs[trajectory.tokens[position]]
                entropy[row, position] = -(logprobs.exp() * logprobs).sum()
        steps = torch.tensor([trajectory.steps for trajectory in rows])
        return Rollout(
            prompt_ids=torch.tensor([self.oracle.prompt]).expand(len(rows), -1),
            prompt_mask=torch.ones(len(rows), len(self.oracle.prompt), dtype=torch.bool),
            response_ids=torch.tensor([trajectory.tokens for trajectory in rows]),
            trainable=steps >= 0,
            reveal_step=steps,
            logprob=logprob,
            entropy=entropy,
            prompt=prompt,
            group=group,
            row_forwards=0,
        )

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        return torch.tensor([self.reward_of[tuple(ids)] for ids in rollout.response_ids.tolist()], dtype=torch.float64)

    def total(self, value: float) -> float:
        return value

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        return rows, 0


def gradient(algorithm: Algorithm, actor: OracleActor, key: int) -> Tensor | None:
    """Minus the gradient of the first update's loss: the direction in which the algorithm goes; none = zero."""
    oracle = actor.oracle
    prompts = Prompts(
        torch.tensor([oracle.prompt]), torch.ones(1, len(oracle.prompt), dtype=torch.bool), torch.tensor([key]), ({},)
    )
    experience = algorithm.collect(prompts, actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    states = plan.states
    if not states.tokens:
        return None
    where = [place(oracle, experience.rollout, states, number) for number in range(states.tokens)]
    values = [float(oracle.logprobs(state)[position, token].detach()) for state, position, token in where]
    logprob = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    sampled = experience.rollout.logprob[states.row, states.position]
    scores = Scores(torch.arange(states.tokens), logprob, logprob.detach(), None, sampled)
    (coefficient,) = torch.autograd.grad(plan.objective.loss(scores), logprob)
    return -torch.stack(
        [c * oracle.score_function(*at) for c, at in zip(coefficient, where, strict=True) if c != 0]
        or [torch.zeros_like(oracle.score_function(*where[0]))]
    ).sum(0)


def place(oracle: Oracle, rollout: Rollout, states: States, number: int) -> tuple[tuple[int, ...], int, int]:
    """State, position and token of a scored token."""
    state = int(states.state[number])
    mask = oracle.model.mask_token_id
    prompt = list(oracle.prompt)
    if states.prompt_visible is not None:
        shown = states.prompt_visible[state].tolist()
        prompt = [token if visible else mask for token, visible in zip(prompt, shown, strict=True)]
    ids = rollout.response_ids[states.response[state]].tolist()
    visible = states.visible[state].tolist()
    response = [token if shown else mask for token, shown in zip(ids, visible, strict=True)]
    position = int(states.position[number])
    token = int(rollout.response_ids[states.row[number], position])
    return (*prompt, *response), position, token


def groups(oracle: Oracle, name: str, order: str, size: int) -> Iterator[tuple[float, list[list[Trajectory]]]]:
    """Every group an algorithm may meet, with its probability, as what each of its calls for samples returns."""
    everything = [trajectory for trajectory, _ in oracle.trajectories(order)]
    if name != "forkgrpo":
        for chosen in combinations_with_replacement(range(len(everything)), size):
            rows = [everything[index] for index in chosen]
            yield arrangements(chosen) * math.prod(row.probability for row in rows), [rows]
        return
    for first in everything:  # the reference; the order of the others makes no difference
        given = oracle.trajectories(order, first.tokens, (-1, 99), 0)
        tails = [trajectory for trajectory, _ in given]
        for others in combinations_with_replacement(range(len(everything)), size - 1):
            roots = [first, *(everything[index] for index in others)]
            root = arrangements(others) * math.prod(row.probability for row in roots)
            for branch in combinations_with_replacement(range(len(tails)), size):
                rows = [tails[index] for index in branch]
                fork = arrangements(branch) * math.prod(row.probability for row in rows)
                yield root * fork, [list(roots), rows]


def arrangements(chosen: tuple[int, ...]) -> int:
    """In how many orders the same members can be drawn."""
    return math.factorial(len(chosen)) // math.prod(math.factorial(count) for count in Counter(chosen).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--group", type=int, default=3, help="responses in a group")
    parser.add_argument(
        "--draws", type=int, default=8, help="draws of an algorithm's own masks and steps for each group"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = build(ScratchSettings(alphabet="a", width=16, layers=2, heads=2, mlp_width=24), arguments.seed)[0].double()
    with torch.no_grad():  # away from uniform
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    oracle = Oracle(model, prompt=(0, 1, 0))
    generator = torch.Generator().manual_seed(arguments.seed)
    rewards = torch.rand(model.vocab_size**LENGTH, generator=generator, dtype=torch.float64).round(decimals=1)
    # as with any task, what follows the end token does not matter
    responses = list(product(range(model.vocab_size), repeat=LENGTH))
    first_end = [next((i for i, token in enumerate(r) if token == model.end_token_id), LENGTH) for r in responses]
    same = [
        responses.index((*r[:end], *[model.end_token_id] * (LENGTH - end)))
        for r, end in zip(responses, first_end, strict=True)
    ]
    reward_of = {response: float(rewards[index]) for response, index in zip(responses, same, strict=True)}

    result: dict[str, float] = {}
    print("| algorithm | order | cosine | bias | angle | variance |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for row, (name, order, options) in CASES.items():
        true = oracle.flat_gradient(torch.stack([p * reward_of[t.tokens] for t, p in oracle.trajectories(order)]).sum())
        options = {"name": name, "group_size": arguments.group, **options}
        settings = TypeAdapter(AlgorithmSettings).validate_python(options)
        algorithm = ALGORITHMS[name](settings, ObjectiveSettings())
        is_random = order == "static" or options.get("steps") == 1
        mean, square, total = torch.zeros_like(true), 0.0, 0.0
        for number, (probability, calls) in enumerate(groups(oracle, name, order, arguments.group)):
            total += probability
            draws = arguments.draws if is_random else 1
            for draw in range(draws):
                actor = OracleActor(oracle, reward_of, [list(rows) for rows in calls])
                found = gradient(algorithm, actor, number * draws + draw)
                if found is not None:
                    mean += probability / draws * found
                    square += probability / draws * float(found.square().sum())
        assert abs(total - 1) < 1e-9, "the groups' probabilities do not add up to 1"
        cosine = float(torch.dot(mean, true) / (mean.norm() * true.norm()))
        bias = math.sqrt(max(0.0, 1 - cosine**2))
        angle = math.degrees(math.acos(min(1.0, cosine)))
        variance = (square - float(mean.square().sum())) / float(mean.square().sum())
        print(
            f"| {row} | {order.replace('_', ' ')} | {cosine:.4f} | {bias:.4f} | {angle:.1f}° | {variance:.1f} |",
            flush=True,
        )
        result |= {f"cosine/{row}": cosine, f"bias/{row}": bias, f"variance/{row}": variance}
    report(result, arguments.json)


if __name__ == "__main__":
    main()
