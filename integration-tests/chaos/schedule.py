"""The schedule of faults: a seed always gives the same one.

A fault has a time, a kind, how long it lasts, and a number that selects its target among those that
there are at that time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Target = TypeVar("Target")

MIN_GAP_S = 0.5


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: for people, and the name of the method of `chaos.faults.Faults` that makes it.
        weight: how often it comes, against the other kinds.
        longest_s: it lasts up to this long, at least a third of it; 0: it is over at once.
    """

    name: str
    weight: int
    longest_s: float = 0.0


KINDS = (
    Kind("kill_engine", 12),
    Kind("stop_engine", 6, 8.0),
    Kind("kill_executor", 5),
    Kind("stop_executor", 4, 8.0),
    Kind("kill_driver", 2),
    Kind("stop_driver", 2, 6.0),
    Kind("s3_error", 12, 3.0),
    Kind("s3_lost_answer", 10, 3.0),
    Kind("s3_cut_answer", 8, 3.0),
    Kind("s3_slow", 5, 6.0),
    Kind("s3_reset", 5, 3.0),
    Kind("s3_away", 2, 60.0),
    Kind("flip_bit", 4, 12.0),
    Kind("cut_object", 3, 12.0),
    Kind("delete_object", 3, 12.0),
    Kind("full_disk", 2, 8.0),
    Kind("second_driver", 1, 60.0),
)


@dataclass(frozen=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        number: from 1.
        at_s: seconds after the start.
        kind: the name of its kind.
        lasts_s: when it is undone, in seconds after it began.
        choice: at least 0 and below 1; selects the target.
    """

    number: int
    at_s: float
    kind: str
    lasts_s: float
    choice: float

    def choose(self, targets: Sequence[Target]) -> Target:
        """Return one of the targets; REQUIRES: there is one."""
        return targets[int(self.choice * len(targets))]


def schedule(seed: int, minutes: float, every_s: float, without: frozenset[str]) -> list[Fault]:
    """Return the faults of a run in order.

    Args:
        seed: of all random numbers.
        minutes: the time within which faults begin.
        every_s: mean time between two faults.
        without: kinds that are left out.
    """
    chance = random.Random(seed)
    kinds = [kind for kind in KINDS if kind.name not in without]
    weights = [kind.weight for kind in kinds]
    faults: list[Fault] = []
    at_s = 0.0
    while True:
        at_s += max(MIN_GAP_S, chance.expovariate(1 / every_s))
        if at_s >= minutes * 60:
            return faults
        (kind,) = chance.choices(kinds, weights)
        lasts_s = kind.longest_s * chance.uniform(1 / 3, 1.0)
        faults.append(Fault(len(faults) + 1, at_s, kind.name, lasts_s, chance.random()))
