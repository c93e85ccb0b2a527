"""The pages of the reference: which modules and names stand on each. What they say is in the docstrings."""

from __future__ import annotations

import json
from importlib.util import find_spec

import sncl

PARTS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {  # page -> introduction, module -> names (none: all)
    "methods": (
        "A method is one function of the network, the batch and what is replayed. "
        "[Adding a method](../docs/adding_a_method.md) writes one; [this table](../docs/methods.md) lists all of them.",
        {
            "sncl.methods.method": ("Method", "Outcome", "TaskEnd", "Growth"),
            "sncl.methods.table": ("make", "entry", "Entry"),
            "sncl.methods.sncl": ("SNCL",),
            "sncl.methods.der": ("DER",),
            "sncl.methods.er": ("ER",),
            "sncl.methods.er_ace": ("ERACE",),
            "sncl.methods.mer": ("MER",),
            "sncl.methods.gem": ("GEM",),
            "sncl.methods.agem": ("AGEM", "AGEMR"),
            "sncl.methods.gss": ("GSS",),
            "sncl.methods.hal": ("HAL",),
            "sncl.methods.icarl": ("ICaRL",),
            "sncl.methods.ewc": ("OEWC",),
            "sncl.methods.si": ("SI",),
            "sncl.methods.lwf": ("LwF",),
            "sncl.methods.pnn": ("PNN",),
            "sncl.methods.sgd": ("SGD",),
        },
    ),
    "networks": (
        "Networks, the gates on their neurons, and how layers are found and read. "
        "[Where gates stand](../docs/architecture.md#where-gates-stand) has the idea.",
        {
            "sncl.networks.gating.attach": (
                "attach_gates",
                "gates",
                "variance_gates",
                "open_neurons",
                "sampling",
                "unmasked",
            ),
            "sncl.networks.gating.gate": ("Gate", "ReserveGate", "VarianceGate"),
            "sncl.networks.gating.policies": ("Gating", "Grow", "KL"),
            "sncl.networks.pruning.prune": (),
            "sncl.networks.pruning.scales": ("ChannelScale",),
            "sncl.networks.layers": ("find_sites", "named_sites", "Site"),
            "sncl.networks.taps": ("Tapped", "Activations"),
            "sncl.networks.mlp": ("MLP", "dense"),
            "sncl.networks.resnet": ("ResNet18",),
        },
    ),
    "memory": (
        "What is kept of the past, and who enters.",
        {
            "sncl.memory.memory": ("Memory",),
            "sncl.memory.admission": (
                "Admission",
                "Count",
                "Reservoir",
                "LossAwareReservoir",
                "PerTask",
                "AtBoundaries",
            ),
            "sncl.memory.diverse": ("GradientDiverse",),
        },
    ),
    "streams": (
        "What is learned, in which order, and what a network gets to see of it. `sncl.stream` makes one from a name "
        "([those there are](../docs/methods.md#streams)) or from [your own data](../docs/user_data.md).",
        {
            "sncl.streams.build": ("build",),
            "sncl.streams.stream": ("Stream", "Phase"),
            "sncl.streams.transforms": ("Transform", "Identity", "Unit", "CropFlip"),
            "sncl.streams.standardisation": ("RunningScale",),
        },
    ),
    "training": (
        "The learner, live streams and the measures.",
        {
            "sncl.training.learner": ("Learner",),
            "sncl.training.snapshot": ("Snapshot",),
            "sncl.training.items": ("Item", "Late"),
            "sncl.training.follow": (),
            "sncl.evaluation.metrics": (),
        },
    ),
}


def entry(name: str, **options: object) -> str:
    """What mkdocstrings makes a part of a page from. Options are written as JSON, which is YAML."""
    return f"::: {name}\n    options: {json.dumps(options)}\n"


def front() -> str:
    """Everything in ``sncl.__all__``, where it is defined."""
    where = {name: ".".join(sncl._PUBLIC[name]) for name in sncl.__all__}
    names = {name: getattr(getattr(sncl, name), "__name__", name) for name in sncl.__all__}
    told = [f"`sncl.{name}` is `{where[name]}`." for name in names if names[name] != name]
    parts = [entry(each, inherited_members=True, show_bases=False) for each in where.values()]
    text = "What `from sncl import ...` finds. Names are loaded at first use, so `import sncl` is quick. "
    return "\n".join(["# sncl\n", text + " ".join(told) + "\n", *parts])


def pages() -> dict[str, str]:
    """Each page of the reference by its path. Modules that are not there are left out."""
    found = {"reference/sncl.md": front()}
    for name, (introduction, modules) in PARTS.items():
        lines = [f"# sncl.{name}\n", introduction + "\n"]
        for module, members in modules.items():
            if find_spec(module) is not None:
                chosen = {"members": list(members)} if members else {}
                lines.append(entry(module, show_root_full_path=True, **chosen))
        found[f"reference/{name}.md"] = "\n".join(lines)
    return found
