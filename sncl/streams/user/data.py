"""A person's own data as a data set: ``folder:PATH``, ``npz:PATH`` and ``table:PATH``.

Each form has a reader (:mod:`sncl.streams.user.folder`, :mod:`sncl.streams.user.arrays`,
:mod:`sncl.streams.user.tables`) that lists labels first. Here labels become numbers, data without a test set give a
fifth of each class to one, and everything that would go wrong later is refused in one line. The fingerprint of what was
read belongs to the identity of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.datasets.sources import Progress, Source
from sncl.streams.holdout import hold_out_test
from sncl.streams.user.arrays import list_arrays
from sncl.streams.user.folder import list_folder
from sncl.streams.user.listing import Asked, Cut, Form, Listing, Part, Texts, in_order, is_number, some
from sncl.streams.user.tables import list_table

FORMS: dict[str, str] = {
    "folder:PATH": "images in PATH/<class>/, PATH/<domain>/<class>/, or those in PATH/train and PATH/test",
    "npz:PATH": "arrays x, y (and test_x, test_y, domain) of one .npz file; PATH.npz will do",
    "table:PATH": "a .csv or .parquet file with a column of labels; PATH.csv, PATH.parquet will do",
}
BY_SUFFIX: dict[str, Form] = {".npz": "npz", ".csv": "table", ".parquet": "table"}
TITLES: dict[Cut, str] = {"classes": "", "domain": " by domain", "none": " uncut"}
TEST_PART = 0.2  # of each class, where there is no test set
TEST_SEED = 0  # the same test rows for every seed of a run
MAPPED_FROM = 2**30  # bytes: smaller data sets go to the GPU as a whole
SMALL = 28  # pixels a side: grey images up to here need no convolutions


@dataclass(frozen=True)
class UserData:
    """What an experiment knows of a person's own data: enough to read them again and to notice that they changed.

    ``rows`` are those to learn from; ``pixels`` says whether they are images of bytes. ``path`` alone does not decide
    what a run is a run of.
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

    @property
    def name(self) -> str:
        """What the stream is called in results."""
        return f"{self.form}:{Path(self.path).name}{TITLES[self.cut]}"

    def asked(self) -> Asked:
        return Asked(self.form, Path(self.path), self.cut, self.target, self.domain, self.size)


class Read(NamedTuple):
    """A data set, what an experiment keeps of it, and what a person should know about how it was read."""

    source: Source
    user_data: UserData
    notes: list[str]


def form_of(stream: str) -> tuple[Form, Path] | None:
    """The form and the path that a stream's name says; None for a name that is neither a form nor a file of one."""
    form, colon, rest = stream.partition(":")
    if colon and form in get_args(Form):
        if not rest:
            raise SnclError(f"{form}: is followed by a path, as in {form}:data/mine")
        return form, Path(rest).expanduser()  # type: ignore[return-value]
    path = Path(stream).expanduser()
    return (BY_SUFFIX[path.suffix.lower()], path) if path.suffix.lower() in BY_SUFFIX else None


def ask(
    stream: str,
    cut: str | None = None,
    target: str | None = None,
    domain: str | None = None,
    size: int | None = None,
) -> Asked | None:
    """What a stream's name and options ask for; None for a name of `sncl list`, which takes no such options."""
    found = form_of(stream)
    if found is None:
        options = {"cut": cut, "target": target, "domain": domain, "size": size}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise SnclError(f"--{given[0]} is for your own data ({', '.join(FORMS)}), not for {stream!r}")
        return None
    form, path = found
    if cut is not None and cut not in get_args(Cut):
        raise SnclError(f"--cut is one of {', '.join(get_args(Cut))}, not {cut!r}")
    if not path.exists():
        raise SnclError(f"there is no {path} for the stream {stream!r}")
    return Asked(form, path.resolve(), cut, target, domain, size)


