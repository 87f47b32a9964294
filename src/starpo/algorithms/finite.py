"""Numbers that can be computed with: neither NaN nor infinite, nor so large that their squares are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from starpo.errors import UserError

#: Squares of larger numbers come near the end of float32 (3.4e38), and every norm and second moment is made of squares.
LARGEST: Final = 1e18


def all_usable(tensors: Iterable[Tensor]) -> bool:
    """Whether no entry is NaN, infinite or above ``LARGEST`` in magnitude."""
    given = [tensor for tensor in tensors if tensor.numel() and tensor.is_floating_point()]
    return not given or bool(torch.nn.utils.get_total_norm(given, norm_type=torch.inf) <= LARGEST)


def worst(tensor: Tensor) -> float:
    """The first entry that is NaN, else the largest in magnitude, with its sign."""
    flat = tensor.detach().reshape(-1)
    unordered = flat.isnan()
    return float(flat[unordered][0] if bool(unordered.any()) else flat[flat.abs().argmax()])


def checked_file(tensors: Iterable[tuple[str, Tensor]], file: Path) -> list[tuple[str, Tensor]]:
    """``tensors`` of the stored policy's ``file``, by name. Raises ``UserError`` for the first that is not usable."""
    given = list(tensors)
    for name, tensor in given:
        if not all_usable([tensor]):
            raise UserError(
                f"{file}: tensor {name!r} holds {worst(tensor):g}, with which nothing can be computed; restore the "
                "file, or remove its policy's folder and give the same command again, which goes on from an earlier one"
            )
    return given
