"""What requests and answers look like, for ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from sncl.serving.requests import LONGEST_NAME

IDS: dict[str, Any] = {
    "type": "array",
    "items": {"oneOf": [{"type": "string", "maxLength": LONGEST_NAME}, {"type": "integer"}]},
}
ROWS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {"oneOf": [{"type": "array", "items": {}}, {"type": "object"}]},
    "description": "lists of numbers, nested lists for images, or objects of values by column name",
}
LABELS: dict[str, Any] = {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "number"}]}}


def _flag(text: str, usual: bool) -> dict[str, Any]:
    return {"type": "boolean", "default": usual, "description": text}


PREDICT: dict[str, Any] = {
    "type": "object",
    "required": ["rows"],
    "additionalProperties": False,
    "properties": {
        "rows": ROWS,
        "ids": IDS | {"description": "your own ids, one for each row; without them the server gives some"},
        "probabilities": _flag("answer with the probability of each class, too", False),
        "keep": _flag("whether labels for these predictions may come later", True),
    },
}
LEARN: dict[str, Any] = {
    "type": "object",
    "required": ["labels"],
    "additionalProperties": False,
    "properties": {
        "rows": ROWS,
        "ids": IDS | {"description": "ids of predictions, instead of rows"},
        "labels": LABELS,
        "wait": _flag("answer when predictions see what was learned, not when it is kept", False),
    },
}
PREDICTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "predictions": LABELS,
        "ids": IDS,
        "classes": LABELS | {"description": "of the probabilities"},
        "probabilities": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    },
}
LEARNED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "learned": {"type": "integer", "description": "rows"},
        "number": {"type": "integer", "description": "of the record in the journal: learning goes in this order"},
    },
}
ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "ids": IDS, "labels": LABELS},
}
REFUSALS = {
    400: "No JSON, or a foreign Host",
    401: "No token, or a wrong one",
    404: "Unknown or expired ids; they are named, and nothing was learned",
    409: "Ids that wait already",
    413: "Too many bytes or rows",
    415: "No application/json",
    422: "Rows or labels that do not fit",
    503: "Too much waits, or nothing can be learned or kept any more",
}


def described(body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """One route: its body, its answer and its refusals."""
    answers = {"200": _json("What was asked for", answer)}
    answers |= {str(status): _json(text, ERROR) for status, text in REFUSALS.items()}
    return {"requestBody": {"required": True} | _content(body), "responses": answers}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _json(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text} | _content(schema)