def read(asked: Asked, progress: Progress | None = None) -> Read:
    """The data set; ``progress(done, all)`` follows the decoding of images."""
    if not asked.path.exists():
        raise SnclError(f"the data {asked.name} are no longer at {asked.path}")
    if asked.form == "folder":
        listing = list_folder(asked, progress)
    else:
        if asked.form == "npz" and asked.path.is_dir():
            raise SnclError(f"npz: takes a .npz file, and {asked.path} is a folder; for images say folder:PATH")
        listing = list_arrays(asked) if asked.form == "npz" else list_table(asked)
    notes = list(listing.notes)
    names = in_order(listing.train.labels.tolist())
    if len(names) < 2:
        raise SnclError(f"{asked.name} has only one class, {names[0]!r}; there is nothing to tell apart")
    domain_names = [] if listing.train.domains is None else domain_order(listing, asked)
    train, test = listing.train, listing.test
    if test is not None:
        refuse_unknown(test.labels, names, asked, "class")
        if test.domains is not None:
            refuse_unknown(test.domains, domain_names, asked, "domain")
    y, domain = numbered(train, names, domain_names)
    test_y, test_domain = (y, domain) if test is None else numbered(test, names, domain_names)
    rows, test_rows = torch.arange(len(y)), torch.arange(len(test_y))
    if test is None:
        rows, test_rows = hold_out_test(y if domain is None else domain * len(names) + y, TEST_PART, TEST_SEED)
        of_each = "class" if domain is None else "class of each domain"
        notes.append(f"no test set: {TEST_PART:.0%} of each {of_each}, {len(test_rows)} rows, are held out to test on")
    refuse_absent(y[rows], test_y[test_rows], names, asked, "class")
    cut: Cut = asked.cut or ("classes" if domain is None else "domain")  # type: ignore[assignment]
    if domain is not None and test_domain is not None:
        domain, test_domain = domain[rows], test_domain[test_rows]
        if cut == "domain":
            refuse_absent(domain, test_domain, domain_names, asked, "domain")
    if cut == "domain" and len(domain_names) < 2:
        raise SnclError(f"{asked.name} has only one domain, {domain_names[0]!r}; use --cut classes or none")
    x, test_x = listing.load(rows, test_rows)
    source = Source(
        asked.name,
        x,
        y[rows],
        test_x,
        test_y[test_rows],
        len(names),
        mapped=asked.form == "folder" and x.nbytes + test_x.nbytes > MAPPED_FROM,
        names=tuple(names),
        train_domain=domain,
        test_domain=test_domain,
        domain_names=tuple(domain_names),
    )
    user_data = UserData(
        form=asked.form,
        path=str(asked.path),
        cut=cut,
        target=listing.target,
        domain=listing.domain,
        size=asked.size,
        classes=len(names),
        domains=len(domain_names),
        rows=len(x),
        pixels=x.dtype == torch.uint8,
        network=network_for(x),
        fingerprint=source.fingerprint(),
    )
    return Read(source, user_data, [*described(source, user_data, asked.cut is None), *notes])


def described(source: Source, user_data: UserData, by_default: bool) -> list[str]:
    """The data set in a line, and how it is cut."""
    shape = list(source.train_x.shape[1:])
    kind = f"{shape[0]} columns" if len(shape) == 1 else f"{'grey' if shape[0] == 1 else 'RGB'} {shape[2]} x {shape[1]}"
    lines = [
        f"{len(source.train_y)} rows to learn from and {len(source.test_y)} to test on, {kind}, "
        f"{len(source.names)} classes: {some(source.names)}"
    ]
    how = {
        "classes": "by classes, in this order",
        "domain": f"by domain: {some(source.domain_names)}",
        "none": "into nothing: one pass in file order, without boundaries",
    }[user_data.cut]
    return [*lines, f"cut {how}" + (" (--cut cuts in another way)" if by_default else "")]


def network_for(x: Tensor) -> Literal["mlp", "resnet18"]:
    """Convolutions for colour and for large images."""
    small = x.dim() == 2 or (x.shape[1] == 1 and max(x.shape[2:]) <= SMALL)
    return "mlp" if small else "resnet18"


def domain_order(listing: Listing, asked: Asked) -> list[str]:
    """Numbers by value; folders by name; other texts in the order in which they first come."""
    assert listing.train.domains is not None
    found = listing.train.domains.tolist()
    return in_order(found) if asked.form == "folder" or all(map(is_number, set(found))) else list(dict.fromkeys(found))


def numbered(part: Part, names: list[str], domain_names: list[str]) -> tuple[Tensor, Tensor | None]:
    """Labels and domains as numbers: the places of their names."""
    labels, domains = (
        None if values is None else torch.tensor([place[value] for value in values.tolist()])
        for values, place in ((part.labels, places(names)), (part.domains, places(domain_names)))
    )
    assert labels is not None
    return labels, domains


def places(names: list[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def refuse_unknown(values: Texts, names: list[str], asked: Asked, what: str) -> None:
    unknown = in_order(set(values.tolist()) - set(names))
    if unknown:
        raise SnclError(
            f"{asked.name} tests on the {what} {some(repr(name) for name in unknown)}, which no training row has"
        )


def refuse_absent(y: Tensor, test_y: Tensor, names: list[str], asked: Asked, what: str) -> None:
    """Refuse a class or domain without a row to learn from or to test on."""
    for rows, use in ((y, "to learn from"), (test_y, "to test on")):
        absent = (torch.bincount(rows, minlength=len(names)) == 0).nonzero().flatten().tolist()
        if absent:
            raise SnclError(f"{asked.name} has no row {use} of the {what} {some(repr(names[each]) for each in absent)}")
