"""What an update costs in tokens and states, told from how its rewards came out or from what is expected of them.

Counts only, no time and no model; `unmask.cost` makes arithmetic operations of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.credit import group_statistics, significant
from unmask.decoding import Rollout

Window = tuple[int, int]


@dataclass(frozen=True)
class Outcome:
    """How an update of n prompts came out, in groups j = 0..K of each: 0 holds the roots, the others branch off.

    Numbers of one update are whole; expected ones need not be: a share stands for a chance.
    """

    count: Tensor
    """(n, K+1) float64: responses in the group; 0 where there is none."""
    start: Tensor
    """(n, K+1) float64: tokens that are given when the group begins, 0..L; L where there is none."""
    mixed: Tensor
    """(n, K+1) float64: 1 where the group's rewards vary."""
    changed: Tensor
    """(n, K+1) float64: 1 where the value changes from the group's start to the next one's, or to the end."""
    mixed_count: Tensor
    """(n, K+1) float64: responses of the group if its rewards vary. Expected groups are of two sizes with a pilot."""
    credited_count: Tensor
    """(n, K+1) float64: those of them whose reward is not the group's mean."""
    credited_reference: Tensor
    """(n, 1) float64: 1 where the reference's reward is not the mean of its group, the roots."""

    @staticmethod
    def read(rollout: Rollout, reward: Tensor) -> "Outcome":
        """The outcome of rollouts (B rows) whose groups are numbered by prompt, and their rewards (B,).

        The first response of a prompt is the reference that others branch off.
        """
        length = rollout.response_ids.shape[1]
        reward, group = reward.double().cpu(), rollout.group.cpu()
        statistics = group_statistics(reward, group)
        is_credited = (statistics.centered(reward, group) != 0).double()  # (B,)
        first = first_of_each(group)  # (G,) a row of each group
        prompt, given = rollout.prompt.cpu()[first], (rollout.reveal_step.cpu() == -1).sum(-1)[first]
        place = torch.arange(len(first)) - first_of_each(prompt)[prompt]  # (G,) a group's number in its prompt
        zeros = torch.zeros(int(prompt.max()) + 1, int(place.max()) + 1, dtype=torch.float64)
        count, mixed, credited = zeros.clone(), zeros.clone(), zeros.clone()
        start = torch.full_like(zeros, length)
        reference = first_of_each(rollout.prompt.cpu())
        terminal = reward[reference]
        value = terminal.unsqueeze(-1).repeat(1, zeros.shape[1] + 1)  # V_0 .. V_{K+1}
        count[prompt, place] = statistics.count
        start[prompt, place] = given.double()
        mixed[prompt, place] = statistics.is_mixed.double()
        credited[prompt, place] = torch.zeros(len(first), dtype=torch.float64).index_add(0, group, is_credited)
        value[prompt, place] = statistics.mean
        changed = significant(value.diff(dim=-1), terminal.max() - terminal.min()) != 0
        return Outcome(count, start, mixed, changed.double(), count, credited, is_credited[reference].unsqueeze(-1))

    @staticmethod
    def expected(
        prompts: int, count: int, start: list[float], mixed: float, changed: float = 1.0, pilot: int | None = None
    ) -> "Outcome":
        """The same outcome for every prompt; no reward is exactly the mean of others that differ.

        Args:
            count: responses in each group.
            start: tokens given at the start of each group, the first 0.
            mixed: share of groups whose rewards vary, as `groups/mixed` logs it.
            changed: share of segments along which the value changes.
            pilot: responses in groups whose rewards do not vary; none = as many as in the others.
        """
        starts = torch.tensor(start, dtype=torch.float64).expand(prompts, -1)
        average = count if pilot is None else pilot + mixed * (count - pilot)
        values = (average, mixed, changed, float(count))
        counts, mixtures, changes, mixed_counts = (torch.full_like(starts, value) for value in values)
        return Outcome(counts, starts, mixtures, changes, mixed_counts, mixed_counts, mixtures[:, :1])

    def tokens_generated(self, length: int) -> float:
        """Σ_j M_j (L − a_j) over all prompts. Source: METHODS "ForkGRPO", explore; K = 0 for every other algorithm."""
        return (self.count * (length - self.start)).sum().item()

    def responses(self, only_mixed: bool = True) -> float:
        """Responses of all groups, or of those whose rewards vary."""
        return (self.mixed_count * self.mixed if only_mixed else self.count).sum().item()


def first_of_each(number: Tensor) -> Tensor:
    """(G,) where each of the numbers 0..G−1 occurs first in (B,)."""
    places = torch.arange(len(number), device=number.device)
    return torch.full_like(places[: int(number.max()) + 1], len(number)).scatter_reduce(0, number, places, "amin")


@dataclass(frozen=True)
class Replayed:
    """What an optimizer update looks at again, as `states/replayed` and `tokens/replayed` log it."""

    states: float
    tokens: float

    @staticmethod
    def of(responses: float, states: float, tokens: float) -> "Replayed":
        """So many states and tokens of each response."""
        return Replayed(responses * states, responses * tokens)
