"""What an experiment keeps of the user's data. No torch is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sncl.streams.user.recognise import Form
from sncl.streams.user.spec import Cut, DataSpec

CUT_TITLES: dict[Cut, str] = {"classes": "", "domain": " by domain", "none": " uncut"}
OF_COLUMNS = ("ignore", "categories", "numbers")


@dataclass(frozen=True)
class UserData:
    """What an experiment keeps of the user's data: enough to read them again and to notice that they changed.

    ``rows`` is the number of training samples; ``pixels`` says whether they are images of bytes. ``path`` does not
    belong to the identity of a run. ``ignore``, ``categories`` and ``numbers`` are the columns that were named so.
    """

    form: Form
    path: str
    cut: Cut
    target: str | None
    domain: str | None
    size: int | None
    classes: int
    domains: int
    rows: int
    pixels: bool
    network: Literal["mlp", "resnet18"]
    fingerprint: str
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in OF_COLUMNS:  # lists, where they come from a file
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def name(self) -> str:
        """What the stream is called in results."""
        return f"{self.form}:{Path(self.path).name}{CUT_TITLES[self.cut]}"

    def spec(self) -> DataSpec:
        """How to read the same data again."""
        kinds = self.ignore, self.categories, self.numbers
        return DataSpec(self.form, Path(self.path), self.cut, self.target, self.domain, self.size, *kinds)

    def deciding(self) -> dict[str, Any]:
        """What belongs to the identity of a run, as plain data; columns only where some are named."""
        facts = {key: value for key, value in asdict(self).items() if key != "path"}
        return {key: list(value) if key in OF_COLUMNS else value for key, value in facts.items() if value != ()}
