"""Rules about the source itself: light imports, layers, nothing that runs foreign code, nothing tied to one machine."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "sncl").rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- importing ---------------------------------------------------------------------------------------------------

HEAVY = {"sklearn", "scipy", "matplotlib", "PIL", "typer", "click", "rich", "urllib.request", "http.client", "requests"}

# torch itself loads some of these (torch.hub: urllib.request), so what counts is what sncl adds.
PROBE = """
import json, os, random, sys
import numpy, torch

def settings():
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "grad": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark],
        "precision": torch.get_float32_matmul_precision(),
        "random": [torch.initial_seed(), hash(random.getstate()), str(numpy.random.get_state())],
        "torch random": torch.get_rng_state().tolist(),
        "environment": dict(os.environ),
    }

torch.manual_seed(0)
modules, before = set(sys.modules), settings()
import sncl
added, after = set(sys.modules) - modules, settings()
net = torch.nn.Linear(4, 2)
learner = sncl.Learner(net, "er", memory=8, device="cpu")
for step in range(6):  # the last ones are replays of a recording
    learner.learn(torch.rand(4, 4), torch.randint(0, 2, (4,)))
loaded = set(sys.modules) - modules
print(json.dumps({"added": sorted(added), "loaded": sorted(loaded), "before": before, "after": after}))
"""


@pytest.fixture(scope="module")
def fresh_import() -> dict:
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_is_light(fresh_import):
    heavy = {name for name in fresh_import["added"] if name in HEAVY or name.partition(".")[0] in HEAVY}
    assert not heavy


def test_learning_loads_no_other_large_package(fresh_import):
    """Torch's compiler is one: importing it takes as long as importing torch."""
    large = {*HEAVY, "scipy", "sklearn", "pandas", "matplotlib", "PIL", "typer", "pydantic", "torch._dynamo"} - {
        "torch"
    }
    assert not {name for name in fresh_import["loaded"] if name in large or name.partition(".")[0] in large}


def test_import_changes_no_global_setting(fresh_import):
    assert fresh_import["after"] == fresh_import["before"]


# --- layers ------------------------------------------------------------------------------------------------------


def test_dependencies_point_down():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- layout ------------------------------------------------------------------------------------------------------

LONGEST_FILE = 300  # lines
LONGEST_METHOD = 90  # lines of SNCL beside its equation
HELPERS = "helpers"  # what tests share
ATTACKS = "reliability"  # on whole programs and their files


def folders(root: Path) -> set[str]:
    """The folders below ``root`` that hold Python files, by their path from there."""
    return {path.parent.relative_to(root).as_posix() for path in root.rglob("*.py")}


def test_nothing_is_loose_in_the_package():
    loose = {path.name for path in (ROOT / "sncl").iterdir() if path.is_file() and path.suffix != ".toml"}
    assert loose == {"__init__.py", "__main__.py", "errors.py", "py.typed"}


def test_tests_mirror_the_package():
    assert folders(ROOT / "tests") - folders(ROOT / "sncl") == {HELPERS, ATTACKS}


def test_files_are_of_a_readable_length():
    assert not {named(path) for path in SOURCES if len(path.read_text("utf-8").splitlines()) > LONGEST_FILE}


