"""Workers that share one job: each holds the whole model and takes its share of every step's prompts.

Losses are normalised over the prompts of all workers, so gradients are summed, not averaged, and the number of
workers changes nothing but the time (and the draws of dropout, which belong to a worker's micro-batches). Started by
torchrun, which sets RANK, WORLD_SIZE and LOCAL_RANK.
"""

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unmask.errors import UnmaskError


class World:
    """This worker's place among all; a lone process is a world of one and communicates with nobody."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @property
    def is_main(self) -> bool:
        """Whether this worker writes files and talks to people."""
        return self.rank == 0

    def share(self, total: int) -> range:
        """The indices of `total` equal pieces that fall to this worker."""
        return range(self.rank, total, self.size)

    def total(self, value: float) -> float:
        """Sum of a number over all workers."""
        if self.size == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64, device=device())
        dist.all_reduce(number)
        return number.item()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all workers, in place; a worker without any contributes zeros."""
        if self.size == 1:
            return
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        gradients: list[Tensor] = [
            parameter.grad if parameter.grad is not None else torch.zeros_like(parameter) for parameter in parameters
        ]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        pieces = flat.split([parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def gather(self, item: object) -> list[object]:
        """Every worker's object, in rank order, on every worker."""
        if self.size == 1:
            return [item]
        items: list[object] = [None] * self.size
        dist.all_gather_object(items, item)
        return items

    def barrier(self) -> None:
        """Wait until all workers are here."""
        if self.size > 1:
            dist.barrier()


def start() -> World:
    """Join the workers that torchrun started, or be alone.

    Raises:
        UnmaskError: the process group has another size than the launcher promised.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World(0, 1)
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if dist.get_world_size() != size:
        raise UnmaskError(f"WORLD_SIZE={size}, but {dist.get_world_size()} processes have joined; start with torchrun")
    return World(dist.get_rank(), size)


def device() -> torch.device:
    """This worker's device."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
