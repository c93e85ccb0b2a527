"""What executors have in common, and which one is meant by a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sncl.errors import SnclError, lacking

WHERE = "local, ray, ray://HOST:PORT or slurm"

Report = Callable[[Any], None]
Watch = Callable[[int, Any], None]  # the number of a job, and what it reports
Say = Callable[[str], None]


class Resources(NamedTuple):
    """What one run takes of a machine."""

    cpus: int = 1
    gpus: float = 0.0


@dataclass(frozen=True)
class Calls:
    """``function(job, report)`` for every job. ``root`` is a folder that all machines share; reports are made of named
    tuples of these ``kinds``."""

    function: Callable[[Any, Report], Any]
    jobs: Sequence[Any]
    root: Path
    share: Resources
    kinds: tuple[type, ...] = ()


class Fleet(Protocol):
    """Machines that make runs."""

    def run(self, calls: Calls, watch: Watch, say: Say) -> list[Any]:
        """The results in the order of the jobs. A job that fails stops no other; the first failure is raised in the
        end. Ctrl-C cancels what runs, and the same call goes on."""


def choose_fleet(on: str, options: Mapping[str, str] | None = None) -> Fleet | None:
    """The executor of that name; None for this machine. ``options`` are those of Slurm."""
    if options and on != "slurm":
        raise SnclError(f'options of Slurm need `on="slurm"`, not {on!r}')
    if on == "local":
        return None
    if on == "ray" or on.startswith("ray://"):
        if find_spec("ray") is None:
            raise lacking(f"`on={on}`", "ray")
        if on != "ray" and find_spec("grpc") is None:
            raise lacking(f"`on={on}`", "ray[client]")
        if on == "ray://":
            raise SnclError("`on` names no address; it is ray://HOST:PORT, usually with the port 10001")
        from sncl.executors.on_ray import OnRay

        return OnRay(None if on == "ray" else on)
    if on == "slurm":
        if find_spec("submitit") is None:
            raise lacking("`on=slurm`", "submitit")
        from sncl.executors.on_slurm import OnSlurm

        return OnSlurm(dict(options or {}))
    raise SnclError(f"`on` is {WHERE}, not {on!r}")
