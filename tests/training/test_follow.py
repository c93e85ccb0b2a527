"""Following a live stream: predict, learn, and go on after a restart as if there had been none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from blobs import CLASSES, FEATURES, batches
from resuming import same
from torch import Tensor, nn

import sncl
from sncl.errors import SnclError
from sncl.memory.admission import Count, Reservoir
from sncl.methods.er import ER
from sncl.methods.method import Method
from sncl.networks.mlp import MLP
from sncl.tensors.fields import Fields
from sncl.training.checkpoint import read_checkpoint
from sncl.training.follow import FADING, Answer, Position, follow
from sncl.training.learner import Learner

EXAMPLE = Path(__file__).parents[2] / "examples" / "watch_folder.py"


def learner(method: Method | str = "sncl", **options: Any) -> Learner:
    torch.manual_seed(0)
    return Learner(MLP(FEATURES, CLASSES, width=16), method, memory=20, replay=8, lr=0.05, device="cpu", **options)


class Replayable:
    """A source that can be read again from any position; it notes what was asked of it."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.asked: list[Position] = []

    def __call__(self, position: Position) -> Iterator[Any]:
        self.asked.append(position)
        return iter(self.items[position.batches :])


def test_batches_are_predicted_before_they_are_learned() -> None:
    stream = batches(10)
    followed, by_hand = learner(), learner()
    answers = list(follow(followed, stream))
    hits: list[bool] = []
    for answer, (x, y) in zip(answers, stream, strict=True):
        by_hand.prepare(x)
        predicted = by_hand.predict(x)
        assert torch.equal(answer.predicted, predicted)
        losses = by_hand.learn(x, y)
        assert {name: float(loss) for name, loss in answer.losses.items()} == {
            name: float(loss) for name, loss in losses.items()
        }
        hits += (predicted == y).tolist()
        weights = [FADING**age for age in range(len(hits))]
        assert answer.accuracy == sum(hits) / len(hits)
        recent = sum(w for w, hit in zip(weights, reversed(hits), strict=True) if hit) / sum(weights)
        assert answer.recent == pytest.approx(recent)
    assert same(followed, by_hand)
    assert [answer.position for answer in answers][-1] == Position(batches=10, rows=80, token=None)
    assert not any(answer.stored for answer in answers)


def test_rows_without_a_label_are_only_predicted() -> None:
    x, _ = batches(1)[0]
    some = torch.tensor([0, -1, 1, -100, 0, 1, 1, -1])
    subject, by_hand = learner(), learner()
    stream = [x, (x, None), (x, some), (x, torch.where(some < 0, torch.nan, some.double())), (x, torch.full((8,), -1))]
    answers = list(follow(subject, stream))
    assert [len(answer.predicted) for answer in answers] == [8] * 5
    assert [bool(answer.losses) for answer in answers] == [False, False, True, True, False]
    assert answers[1].accuracy is None and answers[1].recent is None and answers[2].accuracy is not None
    by_hand.prepare(x)
    for _ in range(2):
        by_hand.learn(x[some >= 0], some[some >= 0])
    assert subject.steps == 2 and same(subject, by_hand)


def test_single_rows_arrays_and_numbers() -> None:
    x, _ = batches(1)[0]
    rows = [
        (x[0].numpy(), 1),
        (x[1].double().numpy(), np.int64(0)),
        (x[2], None),
        (x[3].tolist(), torch.tensor(1.0)),
        (x[4], -1),
    ]
    subject, by_hand = learner(), learner()
    answers = list(follow(subject, iter(rows)))
    assert [len(answer.predicted) for answer in answers] == [1] * 5
    for number, label in ((0, 1), (1, 0), (3, 1)):
        by_hand.learn(x[number : number + 1], torch.tensor([label]))
    assert same(subject, by_hand) and answers[-1].position == Position(5, 5, None)


