"""Every method by its name: what it takes, what it needs and where it comes from. One line adds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sncl.errors import SnclError, nearest, no_such, suggestion

if TYPE_CHECKING:
    from sncl.methods.method import Method

Value = float | int | str
Settings = dict[str, Value]
MEANT = {  # methods by what they are called elsewhere, in letters
    "ewc": "oewc",
    "onlineewc": "oewc",
    "ewconline": "oewc",
    "synapticintelligence": "si",
    "learningwithoutforgetting": "lwf",
    "darkexperiencereplay": "der derpp",
    "derplusplus": "derpp",
    "experiencereplay": "er",
    "replay": "er",
    "rehearsal": "er",
    "naive": "sgd",
    "finetune": "sgd",
    "finetuning": "sgd",
    "multitask": "joint",
    "offline": "joint",
    "iid": "joint",
    "progressivenetworks": "pnn",
}
MEANT_SETTINGS = {
    "learningrate": "lr",
    "stepsize": "lr",
    "bs": "batch_size",
    "batch": "batch_size",
    "minibatch": "replay",
    "replaybatch": "replay",
    "replaysize": "replay",
    "hidden": "width",
    "clipping": "clip",
    "gradclip": "clip",
    "average": "ema",
    "wd": "weight_decay",
    "l2": "weight_decay",
    "augmentation": "augment",
    "asymmetric": "ace",
    "asymmetriccrossentropy": "ace",
    "schedule": "lr_drop",
    "lrdecay": "lr_drop",
}
USE_GROW = "`gates=grow` is there instead, with `sparsity`, the fraction of neurons that stays closed"
USE_ANALYSIS = "`sncl analyze sparsity RUN` closes further neurons of a finished run"


@dataclass(frozen=True)
class Entry:
    """``make`` builds the method from its settings, whose names and usual values are ``settings``.

    ``choices`` are settings whose value brings further ones along, by value: those of the gates' policy. ``gone`` are
    choices and settings that earlier versions had, with what there is instead.
    """

    title: str
    make: Callable[..., Method]
    reference: str
    settings: Settings = field(default_factory=dict)
    memory: bool = True
    joint: bool = False  # trained on the whole stream at once
    boundaries: bool = False  # must be told where tasks end, as the method says itself
    task_at_test: bool = False  # predicts only when told the task, likewise
    choices: dict[str, dict[str, Settings]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    plain: str = ""  # the method this one is, with other settings

    def settings_with(self, given: Mapping[str, Value]) -> Settings:
        """All settings there are beside ``given`` choices, with their usual values."""
        if gone := self.gone_in(given):
            raise SnclError(gone)
        found = dict(self.settings)
        for key, values in self.choices.items():
            value = str(given.get(key, self.settings[key]))
            if value not in values:
                raise SnclError(f"`{key}` is one of {', '.join(values)}, not {value!r}")
            found |= {key: value} | values[value]
        return found

    def gone_in(self, given: Mapping[str, Value]) -> str:
        """What only earlier versions had among ``given`` settings, in words; nothing where there is none, or it was
        off."""
        named = [f"{key}={given.get(key)}" for key in self.choices] + [key for key, value in given.items() if value]
        return next((f"`{name}` is gone; {self.gone[name]}" for name in named if name in self.gone), "")

    def all_names(self) -> set[str]:
        """The names of all settings, of whatever choice."""
        return {
            *self.settings,
            *(name for values in self.choices.values() for each in values.values() for name in each),
        }

    def choice_of(self, key: str) -> str:
        """Which choices a setting belongs to, in words; nothing where it belongs to none."""
        owners = [
            f"{choice}={value}" for choice, values in self.choices.items() for value in values if key in values[value]
        ]
        return " or ".join(owners)


def later(module: str, name: str) -> Callable[..., Method]:
    """What makes a method, from a module beside this one that is loaded when the first is made: the table of methods is
    also read where none is, and torch takes long to load."""

    def make_one(**settings: Any) -> Method:
        made: Method = getattr(import_module(f"sncl.methods.{module}"), name)(**settings)
        return made

    return make_one


METHODS: dict[str, Entry] = {
    "sgd": Entry("SGD", later("sgd", "SGD"), "plain training, the lower bound", memory=False),
    "joint": Entry("JOINT", later("sgd", "SGD"), "all tasks at once, the upper bound", memory=False, joint=True),
    "oewc": Entry(
        "oEWC",
        later("ewc", "OEWC"),
        "Schwarz et al., ICML 2018",
        {"strength": 1.0, "decay": 1.0},
        memory=False,
        boundaries=True,
    ),
    "si": Entry(
        "SI",
        later("si", "SI"),
        "Zenke et al., ICML 2017",
        {"strength": 1.0, "damping": 1.0},
        memory=False,
        boundaries=True,
    ),
    "lwf": Entry(
        "LwF",
        later("lwf", "LwF"),
        "Li and Hoiem, ECCV 2016",
        {"alpha": 1.0, "temperature": 2.0, "decay": 0.0},
        memory=False,
        boundaries=True,
    ),
    "pnn": Entry("PNN", later("pnn", "PNN"), "Rusu et al., 2016", memory=False, boundaries=True, task_at_test=True),
    "er": Entry("ER", later("er", "ER"), "Riemer et al., ICLR 2019", {"ace": 0}),
    "mer": Entry("MER", later("mer", "MER"), "Riemer et al., ICLR 2019", {"beta": 1.0, "gamma": 1.0, "inner": 1}),
    "gem": Entry(
        "GEM", later("gem", "GEM"), "Lopez-Paz and Ranzato, NeurIPS 2017", {"margin": 0.5, "parts": 5}, boundaries=True
    ),
    "agem": Entry("A-GEM", later("agem", "AGEM"), "Chaudhry et al., ICLR 2019", {"parts": 5}, boundaries=True),
    "agem-r": Entry("A-GEM-R", later("agem", "AGEMR"), "Buzzega et al., NeurIPS 2020"),
    "icarl": Entry(
        "iCaRL",
        later("icarl", "ICaRL"),
        "Rebuffi et al., CVPR 2017",
        {"decay": 1e-5, "exemplars_per_batch": 1},
        boundaries=True,
    ),
    "hal": Entry(
        "HAL",
        later("hal", "HAL"),
        "Chaudhry et al., AAAI 2021",
        {"strength": 0.1, "decay": 0.5, "feature_weight": 0.1, "anchor_steps": 100, "finetune_rows": 128},
        boundaries=True,
    ),
    "gss": Entry("GSS", later("gss", "GSS"), "Aljundi et al., NeurIPS 2019", {"compared": 10}),
    "der": Entry("DER", later("der", "DER"), "Buzzega et al., NeurIPS 2020", {"logits": 0.5, "ace": 0}),
    "derpp": Entry(
        "DER++", later("der", "DER"), "Buzzega et al., NeurIPS 2020", {"logits": 0.5, "labels": 0.5, "ace": 0}
    ),
    "er-ace": Entry("ER-ACE", later("er_ace", "ERACE"), "Caccia et al., ICLR 2022"),
    "sncl": Entry(
        "SNCL",
        later("sncl_parts", "make_sncl"),
        "Gong et al., CVPR 2022",
        {
            **{"alpha": 0.5, "beta": 0.5, "gamma": 0.5, "gates": "grow", "admission": "loss-aware", "features": "auto"},
            "ace": 0,
        },
        choices={
            "gates": {
                "off": {},
                "grow": {"sparsity": 0.3, "start": 1.0, "fill": 1.0, "settle": 0.0, "neurons": 0, "layers": "auto"},
                "kl": {"eta": 1e-4, "anneal": 0.0, "layers": "auto"},
            }
        },
        gone={
            "gates=natural": USE_GROW,
            "gates=target": USE_GROW,
            "threshold": USE_ANALYSIS,
            "compensate": USE_ANALYSIS,
        },
    ),
}


def with_additions(name: str, title: str) -> Entry:
    """A method as we would train it: the same, with settings of its own for training, and with asymmetric cross-entropy
    where that is a setting. A row of its own in every table."""
    plain = METHODS[name]
    settings = plain.settings | ({"ace": 1} if "ace" in plain.settings else {})
    return replace(plain, title=title, reference=f"{plain.title}, additions ours", settings=settings, plain=name)


METHODS |= {
    "derpp+": with_additions("derpp", "DER++ +"),
    "er-ace+": with_additions("er-ace", "ER-ACE+"),
    "sncl+": with_additions("sncl", "SNCL+"),
}


def method_name(name: str) -> str:
    """The name as it stands in the table, however it is capitalised, or that of an own method; an error that suggests
    one where there is none."""
    found = name if name in METHODS else name.lower()
    if found in METHODS:
        return found
    from sncl.methods import own

    if not own.is_known(name):
        known = [*METHODS, *own.plugin_names()]
        meant = [each for each in known if "+" in name or each not in METHODS or not METHODS[each].plain]
        raise no_such("method", name, known, nearest(name, meant, MEANT))
    return name


def entry(name: str) -> Entry:
    """The method of that name, ours or your own, or an error that suggests one."""
    name = method_name(name)
    if name in METHODS:
        return METHODS[name]
    from sncl.methods import own

    return own.find(name)


def method_title(name: str) -> str:
    """What a method is called in tables; its name where it is not known here."""
    if name in METHODS:
        return METHODS[name].title
    from sncl.methods import own

    return own.title(name)


def make(name: str, settings: Mapping[str, Value] | None = None) -> Method:
    """A method from its name and the settings that differ from the usual ones."""
    found, given = entry(name), settings or {}
    known = found.settings_with(given)
    for key in given:
        if key not in known:
            owner = found.choice_of(key)
            allowed = f"it belongs to {owner}" if owner else f"it takes {', '.join(known) or 'no settings'}"
            near = "" if owner else suggestion(nearest(key, known, MEANT_SETTINGS))
            raise SnclError(f"{name} has no setting {key!r}; {near}{allowed}")
    return found.make(**{**known, **given})
