"""Our numbers beside the paper's: what differs by more than chance, as a table, as JSON and as Markdown."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sncl.methods.table import METHODS, Value
from sncl.paper.records import TableRow
from sncl.paper.tables import PAPER_SEEDS, SNCL_VARIANTS, Published, additions, printed_readouts
from sncl.runs.summary import COLLAPSE_NOTE, READOUT_TITLES, CollapsedRuns, mean_std, show

Command = Callable[[str, Sequence[TableRow]], str]  # which reproduces these rows of a table

TABLE_TITLES = {
    "table1": "Table 1: methods by stream and memory",
    "table2": "Table 2: MNIST-360",
    "ablation": "Ablation: the parts of SNCL",
    "layers": "Layers: where features are replayed",
}
INTRODUCTION = """\
Test accuracy after the last task in percent, mean ± standard deviation over seeds, with the settings of
`sncl/defaults.toml`; the paper has {seeds} seeds. *Equal*: the means differ by no more than twice the standard error of
their difference, where a deviation that the paper does not print counts as 0. *Without/with EMA*: the same runs
predicting with the weights as they are trained instead of their exponential moving average, or the other way round
(setting `ema`), which changes nothing about training. Single runs, with all settings, are in
[{table}.jsonl]({table}.jsonl)."""
NOTES = {
    "ablation": """\
All rows are SNCL with its settings for the stream; a part that a row does not name has its neutral value. `+labels` and
`+features` are not in the paper: they take apart `+FER`, which contains the labels of the memory there.""",
    "layers": """\
All rows but the baseline have the labels of the memory and LRS. For `FER-on-layer1&2` the paper prints the number of
its `+FER`, which is without LRS, and for the last row that of the whole SNCL, which is with it.""",
}
FURTHER_NOTES = {
    "oEWC, strength 7": """\
