"""The episode loop: many trajectories at once, each joining the next batch as soon as its environment answered.

Scheduling is deterministic: episodes are submitted in their order, completions of one engine step are handled
in the order of their requests, and request numbers never depend on time. The environments of one engine step are
asked together, so that worker processes step them side by side while the engine waits; letting it decode on would
make batches depend on how fast an environment is.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from starpo.agent.records import Address, StopReason, Trajectory
from starpo.agent.template import ChatTemplate
from starpo.config.agent import AgentConfig
from starpo.config.environment import MixtureMember
from starpo.environments.registry import recipe
from starpo.environments.splits import Instance, Split
from starpo.heartbeat import beat
from starpo.rollout.engine import Engine, Sampling
from starpo.rollout.environments import (
    Act,
    Draw,
    Environments,
    Failure,
    Leave,
    LocalEnvironments,
    Open,
    Reading,
    Task,
)
from starpo.rollout.episode import Episode, too_long
from starpo.rollout.mixture import deal
from starpo.seeds import Purpose, SeedKey

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RolloutPlan:
    """Which trajectories to draw."""

    environment: str
    """Registered name; with a mixture the name of the whole."""
    arguments: dict[str, object]
    """Arguments of the environment; empty with a mixture."""
    split: Split
    """Split of the instances."""
    stream: str
    """Seed stream: the split's name in training, the suite's in evaluation."""
    seed: int
    """Root seed."""
    iteration: int
    """Iteration of the run; 0 in evaluation: common random numbers between policies."""
    groups: int
    """Prompts."""
    group_size: int
    """Trajectories per prompt."""
    temperature: float
    """Of the sampling."""
    top_p: float = 1.0
    """Nucleus mass."""
    instances: tuple[Instance, ...] | None = None
    """Group g plays ``instances[g]``, as in evaluation on fixed prompts; None draws them from the split."""
    round: int = 0
    """Re-sampling round; its groups are numbered from ``round * groups`` on."""
    mixture: tuple[MixtureMember, ...] = ()
    """Environments that the groups are dealt to by weight; empty: ``environment`` alone."""

    def tasks(self) -> list[Task]:
        """The environment of each group, in the order of the groups."""
        if not self.mixture:
            return [Task(self.environment, recipe(self.environment, **self.arguments))] * self.groups
        tasks = [Task(each.known_as, recipe(each.name, **each.arguments)) for each in self.mixture]
        key = SeedKey(self.seed, Purpose.MIXTURE, self.stream, self.iteration, round=self.round)
        return [tasks[number] for number in deal([each.weight for each in self.mixture], self.groups, key)]


def reading_of(agent: AgentConfig) -> Reading:
    """How ``agent``'s responses are read."""
    return Reading(agent.think, agent.action_separator)


