"""Which stream and which settings the options name; the user's data are read for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sncl.cli.console import err, say
from sncl.cli.options import names, pairs
from sncl.errors import SnclError

if TYPE_CHECKING:
    from sncl.runs.experiment import Experiment
    from sncl.streams.user.data import UserData

RENAMED = {
    "average": "ema",
    "release": "anneal",
    "reserve": "sparsity",
}


class Chosen(NamedTuple):
    """The stream that options name, what is known of it where it is the user's, and settings from `--set`."""

    stream: str
    user_data: UserData | None
    settings: dict[str, str]
    notes: list[str]

    def tell(self, experiment: Experiment) -> None:
        """Say how the user's data were understood and what is done with them, by default or by choice."""
        for note in self.notes:
            say(f"{self.stream}: {note}")
        if self.user_data is not None:
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
            err.print(f"{self.stream}: {tasks}{split}, {epochs}, network {self.user_data.network}")


def choose_stream(
    stream: str,
    cut: str | None,
    target: str | None,
    domain: str | None,
    size: int | None,
    split: str | None = None,
    classes: int | None = None,
    set_: list[str] | None = None,
    ignore: list[str] | None = None,
    category: list[str] | None = None,
    number: list[str] | None = None,
) -> Chosen:
    """Understand the options that name a stream; the user's data are read."""
    from sncl.cli.bars import reading_bar
    from sncl.streams.benchmarks import named
    from sncl.streams.user.spec import parse_spec

    settings = in_new_words(pairs(set_, "--set"))
    if sum(each is not None for each in (split, classes, settings.get("split"))) > 1:
        raise SnclError("give one of --split, --classes-per-task and --set split=")
    notes: list[str] = []
    kinds = names(ignore), names(category), names(number)
    spec, user_data = parse_spec(stream, cut, target, domain, size, *kinds), None
    if spec is not None:
        from sncl.streams.user.data import read

        with reading_bar(err) as progress:
            _, user_data, notes = read(spec, progress)
        stream = user_data.name
    if classes is not None:
        if user_data is None:
            benchmark = named(stream)
            total = benchmark.tasks * benchmark.classes_per_task if benchmark.kind == "seq" else 0
        else:
            total = user_data.classes if user_data.cut == "classes" else 0
        if not total:
            raise SnclError(f"--classes-per-task is for streams that are cut by classes, which {stream} is not")
        split = f"{-(-total // classes)}x{classes}"
    return Chosen(stream, user_data, settings if split is None else settings | {"split": split}, notes)


def in_new_words(settings: dict[str, str]) -> dict[str, str]:
    """Settings with the spelling of before 0.2 for "no gates" replaced, with a notice; other old names are errors."""
    for old, new in RENAMED.items():
        if old in settings:
            raise SnclError(f"the setting {old} is called {new} since sncl 0.2")
    try:
        no_gates = float(settings.get("eta", "1")) == 0
    except ValueError:
        no_gates = False
    if no_gates:
        err.print("note: --set eta=0 is --set gates=off since sncl 0.2, and will be an error in the next version")
        settings = {key: value for key, value in settings.items() if key != "eta"} | {"gates": "off"}
    return settings


def from_file(file: Path, chosen: Chosen, method: str, memory: int | None) -> dict[str, str]:
    """The settings in a file, checked by themselves, so that an error says where it comes from."""
    from sncl.methods.table import entry
    from sncl.runs.plan import plan
    from sncl.runs.settings import parse, read_settings

    usual = plan(chosen.stream, method, memory=memory, user_data=chosen.user_data, unchecked=True)
    settings = read_settings(file, chosen.stream, method, usual.memory)
    choices = {key: settings[key] for key in entry(method).choices if key in settings}
    try:
        usual = plan(chosen.stream, method, memory=memory, user_data=chosen.user_data, settings=choices, unchecked=True)
    except SnclError as error:
        raise SnclError(f"{file}: {error}") from error
    for key, text in settings.items():
        parse(key, text, usual.settings, f"{file}:")
    return settings
