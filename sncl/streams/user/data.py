"""The user's data as a data set.

Each form has a reader (:mod:`sncl.streams.user.folder`, :mod:`sncl.streams.user.arrays`,
:mod:`sncl.streams.user.tables`) that lists labels first. Here labels become class indices, a fifth of each class is
held out where there is no test set, and everything that would go wrong later is refused in one line. The fingerprint of
what was read belongs to the identity of a run.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sncl.errors import SnclError
from sncl.streams.cache import Progress
from sncl.streams.datasets.sources import Dataset
from sncl.streams.holdout import hold_out_test
from sncl.streams.user.arrays import list_arrays
from sncl.streams.user.folder import list_folder
from sncl.streams.user.identity import UserData
from sncl.streams.user.listing import Annotations, Listing, Strings, sorted_names
from sncl.streams.user.spec import Cut, DataSpec
from sncl.streams.user.tables import list_table
from sncl.tables.columns import is_number, some

TEST_FRACTION = 0.2  # of each class, where there is no test set
TEST_SEED = 0  # the same test samples for every seed of a run
MAPPED_FROM = 2**30  # bytes: smaller data sets go to the GPU as a whole
MAJORITY = 1.5  # times the share of a class if all were equal: from here on it is pointed out
SMALL_IMAGE = 28  # pixels a side: grey images up to here need no convolutions


class Loaded(NamedTuple):
    """A data set, what an experiment keeps of it, and notes for the user on how it was read."""

    dataset: Dataset
    user_data: UserData
    notes: list[str]


class Indexed(NamedTuple):
    """Labels and domains of training and test samples as indices of their names."""

    names: list[str]
    domain_names: list[str]
    y: Tensor
    domain: Tensor | None
    test_y: Tensor
    test_domain: Tensor | None


def read(spec: DataSpec, progress: Progress | None = None) -> Loaded:
    """The data set; ``progress(done, all)`` follows the decoding of images."""
    if not spec.path.exists():
        raise SnclError(f"the data {spec.name} are no longer at {spec.path}")
    if not spec.path.is_file() and not spec.path.is_dir():
        raise SnclError(f"{spec.path} is neither a file nor a folder, and data are read from these only")
    listing = list_data(spec, progress)
    indexed = index_names(listing, spec)
    cut: Cut = spec.cut or ("classes" if indexed.domain is None else "domain")
    train, test, note = choose_samples(indexed, listing.test is not None)
    indexed = indexed._replace(
        y=indexed.y[train],
        domain=None if indexed.domain is None else indexed.domain[train],
        test_y=indexed.test_y[test],
        test_domain=None if indexed.test_domain is None else indexed.test_domain[test],
    )
    check_samples(indexed, spec, cut)
    x, test_x, table = listing.load(train, test)
    dataset = Dataset(
        spec.name,
        x,
        indexed.y,
        test_x,
        indexed.test_y,
        len(indexed.names),
        mapped=spec.form == "folder" and x.nbytes + test_x.nbytes > MAPPED_FROM,
        names=tuple(indexed.names),
        train_domain=indexed.domain,
        test_domain=indexed.test_domain,
        domain_names=tuple(indexed.domain_names),
        table=table,
    )
    user_data = user_data_of(dataset, spec, cut, listing)
    lines = [*summary_lines(dataset, cut, spec.cut is None), *listing.notes, *note, *majority_note(dataset)]
    return Loaded(dataset, user_data, lines)


def list_data(spec: DataSpec, progress: Progress | None) -> Listing:
    if spec.form == "folder":
        return list_folder(spec, progress)
    return list_arrays(spec) if spec.form == "npz" else list_table(spec)


def index_names(listing: Listing, spec: DataSpec) -> Indexed:
    """Labels and domains by the index of their name; a name that is only tested is refused."""
    names = sorted_names(listing.train.labels.tolist())
    if len(names) < 2:
        raise SnclError(f"{spec.name} has only one class, {names[0]!r}; there is nothing to tell apart")
    domain_names = [] if listing.train.domains is None else ordered_domains(listing.train.domains, spec)
    if listing.test is not None:
        refuse_unknown(listing.test.labels, names, spec, "class")
        if listing.test.domains is not None:
            refuse_unknown(listing.test.domains, domain_names, spec, "domain")
    train = indices(listing.train, names, domain_names)
    test = train if listing.test is None else indices(listing.test, names, domain_names)
    return Indexed(names, domain_names, *train, *test)


def choose_samples(indexed: Indexed, has_test: bool) -> tuple[Tensor, Tensor, list[str]]:
    """The indices of training and test samples, and a note where test samples had to be held out."""
    names, y, domain = indexed.names, indexed.y, indexed.domain
    if has_test:
        return torch.arange(len(y)), torch.arange(len(indexed.test_y)), []
    strata = y if domain is None else domain * len(names) + y
    train, test = hold_out_test(strata, TEST_FRACTION, TEST_SEED)
    of_each = "class" if domain is None else "class of each domain"
    note = f"no test set: {TEST_FRACTION:.0%} of each {of_each}, {len(test)} rows, are held out to test on"
    return train, test, [note]


def check_samples(indexed: Indexed, spec: DataSpec, cut: Cut) -> None:
    """Refuse data in which a class, or a domain that is a task, is not learned or not tested."""
    refuse_absent(indexed.y, indexed.test_y, indexed.names, spec, "class")
    if cut != "domain":
        return
    assert indexed.domain is not None and indexed.test_domain is not None
    refuse_absent(indexed.domain, indexed.test_domain, indexed.domain_names, spec, "domain")
    if len(indexed.domain_names) < 2:
        only = indexed.domain_names[0]
        raise SnclError(f'{spec.name} has only one domain, {only!r}; use `cut="classes"` or `cut="none"`')


def user_data_of(dataset: Dataset, spec: DataSpec, cut: Cut, listing: Listing) -> UserData:
    """What an experiment keeps of a data set."""
    return UserData(
        form=spec.form,
        path=str(spec.path),
        cut=cut,
        target=listing.target,
        domain=listing.domain,
        size=spec.size,
        classes=len(dataset.names),
        domains=len(dataset.domain_names),
        rows=len(dataset.train_x),
        pixels=dataset.train_x.dtype == torch.uint8,
        network=network_for(dataset.train_x),
        fingerprint=dataset.fingerprint(),
        ignore=spec.ignore,
        categories=spec.categories,
        numbers=spec.numbers,
    )


def summary_lines(dataset: Dataset, cut: Cut, by_default: bool) -> list[str]:
    """The data set in a line, and how it is cut."""
    shape = list(dataset.train_x.shape[1:])
    if dataset.table is not None:
        shape = [sum(found.kind != "ignored" for found in dataset.table.kinds.values())]
    kind = f"{shape[0]} columns" if len(shape) == 1 else f"{'grey' if shape[0] == 1 else 'RGB'} {shape[2]} x {shape[1]}"
    line = (
        f"{len(dataset.train_y)} rows to learn from and {len(dataset.test_y)} to test on, {kind}, "
        f"{len(dataset.names)} classes: {some(dataset.names)}"
    )
    how = {
        "classes": "by classes, in this order",
        "domain": f"by domain: {some(dataset.domain_names)}",
        "none": "into nothing: one pass in file order, without boundaries",
    }[cut]
    return [line, f"cut {how}" + (" (`cut` cuts in another way)" if by_default else "")]


def majority_note(dataset: Dataset) -> list[str]:
    """How often the most frequent class of the test rows is right, where that is clearly more than chance."""
    counts = torch.bincount(dataset.test_y, minlength=len(dataset.names))
    share, most = float(counts.max() / counts.sum()), int(counts.argmax())
    if share < MAJORITY / len(dataset.names):
        return []
    return [f"always saying {dataset.names[most]!r} would be right in {share:.0%} of the test rows"]


def network_for(x: Tensor) -> Literal["mlp", "resnet18"]:
    """Convolutions for colour and for large images."""
    small = x.dim() == 2 or (x.shape[1] == 1 and max(x.shape[2:]) <= SMALL_IMAGE)
    return "mlp" if small else "resnet18"


def ordered_domains(domains: Strings, spec: DataSpec) -> list[str]:
    """Numbers by value; folders by name; other strings in the order in which they first occur."""
    values = domains.tolist()
    by_value = spec.form == "folder" or all(map(is_number, set(values)))
    return sorted_names(values) if by_value else list(dict.fromkeys(values))


def indices(annotations: Annotations, names: list[str], domain_names: list[str]) -> tuple[Tensor, Tensor | None]:
    """Labels and domains as the indices of their names."""
    labels, domains = annotations
    return _indices(labels, names), None if domains is None else _indices(domains, domain_names)


def _indices(values: Strings, names: list[str]) -> Tensor:
    index = {name: number for number, name in enumerate(names)}
    return torch.tensor([index[value] for value in values.tolist()])


def refuse_unknown(values: Strings, names: list[str], spec: DataSpec, what: str) -> None:
    unknown = sorted_names(set(values.tolist()) - set(names))
    if unknown:
        raise SnclError(
            f"{spec.name} tests on the {what} {some(repr(name) for name in unknown)}, which no training row has"
        )


def refuse_absent(y: Tensor, test_y: Tensor, names: list[str], spec: DataSpec, what: str) -> None:
    """Refuse a class or domain without a sample to learn from or to test on, and say what to do."""
    for values, use in ((y, "to learn from"), (test_y, "to test on")):
        absent = (torch.bincount(values, minlength=len(names)) == 0).nonzero().flatten().tolist()
        if absent:
            raise SnclError(
                f"{spec.name} has no row {use} of the {what} {some(repr(names[each]) for each in absent)}; each needs "
                f"two rows, or one in each of the training and the test set: add some, remove this {what}, or join it "
                "with another"
            )
