"""Methods that are none of ours: plug-ins, and what a program or a command gives.

A plug-in is an entry point of the group ``sncl.methods`` of an installed package, whose value is an
:class:`~sncl.methods.table.Entry` or a class of methods. What is given otherwise is called by its reference,
``package.module:Name``. References are imported where a person names them, and never because a file does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from sncl.errors import SnclError
from sncl.methods.table import METHODS, Entry, Settings, entry

if TYPE_CHECKING:
    from sncl.methods.constructor import OwnMethod
    from sncl.methods.method import Method

GROUP = "sncl.methods"  # of entry points
REFERENCE = re.compile(r"[\w.]+:(?:[\w.<>]+\.)?(\w+)")  # package.module:Name

_given: dict[str, Entry] = {}  # by reference: what this process was given


def add_method(method: OwnMethod) -> str:
    """Make a method of your own known in this process, and return the name by which it can be given from then on.

    It is a class, an object or an ``Entry``, or a text that says where to import one of these: "package.module:Name".
    :func:`sncl.run` and :class:`sncl.ContinualClassifier` do this by themselves; to load a run that such a method made,
    do it first.
    """
    return name_method(method)[0]


def name_method(method: OwnMethod) -> tuple[str, Settings]:
    """The name by which a method is known from now on, and the settings an object was made with."""
    if isinstance(method, str):
        if ":" in method and method not in _given:
            _given[method] = as_entry(imported(method), method)
        return method, {}
    from sncl.methods.constructor import constructor_settings, instance_settings
    from sncl.methods.method import Method

    if isinstance(method, Method):
        name, settings = reference(type(method)), instance_settings(method)
        usual = constructor_settings(type(method), instead=settings)
        _given[name] = described(type(method), usual, method)
        return name, settings
    name = reference(method.make if isinstance(method, Entry) else method)
    _given[name] = as_entry(method, name)
    return name, {}


def as_entry(value: Any, name: str) -> Entry:
    """What was given, as a line of the table of methods."""
    if isinstance(value, Entry):
        return value
    from sncl.methods.constructor import constructor_settings
    from sncl.methods.method import Method

    if isinstance(value, type) and issubclass(value, Method):
        usual = constructor_settings(value)
        return described(value, usual, value(**usual))
    raise SnclError(f"{name} is no method: it is a class derived from Method, or an Entry, not {type(value).__name__}")


def described(kind: type[Method], usual: Settings, example: Method) -> Entry:
    """The line of a class of methods, of which ``example`` is one."""
    words = (kind.__doc__ or "").strip().partition("\n")[0]
    return Entry(
        kind.__name__,
        kind,
        words or reference(kind),
        usual,
        memory=example.draws > 0,
        boundaries=example.needs_boundaries,
        task_at_test=example.needs_task_at_test,
    )


def reference(made_by: Callable[..., Any]) -> str:
    """Where something is defined: ``package.module:Name``."""
    return f"{made_by.__module__}:{made_by.__qualname__}"


def imported(name: str) -> Any:
    """What a reference names."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # anything may happen while a module is loaded
        raise SnclError(f"the method {name} cannot be imported: {type(error).__name__}: {error}") from error
    return found


def is_portable(name: str) -> bool:
    """Whether another process can find a method: one of a notebook, or inside a function, is there in this one only."""
    found = None if name in METHODS else _given.get(name)
    if found is None:
        return True
    module, _, path = reference(found.make).partition(":")
    return module not in ("__main__", "__mp_main__") and "<" not in path


class Carried:
    """A function for another process, which is told the methods of this one first."""

    def __init__(self, function: Callable[..., Any], methods: Mapping[str, Entry]) -> None:
        self.function = function
        self.methods = dict(methods)

    def __call__(self, *arguments: Any) -> Any:
        _given.update(self.methods)
        return self.function(*arguments)


def carrying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as another process is to call it; without own methods, as it is."""
    methods = {name: found for name, found in _given.items() if is_portable(name)}
    return Carried(function, methods) if methods else function


# --- finding -------------------------------------------------------------------------------------------------------


def is_known(name: str) -> bool:
    """Whether there is an own method of that name. Code that nobody here named is an error."""
    if name in _given or name in plugin_names():
        return True
    if ":" in name:
        raise SnclError(
            f"the method {name} is not known here: install it as a plug-in, or give it to sncl.add_method first; files "
            "are not believed where they name code"
        )
    return False


def find(name: str) -> Entry:
    """An own method by its name."""
    return _given[name] if name in _given else plugin(name)


def title(name: str) -> str:
    """What a method that is none of ours is called; by its name where it is not known here."""
    with suppress(SnclError):
        if name in _given or name in plugin_names():
            return entry(name).title
    told = REFERENCE.fullmatch(name)
    return told[1] if told else name


@cache
def plugin_points() -> dict[str, EntryPoint]:
    """The entry points by name; the first of several of one name, and none of a name that is ours."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name not in METHODS:
            found.setdefault(point.name, point)
    return found


def plugin_names() -> list[str]:
    return sorted(plugin_points())


@cache
def plugin(name: str) -> Entry:
    """The method that an installed package offers under this name."""
    point = plugin_points()[name]
    try:
        return as_entry(point.load(), point.value)
    except Exception as error:  # anything may happen while a module is loaded
        raise SnclError(
            f"the method {name!r} of the plug-in {package_of(point)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def plugins(note: Callable[[str], None]) -> dict[str, Entry]:
    """All methods that installed packages offer, by name; what is left out is noted."""
    found = {}
    for point in entry_points(group=GROUP):
        if point.name not in plugin_points() or plugin_points()[point.name] != point:
            note(f"the plug-in {package_of(point)} offers the method {point.name!r}, which is there already; left out")
            continue
        try:
            found[point.name] = plugin(point.name)
        except SnclError as error:
            note(f"{error}; left out")
    return dict(sorted(found.items()))


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
