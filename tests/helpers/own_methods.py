"""A method of somebody else, in a module of its own and as an installed plug-in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sncl.methods import own

MODULE = '''
from sncl.methods.method import Method, Outcome
from sncl.methods.terms import label_losses
from sncl.tensors.fields import inputs


class WeightedReplay(Method):
    """loss = CE(f(x), y) + weight * CE(f(x'), y')."""

    draws = 1

    def __init__(self, weight: float = 1.0, warm: bool = False) -> None:
        super().__init__()
        self.weight = weight
        self.warm = warm

    def observe(self, net, now, past):
        here, *there = net.passes(inputs(now), *(inputs(rows) for rows in past))
        losses = {"labels": label_losses(here.logits, now["y"]).mean()}
        if past:
            losses["past_labels"] = self.weight * label_losses(there[0].logits, past[0]["y"]).mean()
        return Outcome(losses)
'''


def write_module(folder: Path, name: str, text: str = MODULE) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def install(folder: Path, package: str, points: dict[str, str]) -> None:
    """What pip leaves of a package that offers these methods."""
    place = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in points.items()]
    (place / "entry_points.txt").write_text("[sncl.methods]\n" + "".join(lines))


class OwnMethods:
    """Modules and packages that can be imported while a test runs, and what sncl remembers of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.modules: list[str] = []
        monkeypatch.setattr(own, "_given", {})
        monkeypatch.syspath_prepend(folder)
        self.forget()

    def module(self, name: str, text: str = MODULE) -> None:
        write_module(self.folder, name, text)
        self.modules.append(name)

    def forget(self) -> None:
        own.plugin_points.cache_clear()
        own.plugin.cache_clear()
        for name in self.modules:
            sys.modules.pop(name, None)
