"""Bodies of requests: JSON of numbers that are numbers, no deeper and no longer than is allowed."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from sncl.serving.refusals import RequestRefused

LONGEST_NAME = 200  # letters of an id or a label
OF_PREDICT = {"rows", "ids", "probabilities", "keep"}
OF_LEARN = {"rows", "ids", "labels", "wait"}


class PredictRequest(NamedTuple):
    """Rows to predict. ``ids`` are the client's own, if it has any; what is not kept cannot be labelled later."""

    rows: list[Any]
    ids: list[str] | None = None
    probabilities: bool = False
    keep: bool = True


class LearnRequest(NamedTuple):
    """Labels of rows that come with them, or of predictions by their ids; ``wait``: answer when they are learned."""

    labels: list[Any]
    rows: list[Any] | None = None
    ids: list[str] | None = None
    wait: bool = False


def predict_request(body: bytes, most: int) -> PredictRequest:
    """What a body asks for, of at most so many rows."""
    given = _fields(body, OF_PREDICT)
    rows = _rows(given.get("rows"), most)
    ids = None if given.get("ids") is None else _ids(given["ids"], most)
    keep = _flag(given, "keep", True)
    if ids is not None and len(ids) != len(rows):
        raise RequestRefused(422, f"`ids` has one for each of the rows: {len(rows)}, not {len(ids)}")
    if ids is not None and not keep:
        raise RequestRefused(422, "`ids` are of predictions that are kept; leave them out, or `keep`")
    return PredictRequest(rows, ids, _flag(given, "probabilities", False), keep)


def learn_request(body: bytes, most: int) -> LearnRequest:
    """What a body asks for, of at most so many rows."""
    given = _fields(body, OF_LEARN)
    if (given.get("rows") is None) == (given.get("ids") is None):
        raise RequestRefused(422, "give either `rows` or `ids` beside `labels`")
    rows = None if given.get("rows") is None else _rows(given["rows"], most)
    ids = None if given.get("ids") is None else _ids(given["ids"], most)
    labels = given.get("labels")
    if not isinstance(labels, list):
        raise RequestRefused(422, "`labels` is a list with one label for each row or id")
    count = len(ids or rows or [])
    if len(labels) != count:
        raise RequestRefused(422, f"`labels` has one for each row or id: {count}, not {len(labels)}")
    for label in labels:
        if not isinstance(label, str | int | float) or (isinstance(label, str) and len(label) > LONGEST_NAME):
            raise RequestRefused(422, f"a label is a number or a text of at most {LONGEST_NAME} letters")
    return LearnRequest(labels, rows, ids, _flag(given, "wait", False))


def _fields(body: bytes, known: set[str]) -> dict[str, Any]:
    try:
        given = json.loads(body, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise RequestRefused(400, "the body is nested too deeply") from error
    except ValueError as error:  # of bytes that are no text, too
        raise RequestRefused(400, f"the body is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise RequestRefused(422, f"the body is an object with {listed_names(known)}")
    if unknown := given.keys() - known:
        raise RequestRefused(422, f"the body has an unknown field {min(unknown)!r}; known are {listed_names(known)}")
    return given


def listed_names(names: set[str]) -> str:
    """Names of fields, in order."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not allowed, only finite numbers")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


def _flag(given: dict[str, Any], name: str, usual: bool) -> bool:
    value = given.get(name, usual)
    if not isinstance(value, bool):
        raise RequestRefused(422, f"`{name}` is true or false")
    return value


def _rows(rows: Any, most: int) -> list[Any]:
    if not isinstance(rows, list) or not rows:
        raise RequestRefused(422, "`rows` is a list of at least one row")
    if len(rows) > most:
        raise RequestRefused(413, f"a request has at most {most} rows, not {len(rows)}; send it in parts")
    kinds = {dict if isinstance(row, dict) else list if isinstance(row, list) else None for row in rows}
    if len(kinds) != 1 or None in kinds:
        raise RequestRefused(422, "each row is a list of numbers, or each an object of values by column name")
    return rows


def _ids(ids: Any, most: int) -> list[str]:
    if not isinstance(ids, list) or not ids:
        raise RequestRefused(422, "`ids` is a list of at least one id")
    if len(ids) > most:
        raise RequestRefused(413, f"a request has at most {most} ids, not {len(ids)}; send it in parts")
    for each in ids:
        whole = isinstance(each, int) and not isinstance(each, bool)
        if not (whole or (isinstance(each, str) and 0 < len(each) <= LONGEST_NAME)):
            raise RequestRefused(422, f"an id is a text of 1 to {LONGEST_NAME} letters or a whole number")
    found = [str(each) for each in ids]
    if len(set(found)) < len(found):
        raise RequestRefused(422, "`ids` names one of them twice")
    return found