def begin_episodes(
    plan: RolloutPlan, agent: AgentConfig, template: ChatTemplate, environments: Environments
) -> list[Trajectory | Episode]:
    """All episodes of ``plan``, group by group; members share the instance and nothing else.

    Number n of the list is episode n of ``environments``. Where ``reset`` failed there is a trajectory without turns
    instead, ended by the environment's error. Raises ``ValueError`` if the plan names instances, but not one for
    each group.
    """
    if plan.instances is not None and len(plan.instances) != plan.groups:
        raise ValueError(f"{len(plan.instances)} instances for {plan.groups} groups; give one for each")
    tasks, first = plan.tasks(), plan.round * plan.groups
    keys = [
        SeedKey(plan.seed, Purpose.INSTANCE, plan.stream, plan.iteration, first + group, plan.round)
        for group in range(plan.groups)
    ]
    instances: list[Instance | Failure] = list(plan.instances or ()) or environments.answer(
        [Draw(group, tasks[group], plan.split, keys[group]) for group in range(plan.groups)]
    )
    begun: list[Trajectory] = []
    owners: list[SeedKey] = []
    for group, instance in enumerate(instances):
        for member in range(plan.group_size):
            own = dataclasses.replace(keys[group], member=member)
            failed = instance.error if isinstance(instance, Failure) else ""
            begun.append(
                Trajectory(
                    Address(
                        tasks[group].label,
                        plan.split.value,
                        plan.stream,
                        plan.iteration,
                        first + group,
                        member,
                    ),
                    instance_seed=-1 if isinstance(instance, Failure) else instance.seed,
                    dynamics_seed=dataclasses.replace(own, purpose=Purpose.DYNAMICS).integer(),
                    stop_reason=StopReason.ENVIRONMENT_ERROR if failed else None,
                    error=failed,
                )
            )
            owners.append(own)
    numbers = [number for number, trajectory in enumerate(begun) if trajectory.stop_reason is None]
    openings = environments.answer(
        [
            Open(
                number,
                tasks[begun[number].address.group - first],
                begun[number].instance_seed,
                begun[number].dynamics_seed,
            )
            for number in numbers
        ]
    )
    episodes: list[Trajectory | Episode] = list(begun)
    for number, opening in zip(numbers, openings, strict=True):
        failed = opening.error if isinstance(opening, Failure) else ""
        if not failed and (failed := too_long(begun[number], opening.observation, agent, template)):
            environments.answer([Leave(number)])
        if failed:
            begun[number].stop_reason = StopReason.ENVIRONMENT_ERROR
            begun[number].error = failed
        else:
            episodes[number] = Episode(begun[number], opening, owners[number], agent, template)
    return episodes


def run_episodes(
    engine: Engine,
    episodes: Sequence[Trajectory | Episode],
    environments: Environments,
    *,
    temperature: float,
    top_p: float,
) -> list[Trajectory]:
    """Play all episodes to their end; returns their trajectories in the given order."""
    sampling = Sampling(temperature, top_p, max_tokens=1, seed=0)
    waiting: dict[int, tuple[int, Episode]] = {}
    requests = iter(range(1 << 62))

    def submit(number: int, episode: Episode) -> bool:
        asked = episode.next_request(sampling)
        if asked is not None:
            request = next(requests)
            waiting[request] = number, episode
            engine.submit(request, *asked)
        return asked is not None

    for number, episode in enumerate(episodes):
        if isinstance(episode, Episode):
            submit(number, episode)
    while waiting:
        finished = [(completion, *waiting.pop(completion.request)) for completion in engine.poll()]
        beat()
        outcomes = environments.answer(
            [Act(number, *episode.response(completion)) for completion, number, episode in finished]
        )
        over = []
        for (completion, number, episode), outcome in zip(finished, outcomes, strict=True):
            episode.receive(completion, outcome)
            if episode.trajectory.stop_reason is not None or not submit(number, episode):
                over.append(Leave(number))
        environments.answer(over)
    return [each.trajectory if isinstance(each, Episode) else each for each in episodes]


def play(
    engine: Engine,
    plan: RolloutPlan,
    agent: AgentConfig,
    template: ChatTemplate,
    environments: Environments | None = None,
) -> list[Trajectory]:
    """Draw and play the trajectories of ``plan``; without ``environments`` those live in this process.

    An environment's own error ends its episode and is logged; a breach of contract raises ``ContractError``.
    """
    place = environments or LocalEnvironments(reading_of(agent))
    try:
        episodes = begin_episodes(plan, agent, template, place)
        trajectories = run_episodes(engine, episodes, place, temperature=plan.temperature, top_p=plan.top_p)
    finally:
        place.clear()
    _report_errors(trajectories)
    return trajectories


def _report_errors(trajectories: Sequence[Trajectory]) -> None:
    """One line in the log for all episodes that their environments ended, with what repeats the first."""
    broken = [each for each in trajectories if each.stop_reason is StopReason.ENVIRONMENT_ERROR]
    if broken:
        first = broken[0]
        logger.warning(
            "%d of %d episodes were ended by an error of their environment, %d of them before the first turn; "
            "first: %s, group %d, member %d, instance seed %d, dynamics seed %d: %s",
            len(broken),
            len(trajectories),
            sum(not each.turns for each in broken),
            first.address.environment,
            first.address.group,
            first.address.member,
            first.instance_seed,
            first.dynamics_seed,
            first.error,
        )