def test_single_rows_through_batchnorm_and_dictionaries() -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))
    x, y = batches(1)[0]
    for answer in follow(Learner(net, memory=4, replay=2, device="cpu"), zip(x, y, strict=True)):
        assert all(loss.isfinite() for loss in answer.losses.values())

    class Named(MLP):
        def forward(self, features: Tensor) -> Tensor:
            return super().forward(features)

    subject = Learner(Named(FEATURES, CLASSES, width=8), memory=4, replay=2, device="cpu")
    stream = [({"features": row.numpy()}, int(label)) for row, label in zip(x, y, strict=True)]
    answers = list(follow(subject, [*stream, ({"features": x[0]}, None), {"features": x}]))
    assert [len(answer.predicted) for answer in answers] == [1] * 9 + [8] and subject.steps == 8


@pytest.mark.parametrize("every", [1, 3])
def test_killed_anywhere_a_stream_is_learned_exactly_once(every: int, tmp_path: Path) -> None:
    """What lies on the disk at any moment is enough to end where an unbroken run does."""
    items = [(x, y, f"file-{number:02d}") for number, (x, y) in enumerate(batches(8))]
    unbroken = learner()
    wanted = list(follow(unbroken, items))
    path = tmp_path / "live.safetensors"
    found: list[tuple[Path, int]] = []
    for answer in follow(learner(), Replayable(items), snapshot=path, every=every):
        assert answer.stored == (answer.position.batches % every == 0)
        if path.exists():
            found.append((tmp_path / f"at-{answer.position.batches}", answer.position.batches))
            shutil.copy(path, found[-1][0])
    assert [batch for _, batch in found] == list(range(every, 9))
    for copy, batch in found[::2]:
        source, again = Replayable(items), learner(seed=7)
        answers = list(follow(again, source, snapshot=copy, every=every))
        at = batch - batch % every
        assert source.asked == [Position(at, 8 * at, f"file-{at - 1:02d}")]
        assert same(unbroken, again)
        assert not answers or (answers[-1].accuracy, answers[-1].recent) == (wanted[-1].accuracy, wanted[-1].recent)
        assert len(answers) == 8 - at


def test_the_end_a_break_and_a_failing_source_leave_everything_stored(tmp_path: Path) -> None:
    items = batches(6)

    def failing() -> Iterator[Any]:
        yield from items[:4]
        raise ConnectionError("the line is down")

    path = tmp_path / "live.safetensors"
    for answer in follow(learner(), items, snapshot=path, seconds=3600):
        if answer.position.batches == 2:
            break
    del answer
    assert read_checkpoint(path)[1]["follow"]["position"] == [2, 16, None]
    path.unlink()
    with pytest.raises(ConnectionError):
        list(follow(learner(), failing(), snapshot=path))
    assert read_checkpoint(path)[1]["follow"]["position"] == [4, 32, None]
    again = learner()
    list(follow(again, items[4:], snapshot=path))  # an iterable is taken as it comes
    unbroken = learner()
    list(follow(unbroken, items))
    assert same(again, unbroken)
    loaded = learner()
    loaded.load(path)  # a snapshot is a learner's file as any other
    assert same(loaded, unbroken)


def test_a_refused_batch_loses_nothing(tmp_path: Path) -> None:
    (x, y), path = batches(1)[0], tmp_path / "live.safetensors"
    with pytest.raises(SnclError, match="label 6 does not fit"):
        list(follow(learner(), [(x, y), (x, y + 3)], snapshot=path))
    assert read_checkpoint(path)[1]["follow"]["position"] == [1, 8, None]


class Full(Reservoir):
    """An admission that fails behind the update of the fourth batch."""

    def admits_none(self, count: Count, uniform: Tensor) -> bool:
        return False

    def slots(self, stored: Fields, incoming: Fields, count: Count, uniform: Tensor) -> Tensor:
        if count.seen >= 24:
            raise SnclError("the memory is full")
        return super().slots(stored, incoming, count, uniform)


def test_a_batch_that_fails_behind_its_update_is_not_learned_twice(tmp_path: Path) -> None:
    """The third batch was whole but not stored yet, and is learned again as well."""
    items, path = batches(4), tmp_path / "live.safetensors"
    failing = ER()
    failing.admission = Full()
    answers = follow(learner(failing), Replayable(items), snapshot=path, every=2)
    with pytest.raises(SnclError, match="the memory is full"):
        list(answers)
    assert read_checkpoint(path)[1]["follow"]["position"] == [2, 16, None]
    again, unbroken = learner("er"), learner("er")
    list(follow(again, Replayable(items), snapshot=path))
    list(follow(unbroken, items))
    assert same(again, unbroken)


