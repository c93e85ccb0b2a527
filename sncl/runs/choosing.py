"""From what names a stream to what is known of it before a run is planned; the user's data are read for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sncl.errors import SnclError
from sncl.runs.understood import Understood, recall, remember
from sncl.streams.benchmarks import named, stream_name
from sncl.streams.user.stamp import stamp_of_files

if TYPE_CHECKING:
    from sncl.runs.experiment import Experiment
    from sncl.streams.cache import Progress
    from sncl.streams.user.identity import UserData
    from sncl.streams.user.spec import DataSpec


class Chosen(NamedTuple):
    """A stream, the settings asked for and, where it is the user's, what is known of the data and how to read them."""

    stream: str
    settings: dict[str, str]
    understood: Understood | None = None
    spec: DataSpec | None = None

    @property
    def user_data(self) -> UserData | None:
        return None if self.understood is None else self.understood.user_data

    def remember(self, folder: Path) -> None:
        """Write down beside the runs in ``folder`` how the user's data were understood."""
        if self.spec is not None and self.understood is not None:
            remember(folder, self.spec, self.understood)

    def lines(self, experiment: Experiment) -> list[str]:
        """How the user's data were understood and what is done with them, by default or by choice."""
        if self.understood is None or self.user_data is None:
            return []
        said = [f"{self.stream}: {note}" for note in self.understood.notes]
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
    beside: Path | None = None,
) -> Chosen:
    """What is known of a stream: of the user's data that ``spec`` says, or of a benchmark.

    ``split`` and ``classes`` to a task are two ways to cut classes; ``progress`` follows the decoding of images. Data
    that runs in the folder ``beside`` were made with are not read while their files stay as they are.
    """
    if sum(each is not None for each in (split, classes, settings.get("split"))) > 1:
        raise SnclError("give one of `split`, `classes_per_task` and `settings=split=`")
    found = None
    if spec is None:
        stream = stream_name(stream)
    else:
        found = (None if beside is None else recall(beside, spec)) or understand(spec, progress)
        stream = found.user_data.name
    if classes is not None:
        split = by_classes(stream, None if found is None else found.user_data, classes)
    return Chosen(stream, settings if split is None else settings | {"split": split}, found, spec)


def understand(spec: DataSpec, progress: Progress | None) -> Understood:
    """What is known of the user's data, which are read for it."""
    from sncl.streams.user.data import read

    stamp = stamp_of_files(spec)
    _, user_data, notes = read(spec, progress)
    return Understood(user_data, notes, stamp)


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
