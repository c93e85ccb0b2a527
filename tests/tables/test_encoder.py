"""The encoder of tables beside one that is written with plain loops, and what it makes of a stream."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from mixed_tables import KINDS, fruit
from plain_encoding import PlainEncoder

from sncl.errors import SnclError
from sncl.tables import TableEncoder, columns_of
from sncl.tables.coders import RunningMean, RunningMeans


def inputs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in KINDS} for row in rows]


def test_it_encodes_as_plain_loops_do() -> None:
    rows = inputs(fruit())
    plain, encoder = PlainEncoder(KINDS, rows[:40]), TableEncoder.made_for(columns_of(rows[:40]))
    assert encoder.columns == KINDS
    for start in range(0, 160, 40):
        part = rows[start : start + 40]
        plain.update(part)
        encoder.update(columns_of(part))
        found = encoder.encode(columns_of(part))
        assert found.dtype == np.float64 and found.shape == (40, encoder.width) == (40, len(encoder.names))
        np.testing.assert_allclose(found, plain.encode(part), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(encoder.encode(columns_of(rows[:9])), plain.encode(rows[:9]), rtol=1e-12, atol=1e-12)
    none = {name: column[:0] for name, column in columns_of(rows).items()}
    assert encoder.encode(none).shape == (0, encoder.width)


def test_what_it_learned_is_plain_data() -> None:
    rows = inputs(fruit())
    encoder = TableEncoder.made_for(columns_of(rows[:40]))
    encoder.update(columns_of(rows[:80]))
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    for each in (encoder, again):
        each.update(columns_of(rows[80:]))
    assert (again.encode(columns_of(rows)) == encoder.encode(columns_of(rows))).all()
    assert (again.names, again.columns) == (encoder.names, encoder.columns)
    for damaged in ({}, {"version": 9, "columns": []}, {"version": 1, "columns": [{"name": "a", "kind": "tree"}]}):
        with pytest.raises(SnclError, match="cannot be read"):
            TableEncoder.from_json(damaged)


def test_numbers_stay_the_bits_they_are() -> None:
    X = np.random.default_rng(0).normal(size=(50, 4)) * 10.0 ** np.arange(-200, 200, 100)
    X[3, 0] = -0.0
    encoder = TableEncoder.made_for(columns_of(X))
    encoder.update(columns_of(X))
    assert encoder.encode(columns_of(X)).tobytes() == X.tobytes()


def test_new_categories_take_free_places_and_then_share_the_last() -> None:
    def column(*values: str | None) -> dict[str, Any]:
        return columns_of([{"c": value} for value in values])

    encoder = TableEncoder.made_for(column("a", "b"))
    encoder.update(column("a", "b"))
    assert encoder.width == 16
    before = encoder.encode(column("b", "a", "c"))
    assert before.argmax(1).tolist()[:2] == [1, 0] and not before[2].any()  # c was never learned
    encoder.update(column("c", None, *(f"n{number}" for number in range(20))))
    after = encoder.encode(column("a", "b", "c", None, "n11", "n12", "never"))
    assert after.argmax(1).tolist() == [0, 1, 2, 3, 15, 15, 15]
    assert (after.sum(1) == 1).all()
    assert encoder.names[:5] == ["c = a", "c = b", "c = c", "c missing", "c = n0"]


def test_places_grow_with_what_was_seen_first() -> None:
    texts = [{"c": f"t{number % 50}"} for number in range(500)]
    assert TableEncoder.made_for(columns_of(texts)).width == 100
    many = [{"c": f"t{number % 90}"} for number in range(900)]
    assert TableEncoder.made_for(columns_of(many)).width == 128


def test_ids_are_left_out_and_said_so() -> None:
    rows = [
        {"row": number, "customerId": 7 * number, "name": f"n {number}", "year": 2000 + number, "rank": 5 * number % 60}
        for number in range(60)
    ]
    columns = columns_of(rows)
    encoder = TableEncoder.made_for(columns)
    kinds = {"row": "ignored", "customerId": "ignored", "name": "ignored", "year": "number", "rank": "number"}
    assert encoder.columns == kinds and encoder.width == 2
    assert [note.split("'")[1] for note in encoder.notes] == ["row", "customerId", "name"]
    assert "counts the rows" in encoder.notes[0] and "`numbers`" in encoder.notes[0]
    kept = TableEncoder.made_for(columns, numbers=["row"], categories=["name", "year"], ignore=["rank"])
    assert list(kept.columns.values()) == ["number", "ignored", "category", "category", "ignored"]
    assert TableEncoder.made_for(columns, named=False).columns["row"] == "number"
    assert TableEncoder.made_for(columns_of(rows[:5])).columns["customerId"] == "number"  # five are no sign
    only = TableEncoder.made_for({"row": columns["row"]})
    assert only.columns == {"row": "number"}  # nothing else is there


def test_more_texts_than_categories_are_left_out_unless_named() -> None:
    columns = columns_of([{"text": f"t{number % 150}", "size": number / 7} for number in range(900)])
    encoder = TableEncoder.made_for(columns)
    assert encoder.columns["text"] == "ignored" and "150 different texts" in encoder.notes[0]
    assert TableEncoder.made_for(columns, categories=["text"]).width == 129


@pytest.mark.parametrize(
    ("texts", "moments"),
    [
        (["2024-02-29", "2024-03-01"], ["2024-02-29", "2024-03-01"]),
        (["2024-02-29T12:30:15.5", "2024-03-01 00:00"], ["2024-02-29T12:30:15.5", "2024-03-01"]),
        (["2024-02-29T12:00Z", "2024-03-01T01:00+02:00"], ["2024-02-29T12:00", "2024-02-29T23:00"]),
        (["2024/2/9", "2024/12/31"], ["2024-02-09", "2024-12-31"]),
        (["31.12.2023 18:05", "1.2.2024"], ["2023-12-31T18:05", "2024-02-01"]),
        (["12/31/2023 6:05 PM", "2/1/2024 12:00 AM"], ["2023-12-31T18:05", "2024-02-01"]),
        (["31/12/2023", "1/2/2024"], ["2023-12-31", "2024-02-01"]),
    ],
)
def test_dates_in_many_spellings(texts: list[str], moments: list[str]) -> None:
    columns, same = {"d": np.array(texts)}, {"d": np.array(moments, dtype="datetime64[us]")}
    encoder, other = TableEncoder.made_for(columns), TableEncoder.made_for(same)
    assert encoder.columns == {"d": "date"}
    assert (encoder.encode(columns) == other.encode(same)).all()


def test_texts_that_are_nearly_dates_are_categories() -> None:
    for texts in (["1.2.3", "1.2.4"], ["2024-02-30", "2024-02-28"], ["12:30", "13:30"], ["2024-01-01", "soon"]):
        assert TableEncoder.made_for({"d": np.array(texts)}).columns == {"d": "category"}


def test_a_gap_that_comes_later_becomes_the_mean_so_far() -> None:
    encoder = TableEncoder.made_for({"n": np.array([1.0, 2.0])})
    encoder.update({"n": np.array([1.0, 2.0])})
    encoder.update({"n": np.array([6.0, np.nan])})
    assert encoder.encode({"n": np.array([np.nan, 5.0])}).tolist() == [[3.0], [5.0]]  # no column says so: none is free


def test_means_follow_single_numbers_by_the_same_formula_as_batches() -> None:
    numbers = np.array([3.0, np.nan, -1e300, 1e300, 0.1, 1.7e308, -1.7e308])
    mean, count = 0.0, 0
    encoder = TableEncoder.made_for({"n": numbers})
    for number in numbers:
        encoder.update({"n": np.array([number])})
        if not np.isnan(number):
            count += 1
            with np.errstate(over="ignore"):
                mean += float((np.array([number]).mean() - mean) * (1 / count))
            mean = mean if np.isfinite(mean) else 0.0
        state = encoder.to_json()["columns"][0]
        assert encoder.encode({"n": np.array([np.nan])})[0, 0] == mean, state


def test_the_largest_numbers_there_are_have_a_mean_all_the_same() -> None:
    encoder = TableEncoder.made_for({"n": np.array([1.0])})
    encoder.update({"n": np.full(4, 1.7e308)})
    assert np.isfinite(encoder.encode({"n": np.array([np.nan, -1.7e308])})).all()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"n": np.array(["1", "x"])}, "the column 'n' holds numbers, but 'x' in row 2; .* `categories`"),
        ({"n": np.array([1.0, np.inf])}, "'n' holds inf in row 2"),
        ({"n": np.array(["2024-01-01"], dtype="datetime64[D]")}, "'n' holds dates, not numbers"),
        ({"m": np.array([1.0])}, "no column 'n'; it has c, m"),
        ({"n": np.array([{}], dtype=object)}, "'n' holds a dict"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_learned(columns: dict[str, Any], words: str) -> None:
    encoder = TableEncoder.made_for({"c": np.array(["a"]), "n": np.array([1.0])})
    before = encoder.to_json()
    full = {"c": np.array(["new"] * len(next(iter(columns.values())))), **columns}
    for call in (encoder.update, encoder.encode):
        with pytest.raises(SnclError, match=words):
            call(full)
    assert encoder.to_json() == before


def test_a_typing_error_among_numbers_is_no_category() -> None:
    columns = {"n": np.array(["1", "2", "oops", "4"])}
    with pytest.raises(SnclError, match="'oops' in row 3"):
        TableEncoder.made_for(columns)
    assert TableEncoder.made_for(columns, categories=["n"]).columns == {"n": "category"}


def test_columns_are_named_once_and_exist() -> None:
    columns = {"a": np.array([1.0]), "b": np.array([2.0])}
    for options, words in (
        ({"ignore": ["z"]}, "`ignore`: there is no column 'z'; there are a, b"),
        ({"ignore": ["a"], "numbers": ["a"]}, "'a' is named in `ignore` and in `numbers`"),
        ({"ignore": ["a", "b"]}, "no column left"),
    ):
        with pytest.raises(SnclError, match=words):
            TableEncoder.made_for(columns, **options)


@pytest.mark.parametrize("counts", [(3, 3, 3), (3, 1, 0)])
def test_means_side_by_side_are_those_of_each_column(counts: tuple[int, ...]) -> None:
    """Bit for bit, in single rows and in batches, also beyond the largest number there is."""
    draw = np.random.default_rng(0)
    ours, theirs = ([RunningMean(count, 0.25 * count) for count in counts] for _ in range(2))
    together = RunningMeans(ours)
    for rows in (1, 1, 5, 1, 2, 1, 1):
        matrix = draw.standard_normal((rows, 3)) * [1e-3, 1e308, 7]
        with np.errstate(over="ignore", invalid="ignore"):
            together.learn(matrix)
            for column, values in zip(theirs, matrix.T, strict=True):
                column.learn(np.ascontiguousarray(values))
        together.settle()
        assert ours == theirs