def test_seconds_between_snapshots(tmp_path: Path) -> None:
    answers: list[Answer] = list(follow(learner(), batches(3), snapshot=tmp_path / "a", seconds=0))
    assert all(answer.stored for answer in answers)
    answers = list(follow(learner(), batches(3), snapshot=tmp_path / "b", seconds=3600))
    assert not any(answer.stored for answer in answers)


def test_clear_errors(tmp_path: Path) -> None:
    (x, y), path = batches(1)[0], tmp_path / "live.safetensors"
    with pytest.raises(SnclError, match=r"name its file: snapshot="):
        follow(learner(), [], every=3)
    with pytest.raises(SnclError, match="every 1 or more batches, not every 0"):
        follow(learner(), [], snapshot=path, every=0)
    with pytest.raises(SnclError, match="0 or more, not -1"):
        follow(learner(), [], snapshot=path, seconds=-1)
    for item, said in (
        ("text", r"\(x, y\), \(x, y, token\), x alone, an Item or a Late, not str"),
        ((x, "text"), "inputs and labels are tensors, arrays or numbers, not str"),
        ((x, y + 0.5), "labels are whole numbers"),
        ((x, y[:3]), "same number of rows"),
    ):
        with pytest.raises(SnclError, match=said):
            list(follow(learner(), [item]))
    with pytest.raises(SnclError, match="JSON can hold, such as a text or a number, not set"):
        list(follow(learner(), [(x, y, {1, 2})], snapshot=path, every=1))
    assert not path.exists()
    first = follow(learner(), [(x, y), (x, y)], snapshot=path)
    next(first)
    with pytest.raises(SnclError, match="another process follows"):
        next(follow(learner(), [(x, y)], snapshot=path))
    first.close()  # type: ignore[attr-defined]
    ahead = learner()
    for _ in range(2):
        ahead.learn(x, y)
    with pytest.raises(SnclError, match="is from step 1, but this learner is at step 2 already"):
        next(follow(ahead, [(x, y)], snapshot=path))
    ahead.save(path)
    with pytest.raises(SnclError, match="does not say how far a stream was followed"):
        next(follow(learner(), [(x, y)], snapshot=path))


def test_a_bad_batch_is_passed_if_it_may_be(tmp_path: Path) -> None:
    """It stops every restart otherwise; skipped, it changes nothing of what is learned."""
    good, path = batches(8), tmp_path / "snapshot"
    x, y = good[0]
    bad = [(x[:, :3], y), (x.clone().fill_(torch.nan), y), (x, y + 99), (x, y[:2]), ("text", y), "text"]
    items = [*bad, *good[:4], *bad, *good[4:]]
    tokened = [(*item, number) if isinstance(item, tuple) else item for number, item in enumerate(items)]

    def source(position: Position) -> list[Any]:
        return tokened[position.batches :]

    for _ in range(2):  # the same again at every restart
        with pytest.raises(SnclError):
            list(follow(learner(), source, snapshot=path, every=1))
    alone, skipping = learner(), learner()
    for batch in good:
        alone.learn(*batch)
    answers = list(follow(skipping, source, snapshot=path, every=1, skip_bad=True))
    assert [answer.refused is None for answer in answers] == [*[False] * 6, *[True] * 4, *[False] * 6, *[True] * 4]
    assert all(len(answer.predicted) == 0 and not answer.losses for answer in answers if answer.refused)
    assert answers[-1].position.batches == len(tokened) and answers[-1].position.token == len(tokened) - 1
    assert all(answer.stored for answer in answers[6:])
    ours = skipping.state()
    assert all(torch.equal(value, ours[name]) for name, value in alone.state().items())
    assert list(follow(learner(), source, snapshot=path, skip_bad=True)) == []


