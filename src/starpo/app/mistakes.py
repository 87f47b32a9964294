"""What of an error a person can mend."""

from __future__ import annotations

from starpo.environments.contract import ContractError
from starpo.errors import UserError
from starpo.store.durable import machine_fault


def user_mistake(error: BaseException | None) -> str | None:
    """What a person can mend behind ``error``, such as a ``UserError`` that Kedro wrapped or a full disk; or None."""
    chain = []
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    for each in chain:
        if isinstance(each, UserError):
            return str(each)
        if isinstance(each, ContractError):
            return f"{each}. Mend the environment; docs/add_an_environment.md says what it owes"
    return next((sentence for each in reversed(chain) if (sentence := machine_fault(each))), None)