def test_the_papers_method_fits_on_two_screens():
    lines = (ROOT / "sncl/methods/sncl.py").read_text("utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= LONGEST_METHOD


def test_every_class_has_a_name_of_its_own():
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(named(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


# --- words -------------------------------------------------------------------------------------------------------

OPTION = re.compile(r"--[a-z]")


def says_options(text: str) -> Iterator[int]:
    """The lines of strings that name an option of the command line; what docstrings say does not count."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from [node.lineno] if OPTION.search(node.value) else []


def test_the_library_speaks_of_arguments_not_of_options():
    library = [path for path in SOURCES if "cli" not in path.relative_to(ROOT).parts]
    assert [f"{named(path)}:{line}" for path in library for line in says_options(path.read_text("utf-8"))] == []


OURS = re.compile(r"pip install\s+['\"]?sncl\b")


def test_what_is_missing_is_installed_by_its_own_name():
    """Another project has the name sncl on PyPI, so an extra of ours cannot be installed from there."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert [named(path) for path in (*SOURCES, *pages) if OURS.search(path.read_text("utf-8"))] == []


def test_every_package_that_is_asked_for_belongs_to_an_extra():
    asked = {
        name
        for path in SOURCES
        for call in re.findall(r"lacking\(([^()]*(?:\([^()]*\))?[^()]*)\)", path.read_text("utf-8"))
        for name in re.findall(r', "([\w-]+)"', call)
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert asked >= {"pyarrow", "tensorboard", "matplotlib", "optuna"}
    assert asked <= {package for packages in extras.values() for package in packages}


def test_options_are_noticed_in_strings_only():
    assert list(says_options('"""Say --out."""\nx = f"{y}: use --out"\n')) == [2]
    assert not list(says_options("def f():\n    '''As --out does.'''\n    return 'a -- b'  # --out\n"))


# --- foreign code ------------------------------------------------------------------------------------------------

FOREIGN = {"eval", "exec", "os.system", "os.popen", "torch.load", "torch.serialization.load", "torch.hub.load"}
PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def runs_foreign_code(text: str, name: str = "") -> Iterator[str]:
    """Every use, under any alias, of something that can run code found in data."""
    tree = ast.parse(text)
    origin = {"eval": "eval", "exec": "exec"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                top = a.name.partition(".")[0]
                origin[a.asname or top] = a.name if a.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            origin |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}

    def full_name(node: ast.AST) -> str:
        if isinstance(node, ast.Attribute) and (base := full_name(node.value)):
            return f"{base}.{node.attr}"
        return origin.get(node.id, "") if isinstance(node, ast.Name) else ""

    def forbidden(used: str) -> bool:
        return used in FOREIGN or used.partition(".")[0] in PICKLES

    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute | ast.Name) and forbidden(used := full_name(node)):
            yield f"{name}:{line} {used}"
        if isinstance(node, ast.Import):
            yield from (f"{name}:{line} import {a.name}" for a in node.names if forbidden(a.name))
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{name}:{line} from {node.module}" for a in node.names if forbidden(f"{node.module}.{a.name}"))
        if isinstance(node, ast.keyword) and node.arg in {"shell", "allow_pickle"}:
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            yield from () if off else (f"{name}:{node.value.lineno} {node.arg}",)


def test_nothing_runs_foreign_code():
    assert [use for path in SOURCES for use in runs_foreign_code(path.read_text("utf-8"), named(path))] == []


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "import torch\ntorch.load(path)",
        "import torch as t\nload = t.load",
        "from torch import load as read",
        "import pickle",
        "from pickle import loads",
        "import pickle\nclass Safe(pickle.Unpickler):\n    def find_class(self, module, name): ...",
        "import subprocess\nsubprocess.run(command, shell=True)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
    ],
)
def test_foreign_code_is_noticed(text):
    assert list(runs_foreign_code(text))


def test_ordinary_names_are_not_noticed():
    assert not list(runs_foreign_code("net.eval()\nmemory.load(path)\nrun(command, shell=False)"))


# --- one machine -------------------------------------------------------------------------------------------------

# Written so that this file does not match itself.
MACHINE = re.compile(
    r"(?<![\w./-])/(?:wor[k]|roo[t]|op[t])\b|\.\./share[d]"
    r"|pypi\.or[g]|pythonhosted\.or[g]|download\.pytorch\.or[g]|(?:index-ur[l]|find-link[s])"
)
# How to get the right build of torch, and to install without a network: one page says it to users.
INSTALLING = re.compile(r"--(?:index-ur[l] https://download\.pytorch\.or[g]/whl/\w+|find-link[s] wheels)")


def project_files() -> list[Path]:
    """What git tracks or would track; the environment never counts, even when someone staged it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [Path(name) for name in done.stdout.split("\0") if name]
    return [ROOT / path for path in paths if path.parts[0] != ".venv" and (ROOT / path).is_file()]


def test_nothing_names_a_machine_or_a_registry():
    found = []
    for path in project_files():
        if named(path) == ".ci/run":
            continue
        text = path.read_bytes().decode("utf-8", errors="replace")
        lines = (INSTALLING.sub("", text) if named(path) == "docs/install.md" else text).splitlines()
        found += [f"{named(path)}:{number}" for number, line in enumerate(lines, 1) if MACHINE.search(line)]
    assert found == []


# --- what is installed -------------------------------------------------------------------------------------------

TOOLS = {"README.md", "build.mjs", "package.json", "package-lock.json"}  # to make a file that is packaged


def test_files_beside_the_code_are_installed_with_it():
    """A wheel has the Python files, and of the others those that the project names."""
    named_by_package = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packaged = {
        path
        for package, patterns in named_by_package.items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    there = {path for path in project_files() if path.is_relative_to(ROOT / "sncl") and path.suffix != ".py"}
    assert {named(path) for path in there - packaged if path.name not in TOOLS} == set()


# --- docstrings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))