def test_an_error_behind_an_update_is_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = learner()

    def failing(*given: object) -> None:
        raise SnclError("in the middle")

    broken.prepare(batches(1)[0][0])
    monkeypatch.setattr(broken, "_learn", failing)
    with pytest.raises(SnclError, match="in the middle"):
        list(follow(broken, batches(2), skip_bad=True))


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    ours = [".live.123.part", ".live.12-34-abcdef01.part"]
    others = [".live.a.12-34-abcdef01.part", ".live.a.123.part", ".live.part", ".livexa.1.part", "live.1.part"]
    for name in (*ours, *others):
        (tmp_path / name).write_bytes(b"")
    list(follow(learner(), batches(2), snapshot=tmp_path / "live"))
    left = {path.name for path in tmp_path.iterdir()}
    assert left - {"live", ".live.lock"} == set(others)


def test_a_link_is_the_file_it_names(tmp_path: Path) -> None:
    """The lock is that of the file, and the link stays one."""
    path, link = tmp_path / "live", tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(path)
    first = follow(learner(), batches(3), snapshot=path, every=1)
    next(first)
    with pytest.raises(SnclError, match="another process follows"):
        next(follow(learner(), batches(3), snapshot=link))
    first.close()  # type: ignore[attr-defined]
    going_on = learner()
    list(follow(going_on, batches(3)[1:], snapshot=link))
    assert link.is_symlink() and read_checkpoint(path)[1]["steps"] == going_on.steps == 3


def test_a_stream_may_be_closed_in_another_thread(tmp_path: Path) -> None:
    answers = follow(learner(), batches(3), snapshot=tmp_path / "live")
    next(answers)
    closing = Thread(target=answers.close)  # type: ignore[attr-defined]
    closing.start()
    closing.join()
    assert len(list(follow(learner(), batches(3), snapshot=tmp_path / "live"))) == 3


def test_it_is_offered_by_the_package() -> None:
    assert sncl.follow is follow


# --- the example, in processes that are killed -----------------------------------------------------------------------


def put(folder: Path, number: int) -> None:
    """File ``number`` of the stream, as another process would leave it there: complete, and then named."""
    x, y = batches(12)[number]
    name = folder / f"{number:04d}{'.csv' if number % 3 == 2 else '.npz'}"
    part = name.with_name(name.name + ".part")
    if number % 3 == 2:
        rows = [[*map(repr, row.tolist()), "" if n == 0 else str(int(y[n]))] for n, row in enumerate(x)]
        part.write_text("\n".join(",".join(row) for row in rows) + "\n")
    else:
        with part.open("wb") as file:
            np.savez(file, x=x.numpy(), **({} if number == 4 else {"y": y.numpy()}))
    part.rename(name)


def watch(folder: Path, snapshot: Path, every: int, patience: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE), str(folder), "--classes", str(CLASSES), "--snapshot", str(snapshot)]
    command += [
        "--every",
        str(every),
        "--width",
        "16",
        "--memory",
        "20",
        "--pause",
        "0.01",
        "--patience",
        str(patience),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_watched_folder_survives_kills(tmp_path: Path) -> None:
    """The same parameters as without, with a snapshot behind every file and with one behind every third."""
    folder, unbroken, broken = tmp_path / "inbox", tmp_path / "unbroken", tmp_path / "broken"
    folder.mkdir()
    put(folder, 0)
    for every, stop in ((1, 3), (3, 7)):
        process = watch(folder, broken, every, patience=60)
        for number in range(12):
            if number == stop:
                break
            put(folder, number)
        while not line(process).startswith(f"{stop - 1:04d}"):
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
    for number in range(12):
        put(folder, number)
    for path in (broken, unbroken):
        process = watch(folder, path, every=1, patience=0.2)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and "0011.csv: 8 samples" in output
        assert output.startswith("0006.npz" if path is broken else "0000.npz")
    (ours, about), (theirs, also) = read_checkpoint(broken), read_checkpoint(unbroken)
    assert about == also and about["follow"]["position"] == [12, 96, "0011.csv"] and about["steps"] == 11
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
