"""Whether the configured estimator and policy loss work: tried on a tiny batch before any work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from starpo.algorithms.estimators import AdvantageBatch
from starpo.algorithms.registry import advantage_estimator, estimator_needs, policy_loss_function
from starpo.config.algorithm import AlgorithmConfig
from starpo.config.parameters import Parameters
from starpo.errors import UserError

#: Sampled tokens of a trial row: two turns with a context token before, between and after them.
_SAMPLED = (False, True, True, False, True, False)
_TURN = (0, 0, 0, 0, 1, 0)


def check_objective(parameters: Parameters) -> None:
    """Raise ``UserError`` for an unknown name or parameter, or a value that the function itself refuses."""
    algorithm, rollout = parameters.algorithm, parameters.rollout
    if estimator_needs(algorithm.estimator).group and rollout.group_size == 1:
        raise UserError(
            f"rollout.group_size = 1 with algorithm.estimator = {algorithm.estimator!r}: it compares the members of "
            "a group, at least 2; raise group_size or use gae or reinforce_plus_plus"
        )
    _check_estimator(algorithm, members=rollout.group_size)
    _check_policy_loss(algorithm)


def _check_estimator(algorithm: AlgorithmConfig, *, members: int) -> None:
    estimator = advantage_estimator(algorithm.estimator, **algorithm.estimator_parameters)
    rows = 2 * members
    mask = torch.tensor(_SAMPLED).expand(rows, -1)
    turns = torch.ones(rows, 2, dtype=torch.bool)
    batch = AdvantageBatch(
        mask=mask,
        turn_index=torch.tensor(_TURN).expand(rows, -1),
        turn_rewards=torch.arange(2.0 * rows).reshape(rows, 2),
        turn_mask=turns,
        group_ids=torch.arange(rows) // members,
        values=torch.zeros(mask.shape) if estimator_needs(algorithm.estimator).critic else None,
        anchors=torch.zeros(rows, 2, dtype=torch.int64),
    )
    key = f"algorithm.estimator = {algorithm.estimator!r} with {_shown(algorithm.estimator_parameters)}"
    result = _try(key, lambda: estimator(batch))
    for name in ("advantages", "returns"):
        _check_tensor(f"{key}: its {name}", getattr(result, name, None), mask.shape)


def _check_policy_loss(algorithm: AlgorithmConfig) -> None:
    loss = policy_loss_function(algorithm.policy_loss, **algorithm.policy_loss_parameters)
    mask = torch.tensor([_SAMPLED, _SAMPLED])
    logp = torch.full(mask.shape, -1.0)
    advantages = torch.tensor([[1.0], [-1.0]]).expand(mask.shape)
    key = f"algorithm.policy_loss = {algorithm.policy_loss!r} with {_shown(algorithm.policy_loss_parameters)}"
    result = _try(key, lambda: loss(logp, logp, advantages, mask))
    _check_tensor(f"{key}: its loss", getattr(result, "loss", None), mask.shape)


def _try(key: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except UserError:
        raise
    except Exception as error:  # the function may be a user's own
        raise UserError(f"{key}: {error or type(error).__name__}") from error


def _check_tensor(what: str, found: Any, shape: torch.Size) -> None:
    if not isinstance(found, Tensor) or found.shape != shape:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(f"{what} must be a tensor with one value per token, {tuple(shape)} here, got {got}")
    if not bool(torch.isfinite(found).all()):
        raise UserError(f"{what} must be finite, got {float(found[~torch.isfinite(found)][0])}")


def _shown(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in parameters.items()) or "its default parameters"
