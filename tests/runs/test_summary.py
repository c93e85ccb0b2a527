"""Tables of results, against means and deviations worked out by hand."""

from math import sqrt

import pytest
from example_results import result

from sncl.runs.summary import by_seeds, mean_std, readouts, results_table, show


def test_spread_is_the_mean_and_the_sample_deviation() -> None:
    # mean 7/3; squared deviations 16/9 + 1/9 + 25/9 = 42/9, over n - 1 = 2
    assert mean_std([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, sqrt(7 / 3)), rel=1e-12)
    assert mean_std([5.0]) == (5.0, 0.0)


def test_show() -> None:
    assert show([1.0, 2.0, 4.0]) == "2.33 ± 1.53"
    assert show([90.0, None, 94.0]) == "92.00 ± 2.83"  # sqrt(8)
    assert show([61.25]) == "61.25"
    assert show([0.0, 0.0]) == "0.00 ± 0.00"
    assert show([None, None]) == "–"
    assert show([]) == "–"


def test_table_has_a_row_for_each_method_and_memory() -> None:
    results = [
        result(seed=0, accuracy={"class_il": 80.0, "task_il": 95.0}, forgetting=10.0, seconds=2.0),
        result("sncl", seed=0, active_fraction=0.5, accuracy={"class_il": 90.0, "task_il": 99.0}),
        result(seed=1, accuracy={"class_il": 84.0, "task_il": 97.0}, forgetting=14.0, seconds=3.0),
        result("sncl", seed=1, active_fraction=0.7, accuracy={"class_il": 91.0, "task_il": 99.0}),
        result("sgd", memory=0, forgetting=None),
        result(memory=200),
    ]
    headings, cells = results_table(results)
    assert headings == [
        *("stream", "method", "memory", "seeds", "Class-IL", "Task-IL", "forgetting", "open", "seconds")
    ]
    assert cells == [
        # sample deviation of 80, 84 is sqrt(8), of 95, 97 sqrt(2), of 10, 14 sqrt(8)
        ["seq-digits", "ER", "100", "2", "82.00 ± 2.83", "96.00 ± 1.41", "12.00 ± 2.83", "–", "2.5"],
        ["seq-digits", "SNCL", "100", "2", "90.50 ± 0.71", "99.00 ± 0.00", "10.00 ± 0.00", "60 %", "2.0"],
        ["seq-digits", "SGD", "–", "1", "80.00", "95.00", "–", "–", "2.0"],
        ["seq-digits", "ER", "200", "1", "80.00", "95.00", "10.00", "–", "2.0"],
    ]


def test_streams_of_several_kinds_share_a_table() -> None:
    results = [
        result(stream="digits-360", accuracy={"gcl": 70.0}, forgetting=None),
        result(stream="rot-digits", accuracy={"domain_il": 60.0}),
    ]
    headings, cells = results_table(results)
    assert headings[4:6] == ["Domain-IL", "GCL"]
    assert [row[4:7] for row in cells] == [["–", "70.00", "–"], ["60.00", "–", "10.00"]]
    assert readouts(results) == ["domain_il", "gcl"]


def test_groups_keep_the_order_of_their_first_result() -> None:
    found = by_seeds([result("sncl"), result("er", seed=3), result("sncl", seed=1), result("er", memory=7)])
    assert [(each.title, each.memory, [one.seed for one in each.results]) for each in found] == [
        ("SNCL", 100, [0, 1]),
        ("ER", 100, [3]),
        ("ER", 7, [0]),
    ]
