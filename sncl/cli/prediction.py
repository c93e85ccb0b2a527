"""``sncl predict``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sncl.cli.bars import counting_bar
from sncl.cli.completion import complete_run
from sncl.cli.console import err, print_json, say
from sncl.cli.options import DeviceOption
from sncl.errors import SnclError
from sncl.live.terminal import printable
from sncl.training.stopping import stop_code


def predict_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run of sncl train", autocompletion=complete_run)],
    path: Annotated[
        Path, typer.Argument(metavar="FILE|FOLDER", help="A table, an array (.npy, .npz), an image or a folder of them")
    ],
    file: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.csv", help="Where to (default: standard output)")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also the probability of each class, a column each")
    ] = False,
    task: Annotated[
        int | None, typer.Option(metavar="T", help="The rows belong to this task, counted from 1: only its classes")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there")] = False,
    device: DeviceOption = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of CSV")] = False,
) -> None:
    """Predict for new rows or images with a trained run, prepared as the run prepared its own.

    The data that the run learned from are not needed. Prints CSV with a column `prediction`: names of classes.
    """
    from sncl.prediction.answers import LabelScore, answer
    from sncl.prediction.sources import open_source
    from sncl.runs.models import load

    check_file(file, force)
    with err.status("loading the run"):
        learner = load(run, device)
        preprocessing = learner.preprocessing
        assert preprocessing is not None
        source = open_source(path, preprocessing)
    for note in source.notes:
        say(f"note: {note}")
    score = LabelScore()
    gathered: list[dict[str, Any]] | None = [] if as_json and file is None else None
    try:
        with counting_bar(err) as progress:
            bar = progress.add_task("predicting", total=source.rows, note="")

            def followed() -> Iterator[Any]:
                for answers in answer(learner, source, task):
                    score.add(answers, preprocessing)
                    yield answers
                    progress.advance(bar, len(answers.predictions))

            if gathered is not None:
                gathered += rows_of(followed(), preprocessing.class_names, probabilities)
            else:
                write_csv(followed(), preprocessing.class_names, source.of_files, probabilities, file)
    except KeyboardInterrupt:
        err.print("stopped; no file was written" if file is not None else "stopped")
        sys.exit(stop_code())
    if (line := score.line()) is not None:
        err.print(line)
    if as_json:
        summary = {"run": str(run), "rows": source.rows, "classes": list(preprocessing.class_names)}
        summary |= {"accuracy": score.accuracy} | ({} if file is None else {"file": str(file)})
        print_json(summary if gathered is None else summary | {"predictions": gathered})
    elif file is not None:
        err.print(f"predictions: {file}")


def check_file(file: Path | None, force: bool) -> None:
    """Refuse a place that cannot be written to, before anything is loaded."""
    if file is None:
        return
    if file.exists() and not force:
        raise SnclError(f"{file} is there already; --force replaces it, --out names another file")
    if not file.absolute().parent.is_dir() or file.is_dir():
        raise SnclError(f"--out is a file in a folder that exists, not {file}")


def write_csv(
    answers: Iterable[Any], names: tuple[str, ...], of_files: bool, probabilities: bool, file: Path | None
) -> None:
    """Write the lines as they come, to the file once all of them are there."""
    from sncl.prediction.writing import csv_lines
    from sncl.training.checkpoint import written_atomically

    lines = csv_lines(answers, names, of_files, probabilities)
    if file is None:
        with until_nobody_reads():
            for text in lines:
                print(showable(text), end="")
            sys.stdout.flush()
        return
    with written_atomically(file) as opened:
        for text in lines:
            opened.write(text.encode(errors="backslashreplace"))


def showable(text: str) -> str:
    """Text as standard output can take it: a terminal obeys some characters, and others have no encoding."""
    if sys.stdout.isatty():
        return printable(text, kept="\n")
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """End quietly where the reader of a pipe, such as head, has seen enough."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def rows_of(answers: Iterable[Any], names: tuple[str, ...], probabilities: bool) -> list[dict[str, Any]]:
    """One entry for each row."""
    found = []
    for predictions, chances, part in answers:
        for place, prediction in enumerate(predictions):
            row: dict[str, Any] = {} if part.files is None else {"file": part.files[place]}
            row["prediction"] = prediction
            if probabilities:
                row["probabilities"] = dict(zip(names, chances[place].tolist(), strict=True))
            found.append(row)
    return found
