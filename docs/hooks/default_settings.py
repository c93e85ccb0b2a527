"""The page of methods and streams, from the tables that the program itself goes by."""

from __future__ import annotations

from written import code, table

from sncl.methods.table import METHODS, make
from sncl.runs.settings import NEUTRAL, TRAINING
from sncl.runs.settings import defaults_table as shipped
from sncl.streams.benchmarks import SCENARIOS, STREAMS
from sncl.streams.user.spec import FORMS

READ_OUTS = {"class-il": "Class-IL and Task-IL", "domain-il": "Domain-IL", "general": "GCL"}
NETWORKS = {"mlp": "MLP", "resnet18": "ResNet-18"}
INTRODUCTION = """\
# Default settings

This page is generated from the code: the tables behind `sncl list`, and the settings of `sncl/defaults.toml`.
[Methods and streams](../docs/methods.md) explains them, [faithfulness](../docs/faithfulness.md) says what a number on
these streams means, and [results](../results/README.md) has the numbers.
"""
METHODS_TEXT = """
## Methods

*Memory*: keeps samples. *Boundaries*: must be told where a task ends, so it refuses streams without tasks. *Looks
back*: reads the samples of a task once more when it ends. *Task*: must be told the task at test time, so it is scored
as Task-IL only. *New classes*: outputs can be added at any time.
"""
STREAMS_TEXT = """
## Streams

`sncl train --stream NAME`. The digits come with scikit-learn; `sncl data fetch` gets the other data sets. The numbers
of tasks, classes and epochs can be changed (`--tasks`, `--split`, `--epochs`).
"""
SETTINGS_TEXT = """
## Settings that ship

Without `--set`, a run takes these; a memory between two listed ones takes the nearest, and JOINT takes the row of SGD.
What is not listed has the usual value of the method. How they were chosen: [settings](../results/settings.md).
"""


def mark(said: bool) -> str:
    return "yes" if said else ""


def methods() -> str:
    rows = []
    for name, entry in METHODS.items():
        method = make(name)
        said = (entry.memory, method.needs_boundaries, method.revisits, method.needs_task_at_test, method.grows)
        rows.append([f"`{name}`", f"{entry.title} ({entry.reference})", *map(mark, said)])
    return table(["name", "method", "memory", "boundaries", "looks back", "task", "new classes"], rows)


def usual() -> str:
    rows = [
        [f"`{name}`", code(f"{key}={value}" for key, value in entry.settings.items())]
        for name, entry in METHODS.items()
        if entry.settings
    ]
    rows += [
        [f"`{name}` with `{key}={value}`", code(f"{each}={usual}" for each, usual in settings.items())]
        for name, entry in METHODS.items()
        for key, values in entry.choices.items()
        for value, settings in values.items()
        if settings
    ]
    return "\n### Settings of the methods\n\nWith their usual values; `--set` changes them.\n\n" + table(
        ["name", "settings"], rows
    )


def training() -> str:
    rows = [[code([f"{key}={value}"]), "" if key in TRAINING else "off"] for key, value in (TRAINING | NEUTRAL).items()]
    rows.append([code(["augment=crop-flip"]), "of images; of user data none"])
    said = "\n### Settings of training\n\nOf every method; [what they mean](../docs/command_line.md#settings).\n\n"
    return said + table(["usual value", ""], rows)


def streams() -> str:
    rows = []
    for name, each in STREAMS.items():
        tasks = "none" if each.once else str(each.tasks)
        numbers = [tasks, str(each.classes_per_task), str(each.epochs), str(each.batch_size)]
        rows.append([f"`{name}`", each.description, *numbers, NETWORKS[each.network], READ_OUTS[SCENARIOS[each.kind]]])
    return table(["name", "", "tasks", "classes a task", "epochs", "batch", "network", "scored as"], rows)


def own() -> str:
    return "\n### User data\n\n" + table(
        ["stream", "what lies there"], [[f"`{name}`", what] for name, what in FORMS.items()]
    )


def settings() -> str:
    parts = []
    for stream, by_method in shipped().items():
        rows = [
            [f"`{method}`", memory, code(f"{key}={value}" for key, value in row.items())]
            for method, by_memory in by_method.items()
            for memory, row in by_memory.items()
        ]
        title = f"`{stream}`" if stream in STREAMS else "User data"
        parts.append(f"### {title}\n\n" + table(["method", "memory", "settings"], rows))
    return "\n\n".join(parts)


def page() -> str:
    more = "\n[How they are read, cut and standardised](../docs/user_data.md).\n"
    parts = [
        INTRODUCTION,
        METHODS_TEXT,
        methods(),
        usual(),
        training(),
        STREAMS_TEXT,
        streams(),
        own(),
        more,
        SETTINGS_TEXT,
        settings(),
    ]
    return "\n".join(parts) + "\n"
