"""What a run tells whoever watches it, also when it is resumed, and how often."""

from pathlib import Path

import pytest

from sncl.runs.perform import perform
from sncl.runs.plan import plan
from sncl.training import events
from sncl.training.events import Moment, sparingly

EXPERIMENT = plan("seq-digits", "sncl", memory=30, tasks=3, epochs=2, device="cpu")


def test_where_a_run_is_and_what_it_holds(tmp_path: Path) -> None:
    moments: list[Moment] = []
    result = perform(EXPERIMENT, tmp_path, watch=moments.append)
    steps = [moment for moment in moments if moment.accuracy is None]
    assert [moment.memory for moment in steps[:3]] == [(16, 30), (30, 30), (30, 30)]
    assert [moment.rows for moment in steps[:3]] == [16, 32, 48]
    places = list(dict.fromkeys((moment.task, moment.epoch, moment.epochs) for moment in steps))
    assert places == [(task, epoch, 2) for task in range(3) for epoch in range(2)]
    scored = [moment.evaluation for moment in moments if moment.accuracy is not None]
    assert [moment.accuracy for moment in moments if moment.evaluation] == [each.means() for each in scored if each]
    last = scored[-1]
    assert last is not None
    assert last.tested["class_il"] == result.accuracy_matrix[-1]
    assert sum(last.inside["memory_by_class"]) == 30


def test_a_resumed_run_tells_of_its_last_evaluation_once(tmp_path: Path) -> None:
    scored: list[Moment] = []

    def crash(moment: Moment) -> None:
        if moment.accuracy is not None:
            scored.append(moment)
        if moment.task == 2 and moment.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(EXPERIMENT, tmp_path, watch=crash, checkpoint_seconds=0)
    moments: list[Moment] = []
    perform(EXPERIMENT, tmp_path, watch=moments.append)
    first, *others = moments
    assert (first.task, first.epoch, first.rows) == (2, 1, 16)
    before = scored[-1].evaluation
    assert first.evaluation is not None
    assert before is not None
    assert first.evaluation.tested == before.tested
    for key, value in before.inside.items():
        assert first.evaluation.inside[key] == value
    assert [moment.accuracy is not None for moment in others] == [moment.evaluation is not None for moment in others]


def test_losses_and_scores_are_always_told_and_the_rest_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    times = iter([0.0, 0.1, 0.15, 0.25, 0.3, 0.4, 0.5])
    monkeypatch.setattr(events.time, "monotonic", times.__next__)
    watch = sparingly(lambda moment: told.append(moment.steps))
    for step in range(7):
        losses = {"labels": 1.0} if step == 2 else None
        watch(Moment(step, 7, 0, 1, losses, {"class_il": 50.0} if step == 4 else None))
    assert told == [0, 2, 4, 6]
