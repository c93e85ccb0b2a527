"""From what names a stream to what is known of it before a run is planned; the user's data are read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sncl.errors import SnclError
from sncl.streams.benchmarks import named, stream_name

if TYPE_CHECKING:
    from sncl.runs.experiment import Experiment
    from sncl.streams.cache import Progress
    from sncl.streams.user.data import UserData
    from sncl.streams.user.spec import DataSpec


class Chosen(NamedTuple):
    """A stream, what is known of it where it is the user's, the settings asked for, and how the data were read."""

    stream: str
    user_data: UserData | None
    settings: dict[str, str]
    notes: list[str]

    def lines(self, experiment: Experiment) -> list[str]:
        """How the user's data were understood and what is done with them, by default or by choice."""
        said = [f"{self.stream}: {note}" for note in self.notes]
        if self.user_data is None:
            return said
        tasks = f"{experiment.tasks} task{'s' if experiment.tasks > 1 else ''}"
        split = ""
        if "split" in experiment.settings:
            parts, together = map(int, str(experiment.settings["split"]).split("x"))
            split = f" (split {parts}x{together}"
            if parts * together > self.user_data.classes:
                split += f", the last of {self.user_data.classes - (parts - 1) * together}"
            elif parts * together < self.user_data.classes:
                split += f": the first {parts * together} of {self.user_data.classes} classes"
            split += ")"
        epochs = f"{experiment.epochs} epoch{'s' if experiment.epochs > 1 else ''}"
        return [*said, f"{self.stream}: {tasks}{split}, {epochs}, network {self.user_data.network}"]


def choose(
    stream: str,
    spec: DataSpec | None,
    settings: dict[str, str],
    split: str | None = None,
    classes: int | None = None,
    progress: Progress | None = None,
) -> Chosen:
    """What is known of a stream: of the user's data that ``spec`` says, or of a benchmark.

    ``split`` and ``classes`` to a task are two ways to cut classes; ``progress`` follows the decoding of images.
    """
    if sum(each is not None for each in (split, classes, settings.get("split"))) > 1:
        raise SnclError("give one of `split`, `classes_per_task` and `settings=split=`")
    notes: list[str] = []
    user_data = None
    if spec is None:
        stream = stream_name(stream)
    else:
        from sncl.streams.user.data import read

        _, user_data, notes = read(spec, progress)
        stream = user_data.name
    if classes is not None:
        split = by_classes(stream, user_data, classes)
    return Chosen(stream, user_data, settings if split is None else settings | {"split": split}, notes)


def by_classes(stream: str, user_data: UserData | None, classes: int) -> str:
    """The split that puts so many classes into a task."""
    if user_data is None:
        benchmark = named(stream)
        total = benchmark.tasks * benchmark.classes_per_task if benchmark.kind == "seq" else 0
    else:
        total = user_data.classes if user_data.cut == "classes" else 0
    if not total:
        raise SnclError(f"`classes_per_task` is for streams that are cut by classes, which {stream} is not")
    return f"{-(-total // classes)}x{classes}"