oEWC on Permuted MNIST stands there with the published strength of the penalty, 0.7, and with ten times that. In the
first public code the Fisher information is that of ours but for a factor of 0.9995, and its penalty is 0.7 times it; no
public version makes it larger, one marks this cell as not verified, and another project reports 57 %. So the printed
value does not follow from the public code and settings.""",
}
WITH_ADDITIONS = """\
Rows whose names end in + are not the paper's protocol: additions of our own to the training of SNCL and, the very same
ones, to DER++ and ER-ACE. They stand in tables of their own and have no published numbers."""
HEADINGS = [
    *("row", "memory", "read-out", "seeds", "ours", "paper", "difference", "mark", "open neurons", "without/with EMA")
]


class Comparison(NamedTuple):
    """One read-out of one row. ``mark`` is empty where nothing can be said."""

    row: TableRow
    readout: str
    ours: list[float]
    paper: Published | None
    difference: float | None
    mark: str


def mark(ours: Sequence[float], paper: Published) -> str:
    """Whether the means differ by more than twice the standard error of their difference.

    A deviation the paper does not print counts as none, so there the mark is a strict one.
    """
    if len(ours) < 2:
        return ""
    mean, deviation = mean_std(ours)
    error = math.sqrt(deviation**2 / len(ours) + (paper.deviation or 0.0) ** 2 / PAPER_SEEDS)
    if abs(mean - paper.mean) <= 2 * error:
        return "equal"
    return "better" if mean > paper.mean else "worse"


def compare_row(table: str, row: TableRow) -> list[Comparison]:
    """One comparison for each read-out the row has, or will have."""
    present = {*row.cell.paper, *(readout for record in row.records.values() for readout in record["accuracy"])}
    found = []
    for readout in printed_readouts(table, row.cell.stream):
        if present and readout not in present:
            continue
        ours = [record["accuracy"][readout] for _, record in sorted(row.records.items())]
        paper = row.cell.paper.get(readout)
        difference = statistics.fmean(ours) - paper.mean if ours and paper else None
        found.append(Comparison(row, readout, ours, paper, difference, mark(ours, paper) if paper else ""))
    return found


def open_share(row: TableRow) -> float | None:
    """The mean part of all gates that is open at the end; None where there are no gates."""
    fractions = [record["active_fraction"] for record in row.records.values()]
    known = [fraction for fraction in fractions if fraction is not None]
    return statistics.fmean(known) if known else None


def text(each: Comparison) -> list[str]:
    """The comparison under the ``HEADINGS``."""
    row, paper, fraction = each.row, each.paper, open_share(each.row)
    collapsed = CollapsedRuns(len(row.collapsed()), len(row.records))
    deviation = f" ± {paper.deviation:.2f}" if paper and paper.deviation is not None else ""
    return [
        row.cell.title,
        str(row.cell.memory) if row.cell.memory else "–",
        READOUT_TITLES[each.readout],
        collapsed.tell(f"{len(row.records)}/{row.wanted()}"),
        collapsed.mark(show(each.ours)) if each.ours else "open",
        f"{paper.mean:.2f}{deviation}" if paper else "–",
        "–" if each.difference is None else f"{each.difference:+.2f}",
        each.mark or "–",
        "–" if fraction is None else f"{100 * fraction:.0f} %",
        "; ".join(f"{way} {show(numbers)}" for way, numbers in ema_variants(each).items()) or "–",
    ]


def ema_variants(each: Comparison) -> dict[str, list[float]]:
    """What the runs score with the average of the weights where the row has none, and without where it has one."""
    found: dict[str, list[float]] = {}
    for _, record in sorted(each.row.records.items()):
        for way, accuracy in (record["accuracy_variants"] or {}).items():
            if way != "unmasked":
                found.setdefault(way.replace("_", " "), []).append(accuracy[each.readout])
    return found


def rows_by_table(rows: Sequence[TableRow]) -> dict[str, list[TableRow]]:
    """The rows of each stream, and apart from them those of methods with additions of ours."""
    found: dict[str, list[TableRow]] = {}
    for more in (False, True):
        for row in rows:
            if bool(METHODS[row.cell.method].plain) is more:
                found.setdefault(row.cell.stream + ", with additions" * more, []).append(row)
    return found


def lines_by_stream(table: str, rows: Sequence[TableRow]) -> dict[str, list[list[str]]]:
    """The lines of each table, by its title."""
    return {
        title: [text(each) for row in members for each in compare_row(table, row)]
        for title, members in rows_by_table(rows).items()
    }


def added(rows: Iterable[TableRow]) -> list[str]:
    """What each row with additions adds to the plain method."""
    cells = ((row.cell, additions(row.cell.stream, row.cell.method, row.cell.memory)) for row in rows)
    return [f"- {cell.title}, {cell.stream}, memory {cell.memory}: {changes(found)}" for cell, found in cells if found]


def footnote_of(rows: Iterable[TableRow]) -> str | None:
    """What stands below a table of these rows: what its mark means, where it has one."""
    return COLLAPSE_NOTE if any(row.collapsed() for row in rows) else None


def open_commands(table: str, rows: Sequence[TableRow], command: Command) -> list[str]:
    """What fills the rows that miss a seed."""
    return list(dict.fromkeys(command(table, [row]) for row in rows if row.missing()))


def comparison_json(table: str, rows: Sequence[TableRow], command: Command) -> dict[str, Any]:
    """Everything the table shows, as numbers."""
    return {
        "table": table,
        "rows": [
            {
                "title": row.cell.title,
                "stream": row.cell.stream,
                "method": row.cell.method,
                "memory": row.cell.memory,
                "readout": each.readout,
                "settings": row.experiment.settings,
                "seeds": sorted(row.records),
                "missing": row.missing(),
                "collapsed": row.collapsed(),
                "ours": dict(zip(("mean", "deviation"), mean_std(each.ours), strict=True)) if each.ours else None,
                "paper": each.paper._asdict() if each.paper else None,
                "difference": each.difference,
                "mark": each.mark or None,
                "open_neurons": open_share(row),
                "accuracy_variants": {
                    way: dict(zip(("mean", "deviation"), mean_std(numbers), strict=True))
                    for way, numbers in ema_variants(each).items()
                },
            }
            for row in rows
            for each in compare_row(table, row)
        ],
        "open": open_commands(table, rows, command),
    }


def markdown(table: str, rows: Sequence[TableRow], command: Command, failed: Sequence[str] = ()) -> str:
    """The whole table as a page: a heading, the commands, a table for each stream, what made it and what is open."""
    parts = [f"# {TABLE_TITLES.get(table, table)}", INTRODUCTION.format(table=table, seeds=PAPER_SEEDS)]
    titles = {row.cell.title for row in rows}
    parts += [NOTES[table]] if table in NOTES else []
    parts += [note for title, note in FURTHER_NOTES.items() if title in titles]
    parts.append(console_block(command(table, members) for members in rows_by_table(rows).values()))
    if more := added(rows):
        parts += [WITH_ADDITIONS, "\n".join(more)]
    if table in SNCL_VARIANTS:
        parts.append("\n".join(f"- {title}: {changes(settings)}" for title, settings in SNCL_VARIANTS[table].items()))
    for stream, lines in lines_by_stream(table, rows).items():
        parts += [f"## {stream}", markdown_table(HEADINGS, lines)]
    if note := footnote_of(rows):
        parts.append(note)
    parts += ["## Made by", "\n".join(makers(rows)) or "Nothing yet."]
    if failed:
        parts += ["## Failed", "\n".join(f"- `{name}`" for name in failed)]
    if missing := [row for row in rows if row.missing()]:
        open_rows = "\n".join(
            f"- {row.cell.stream}, {row.cell.title}"
            + (f", memory {row.cell.memory}" if row.cell.memory else "")
            + f": {len(row.missing())} of {row.wanted()} seeds"
            for row in missing
        )
        parts += ["## Open", open_rows, console_block(open_commands(table, missing, command))]
    return "\n\n".join(parts) + "\n"


def changes(settings: Mapping[str, Value]) -> str:
    """What a variant changes."""
    return f"`{' '.join(f'{key}={value}' for key, value in settings.items())}`" if settings else "nothing changed"


def makers(rows: Sequence[TableRow]) -> list[str]:
    """Which devices and versions the runs were made with, and how many with each."""
    counts: Counter[str] = Counter()
    for record in (record for row in rows for record in row.records.values()):
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        counts[f"{record['device']} ({record['precision']}, {record['engine']}): {versions}"] += 1
    return [f"- {count} run{'s' if count > 1 else ''} on {maker}" for maker, count in sorted(counts.items())]


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(headings)
    return "\n".join("| " + " | ".join(line) + " |" for line in (headings, rule, *lines))


def console_block(commands: Iterable[str]) -> str:
    return "\n".join(["```console", *commands, "```"])
