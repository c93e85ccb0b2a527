"""The files that a release leaves, all in the middle of something, and the numbers to which they lead.

    python tests/helpers/release_files.py tests/reliability/files/0.2.0.zip

writes those of the version that is imported; do so once for every release, before its version changes. What is done
with each of them is said here once, for whoever writes and for the tests that go on.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import torch
from blobs import CLASSES, FEATURES, batches
from estimators import blobs

from sncl import SNCLClassifier
from sncl.methods.sncl import SNCL
from sncl.networks.gating.policies import KL
from sncl.networks.mlp import MLP
from sncl.runs.experiment import Experiment
from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training.events import Moment
from sncl.training.follow import Position, follow
from sncl.training.learner import Learner
from sncl.tuning.search import plan_search
from sncl.tuning.study import Study, StudyJob

Numbers = dict[str, Any]
MIDDLE, BATCHES = 4, 8


def experiment(settings: dict[str, str] | None = None) -> Experiment:
    """A run of two tasks with gates, an average of the weights and a memory; ``settings`` are those it was made with.

    The usual settings of a later version may be others.
    """
    settings = settings or {"batch_size": "64", "width": "8", "ema": "0.9"}
    return plan("seq-digits", "sncl", memory=10, tasks=2, epochs=1, seed=3, device="cpu", settings=settings)


def learner() -> Learner:
    """A learner that no default has a say in."""
    torch.manual_seed(0)
    method = SNCL(alpha=0.5, beta=0.4, gamma=0.1, gating=KL(eta=1e-4))
    return Learner(MLP(FEATURES, CLASSES, width=8), method, memory=10, replay=4, lr=0.05, device="cpu")


def kill_behind(step: int) -> Callable[[Moment], None]:
    def watch(moment: Moment) -> None:
        if moment.steps > step:
            raise KeyboardInterrupt

    return watch


def begin_runs(folder: Path) -> None:
    """One that was killed in its first task, and the same to its end."""
    for name, watch in (("middle", kill_behind(MIDDLE)), ("finished", None)):
        try:
            perform(experiment(), folder / name, watch=watch, checkpoint_seconds=0)
        except KeyboardInterrupt:
            assert name == "middle"


def predicted(logits: torch.Tensor) -> list[list[float]]:
    return [[round(float(value), 6) for value in row] for row in logits]


def finish_learner(path: Path) -> Numbers:
    """Learn the second half of a stream from a file that was saved behind the first."""
    subject = learner()
    subject.load(path)
    losses = [subject.learn(x, y) for x, y in batches(BATCHES)[MIDDLE:]]
    assert subject.steps == BATCHES
    return {
        "losses": [{name: round(float(value), 6) for name, value in each.items()} for each in losses],
        "logits": predicted(subject.logits(batches(1)[0][0])),
    }


def begin_learner(path: Path) -> None:
    subject = learner()
    for x, y in batches(BATCHES)[:MIDDLE]:
        subject.learn(x, y)
    subject.save(path)


def finish_following(path: Path, until: int = BATCHES) -> Numbers:
    """Follow a stream, from the snapshot where there is one, to its end or not so far."""

    def source(position: Position) -> list[Any]:
        items = [(x, y, f"batch {number}") for number, (x, y) in enumerate(batches(BATCHES))]
        return items[position.batches : until]

    *_, last = follow(learner(), source, snapshot=path, every=1)
    return {"position": list(last.position), "accuracy": last.accuracy, "recent": last.recent}


def finish_estimator(path: Path) -> Numbers:
    """Fit two more batches, of which one has a new class."""
    model = SNCLClassifier.load(path)
    x, y = blobs(40, classes=3, seed=1)
    model.partial_fit(x, y)
    return {"classes": model.classes_.tolist(), "probabilities": predicted(torch.as_tensor(model.predict_proba(x[:5])))}


def begin_estimator(path: Path) -> None:
    small = {"memory": 10, "replay": 4, "batch_size": 8, "epochs": 1, "hidden": 8, "random_state": 0}
    model = SNCLClassifier(**small)
    model.partial_fit(*blobs(40, classes=2))
    model.save(path)


def finish_study(folder: Path, trials: int = 3) -> Numbers:
    """Trials of a search, in this process, until there are so many."""
    options: dict[str, Any] = {"memory": 10, "tasks": 2, "epochs": 1, "seeds": 1, "device": "cpu"}
    search = plan_search("seq-digits", "er", fixed={"width": "8"}, searched={"lr": "0.03,0.1,0.2"}, **options)
    study = Study(StudyJob(search, folder / "study.journal", folder / "study.toml", trials))
    study.work(lambda standing: None)
    kept = ("number", "state", "params", "scores", "default")
    return {"trials": [{key: getattr(trial, key) for key in kept} for trial in study.close()]}


def write(archive: Path) -> None:
    """All files of this version, and what comes of them."""
    with TemporaryDirectory() as temporary:
        folder, later = Path(temporary) / "files", Path(temporary) / "later"
        folder.mkdir()
        begin_runs(folder / "runs")
        begin_learner(folder / "learner")
        finish_following(folder / "snapshot", until=MIDDLE)
        begin_estimator(folder / "estimator")
        (folder / "study").mkdir()
        finish_study(folder / "study", trials=2)
        for path in (*folder.rglob(".*.lock"), *folder.rglob("*.lock"), *folder.rglob(".lock")):
            path.unlink(missing_ok=True)
        shutil.copytree(folder, later)
        (folder / "numbers.json").write_text(json.dumps(all_numbers(later), indent=1))
        with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as file:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    file.write(path, path.relative_to(folder))


def all_numbers(folder: Path) -> dict[str, Numbers]:
    return {
        "learner": finish_learner(folder / "learner"),
        "snapshot": finish_following(folder / "snapshot"),
        "estimator": finish_estimator(folder / "estimator"),
        "study": finish_study(folder / "study"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(Path(sys.argv[1]))
