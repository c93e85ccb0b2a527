"""Experiments of a second or two over the embedded digits."""

from typing import Any

from sncl.runs.experiment import Experiment
from sncl.runs.plan import plan


def short(stream: str = "seq-digits", method: str = "er", **changed: Any) -> Experiment:
    usual: dict[str, Any] = {"memory": 30, "device": "cpu"}
    if stream != "digits-360":
        usual |= {"tasks": 2, "epochs": 1}
    if stream != "seq-digits":
        usual |= {"settings": {"batch_size": "64"} | changed.pop("settings", {})}
    return plan(stream, method, **(usual | changed))
