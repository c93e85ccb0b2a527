"""From the folder of a finished run back to its trained network and its stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from sncl.errors import SnclError
from sncl.methods.method import Method
from sncl.runs.build import make_learner, make_stream
from sncl.runs.experiment import EXPERIMENT, PATH, PLACE, PROTOCOL, Experiment, read_described, refuse_gone
from sncl.runs.finished import stored_result
from sncl.runs.result import Result
from sncl.streams.stream import Stream
from sncl.streams.user.identity import UserData
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint
from sncl.training.engine import choose_device
from sncl.training.exporting.models import EXAMPLE_SIZE
from sncl.training.folder import CHECKPOINT, TASK_NETWORK, same_experiment
from sncl.training.learner import Learner
from sncl.training.state import restore_memory


@dataclass(frozen=True)
class Trained:
    """A finished run: where it lies, what it was, what it scored, and its learner with its memory, ready to predict."""

    folder: Path
    experiment: Experiment
    result: Result
    stream: Stream
    learner: Learner

    def example(self) -> Tensor:
        """A few test samples as the network reads them, which show how it is wired."""
        return self.stream.transform.eval(self.stream.test(0)[0][:EXAMPLE_SIZE])

    def unstandardised(self) -> Stream:
        """The stream with its numbers as they were read; the same stream where nothing was standardised."""
        preprocessing = self.stream.preprocessing
        if preprocessing is None or preprocessing.scale is None:
            return self.stream
        return make_stream(elsewhere(self.experiment, str(self.learner.device)), None, standardised=False)

    def after_task(self, task: int) -> Learner | None:
        """The learner as it was right after a task, counted from 1; None if the run did not keep it."""
        path = self.folder / TASK_NETWORK.format(task)
        if not path.exists():
            return None
        state, description = read_checkpoint(path)
        if not same_experiment(description.get("experiment"), self.experiment.identity()):
            raise SnclError(f"{path} belongs to another experiment than {self.folder / EXPERIMENT}")
        learner = make_learner(elsewhere(self.experiment, str(self.learner.device)), self.stream)
        learner.restore_network(state, of_learner(path, description))
        learner.settle()
        return learner

    def refuse_own_predictions(self) -> None:
        """Refuse a method that predicts by anything but the softmax of its network's logits."""
        if type(self.learner.method).predict is not Method.predict:
            raise SnclError(
                f"{self.folder}: {self.experiment.method} predicts in its own way, not by the logits of its network, "
                "so this analysis would not be about it"
            )


def of_learner(path: Path, description: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of its learner."""
    found = description.get("learner")
    if not isinstance(found, dict):
        raise SnclError(f"{path} is damaged: it says nothing of its learner")
    return found


def elsewhere(experiment: Experiment, device: str) -> Experiment:
    """The same experiment where it is analysed: nothing is trained, so precision and engine do not matter."""
    return replace(experiment, device=device, precision="float32", engine="eager")


class StoredRun(NamedTuple):
    """What a run folder holds: what is run, and its last checkpoint, the description that of its learner."""

    experiment: Experiment
    tensors: Fields
    learner: dict[str, Any]


def read_stored(folder: Path, data: Path | None = None) -> StoredRun:
    """The experiment of a run folder and its last checkpoint.

    ``experiment.json`` is believed because the checkpoint, which has a checksum, says the same. The user's data are
    where they were, or at ``data``.
    """
    if not (folder / EXPERIMENT).exists():
        below = min(folder.glob(f"*/{EXPERIMENT}"), default=None)
        hint = "" if below is None else f"; name one of the runs in it, such as {below.parent}"
        raise SnclError(f"{folder} is no run folder of sncl train: it has no {EXPERIMENT}{hint}")
    identity = read_described(folder)
    refuse_gone(folder, identity)
    if not (folder / CHECKPOINT).exists():
        raise SnclError(f"{folder} is no run folder of sncl train with something learned: it has no {CHECKPOINT} yet")
    tensors, description = read_checkpoint(folder / CHECKPOINT)
    if not same_experiment(description.get("experiment"), {key: identity[key] for key in identity if key not in PLACE}):
        raise SnclError(f"{folder / CHECKPOINT} belongs to another experiment than {folder / EXPERIMENT}")
    experiment = described_experiment(folder, identity, data)
    return StoredRun(experiment, tensors, of_learner(folder / CHECKPOINT, description))


def described_experiment(where: Path, described: dict[str, Any], data: Path | None = None) -> Experiment:
    """The inverse of :meth:`Experiment.described`, without its format, for what was found ``where``."""
    identity = dict(described)
    path = {key: identity.pop(key, None) for key in PLACE}[PATH]
    names = {key: value for key, value in identity.items() if key != "protocol"}
    try:
        if names.get("user_data") is not None:
            names["user_data"] = UserData(**names["user_data"], path=str(path if data is None else data.resolve()))
        experiment = Experiment(**names)
    except TypeError as error:
        raise SnclError(f"{where} was made by another version of sncl ({error})") from error
    if identity.get("protocol") != PROTOCOL:
        raise SnclError(f"{where} has protocol {identity.get('protocol')}, and this sncl has {PROTOCOL}")
    return experiment


def load_run(folder: Path, data: Path | None = None, device: str = "auto") -> Trained:
    """The trained network and the stream of a finished run, on ``device``, with its data where they were or at
    ``data``."""
    experiment, state, theirs = read_stored(folder, data)
    result = stored_result(experiment, folder)
    if result is None:
        raise SnclError(f"the run in {folder} is not finished; give the same sncl train command again to finish it")
    here = elsewhere(experiment, str(choose_device(device)))
    stream = make_stream(here, data)
    if result.manifest.data != stream.source_fingerprint:
        raise SnclError(f"{folder} was trained on other data than those found here; name their folder with `data`")
    learner = make_learner(here, stream)
    learner.restore_network(state, theirs)
    restore_memory(learner, state, theirs)
    learner.settle()
    learner.preprocessing = stream.preprocessing
    return Trained(folder, experiment, result, stream, learner)
