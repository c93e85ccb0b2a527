"""Rows with additions of ours: apart from those under the paper's protocol, with nothing published beside them."""

from __future__ import annotations

import pytest
from command_line import Sncl

from sncl.methods.table import METHODS
from sncl.paper.comparison import WITH_ADDITIONS, markdown, rows_by_table
from sncl.paper.records import TableRow
from sncl.paper.reproduce import planned
from sncl.paper.tables import additions, cells, published_for
from sncl.runs.plan import plan

PLUS = [name for name, entry in METHODS.items() if entry.plain]


def rows(*methods: str) -> list[TableRow]:
    wanted = cells("table1", ["seq-cifar10"], methods, [500, 5120])
    return [TableRow(cell, experiment, 2, {}) for cell, experiment in planned(wanted, "cpu")]


def test_those_with_additions_are_the_same_methods_under_other_names() -> None:
    assert {name: METHODS[name].plain for name in PLUS} == {"derpp+": "derpp", "er-ace+": "er-ace", "sncl+": "sncl"}
    for name in PLUS:
        plain = METHODS[METHODS[name].plain]
        assert METHODS[name].title not in {entry.title for other, entry in METHODS.items() if other != name}
        assert METHODS[name].make is plain.make and METHODS[name].settings.keys() == plain.settings.keys()


def test_they_stand_in_tables_of_their_own_with_what_they_add() -> None:
    found = rows("derpp", "sncl", "sncl+", "derpp+", "er-ace+")
    titles = {title: [row.cell.title for row in each] for title, each in rows_by_table(found).items()}
    assert titles == {
        "seq-cifar10": ["DER++", "SNCL"] * 2,
        "seq-cifar10, with additions": ["DER++ +", "ER-ACE+", "SNCL+"] * 2,
    }
    page = markdown("table1", found, lambda table, members: " ".join(row.cell.method for row in members))
    assert page.index("## seq-cifar10\n") < page.index("## seq-cifar10, with additions\n")
    assert WITH_ADDITIONS in page
    assert "- SNCL+, seq-cifar10, memory 500: `augment=strong ace=1`" in page.replace(
        "ace=1 augment=strong", "augment=strong ace=1"
    )
    first, second = page.split("## seq-cifar10, with additions")
    assert "66.16" not in second and "76.35" in first and "SNCL+ |" not in first
    assert "derpp sncl derpp sncl\n" in page and "derpp+ er-ace+ sncl+ derpp+ er-ace+ sncl+\n" in page


def test_a_page_without_them_says_nothing_of_them() -> None:
    page = markdown("table1", rows("sncl"), lambda *_: "")
    assert "additions" not in page


def test_a_plain_method_adds_nothing() -> None:
    assert additions("seq-cifar10", "sncl", 5120) == {}
    expected = {"lr": 0.01, "replay": 128, "momentum": 0.9, "weight_decay": 0.0005, "augment": "strong"}
    assert additions("seq-cifar10", "sncl+", 5120) == expected
    assert additions("perm-mnist", "sncl+", 200) == {"ace": 1}


@pytest.mark.parametrize("addition", ["ace=1", "momentum=0.9", "weight_decay=0.001", "augment=strong", "lr_drop=0.1"])
def test_nothing_is_published_of_a_run_with_an_addition(addition: str) -> None:
    key, text = addition.split("=")

    def printed(method: str, **settings: str) -> dict[str, object]:
        experiment = plan("seq-cifar10", method, memory=200, device="cpu", settings=settings)
        return dict(published_for("seq-cifar10", method, 200, experiment.settings))

    assert printed("sncl") and not printed("sncl", **{key: text})
    assert not printed("sncl+") and not printed("sncl+", ace="0")


def test_one_command_asks_for_all_of_them(sncl: Sncl) -> None:
    options = [word for name in ("sncl", *PLUS) for word in ("--method", name)]
    done = sncl(
        "reproduce", "table1", "--stream", "seq-cifar10", "--memory", "200", *options, "--seeds", "1", "--collect"
    )
    assert done.code == 0, done.err
    assert done.out.index("seq-cifar10") < done.out.index("seq-cifar10, with additions")
    assert "sncl reproduce table1 --stream seq-cifar10 --method sncl+ --memory 200 --seeds 1" in done.out


def test_the_page_says_why_a_row_stands_there_with_other_settings() -> None:
    wanted = planned(cells("table1", ["perm-mnist", "rot-mnist"], ["oewc"]), "cpu")
    found = [TableRow(cell, experiment, 2, {}) for cell, experiment in wanted]
    page, without = (markdown("table1", members, lambda *_: "") for members in (found, found[2:]))
    assert "| oEWC, strength 7 | – | " in page
    assert "ten times that" in page and "ten times that" not in without
