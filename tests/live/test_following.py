"""What is known of a run: speed, time left and losses, on a clock that the test moves."""

import pytest

from sncl.live.following import Followed
from sncl.training.events import Evaluation, Moment


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def learning(steps: int, rows: int, **more: object) -> Moment:
    return Moment(steps, 1000, 0, 5, rows=rows)._replace(**more)


def test_speed_and_time_left() -> None:
    clock = Clock()
    run = Followed("a run", clock)
    run.tell(learning(200, 32))  # resumed behind step 199
    assert (run.steps_per_s, run.rows_per_s, run.seconds_left) == (None, None, None)
    clock.now += 4
    run.tell(learning(400, 6432))
    assert (run.steps_per_s, run.rows_per_s, run.seconds_left) == (50.0, 1600.0, 12.0)
    assert run.parts == (0.4, 0.2)
    clock.now += 4  # slower now
    run.tell(learning(500, 9632))
    clock.now += 8
    run.tell(learning(600, 12832))
    assert run.steps_per_s == pytest.approx(100 / 8)  # over the last seconds
    assert run.seconds_left == pytest.approx(400 * 16 / 400)  # by all there is


def test_losses_are_smoothed_by_name() -> None:
    run = Followed("a run")
    run.tell(learning(1, 32, losses={"labels": 2.0}))
    assert run.losses == {"labels": 2.0}
    run.tell(learning(2, 64))
    run.tell(learning(3, 96, losses={"labels": 1.0, "past_labels": 4.0}))
    assert run.losses == {"labels": pytest.approx(1.9), "past_labels": 4.0}
    assert run.courses == {"labels": (2.0, pytest.approx(1.9)), "past_labels": (4.0,)}


def test_the_last_evaluation_stays() -> None:
    run = Followed("a run")
    assert (run.accuracy, run.open_part) == ({}, None)
    inside = {"open_neurons": {"one": [10, 100], "two": [50, 100]}}
    run.tell(learning(10, 320, accuracy={"class_il": 70.0}, evaluation=Evaluation({"class_il": [60.0, 80.0]}, inside)))
    run.tell(learning(11, 352))
    assert (run.accuracy, run.open_part) == ({"class_il": 70.0}, 0.3)


@pytest.mark.parametrize(
    ("moments", "state", "parts"),
    [
        ([None], "done", (1.0, 1.0)),  # a result that was there
        ([learning(500, 1)], "running", (0.5, 0.5)),
        ([learning(500, 1), None], "stopped", (1.0, 0.5)),
        ([learning(500, 1), learning(1000, 2), None], "done", (1.0, 0.5)),
        ([learning(500, 1, reading=True)], "reading", (0.0, 0.0)),
        ([learning(1000, 1, reading=True), None], "stopped", (1.0, 1.0)),
    ],
)
def test_how_far_a_run_is(moments: list[Moment | None], state: str, parts: tuple[float, float]) -> None:
    run = Followed("a run")
    assert (run.state, run.parts) == ("waiting", (0.0, 0.0))
    for moment in moments:
        run.tell(moment)
    assert (run.state, run.parts) == (state, parts)
