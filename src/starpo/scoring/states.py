"""Which environments are asked about the states behind stored texts."""

from __future__ import annotations

from functools import partial

from starpo.config.environment import EnvironmentConfig, MixtureMember
from starpo.environments.base import TextEnvironment
from starpo.environments.contract import OWN_FAILURES, close, not_built
from starpo.environments.registry import recipe
from starpo.rewards.trajectory import States


def known_states(environment: EnvironmentConfig) -> States:
    """By the environments' names in the tables; each is built in this process when a term first asks for a state."""
    return States(
        {
            environment.name if environment.mixture is None else member.known_as: partial(_knowing, member)
            for member in environment.members
        }
    )


def _knowing(member: MixtureMember) -> TextEnvironment | None:
    """The environment; None where its class knows no states, without building it."""
    wanted = recipe(member.name, **member.arguments)
    factory = wanted.factory()
    methods = ("facts", "distance")
    if isinstance(factory, type) and all(
        getattr(factory, name, None) is getattr(TextEnvironment, name) for name in methods
    ):
        return None
    try:
        env = wanted.build()
    except OWN_FAILURES as error:
        raise not_built(member.name, error) from error
    if any(env.knows(name) for name in methods):
        return env
    close(env)
    return None
