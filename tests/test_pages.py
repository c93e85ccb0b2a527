"""What the documentation shows is true: code and commands run, options exist, tables are those of the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from page import Block, blocks, commands

from sncl.cli.commands import app
from sncl.methods.table import METHODS, make
from sncl.streams.benchmarks import STREAMS

ROOT = Path(__file__).resolve().parents[1]
HELPERS = ROOT / "tests" / "helpers"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNING = {path.stem: path for path in PAGES if blocks(path)}


class Page(NamedTuple):
    """What is known of a page beyond that it runs."""

    slow: bool = False  # more than five seconds
    needs: tuple[str, ...] = ()  # packages of extras
    says: tuple[str, ...] = ()  # what it prints, as regular expressions
    leaves: tuple[str, ...] = ()  # files


KNOWN = {
    "adding_a_method": Page(says=("LouderReplay",)),
    "any_network": Page(
        slow=True, says=(r"\['picture\.2'\]", r"\['features/picture\.2'\]", r"\['hidden', 'head:input'\]")
    ),
    "install": Page(slow=True, says=(r"^sncl \d", r"^\d\S* with(out)? a GPU$", r"^seq-digits +SNCL ")),
    "estimator": Page(slow=True, leaves=("digits.safetensors",)),
    "live_streams": Page(says=("^3 8 ", "^25 60$"), leaves=("sensor.safetensors",)),
    "serving": Page(
        slow=True,
        needs=("fastapi", "uvicorn"),
        says=(r"^\[0, 1, 2\]$", r"^\[9, 9, 9, 9, 9\]$", "^sncl_rows_learned_total 123$", r"^\[0 1 2 3 4 9\]$"),
        leaves=("digits.safetensors",),
    ),
    "user_data": Page(slow=True, needs=("optuna",), leaves=("report.html", "runs/wine/seed-1/result.json")),
    "report": Page(
        slow=True,
        needs=("matplotlib",),
        leaves=("report.html", "fisher.json", "tsne.svg", "sparsity.png", "capacity.png"),
    ),
    "scaling": Page(slow=True, leaves=("runs/er/seed-1/result.json",)),
    "smaller": Page(
        slow=True, needs=("onnx", "onnxruntime"), says=("of 100 neurons are open",), leaves=("small.onnx",)
    ),
    "using_a_model": Page(
        slow=True,
        needs=("onnx", "onnxruntime"),
        says=(r"^prediction$", r'"accuracy": \d'),
        leaves=("answers.csv", "runs/flowers/model.pt2", "iris.onnx", "flowers.pt2"),
    ),
    "python": Page(
        slow=True,
        needs=("pandas", "matplotlib"),
        says=(r"^seq-digits  SNCL ", r"^5 Result\("),
        leaves=("accuracy.png", "report.html"),
    ),
    "tutorial": Page(
        slow=True,
        needs=("onnx", "onnxruntime"),
        says=(r"^seq-digits +SNCL +100 +1 +9\d", r"\['plum', 'lemon'\]", r"DER\+\+ .*\d", r"\['plum' 'apple'\]"),
        leaves=("report.html", "answers.csv", "fruit.onnx"),
    ),
    "tuning": Page(slow=True, needs=("optuna",), leaves=("runs/tune-seq-digits-er-100.toml",)),
}


def environment(code: Path = ROOT) -> dict[str, str]:
    """Of a process that finds sncl in ``code``, and whose warnings are errors."""
    paths = os.pathsep.join([str(code), str(HELPERS)])
    return os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}


def run(arguments: list[str], folder: Path, code: Path = ROOT) -> str:
    """What a process prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(code), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def run_page() -> Iterator[Callable[..., str]]:
    """Run a page in a folder, with packages: what it prints. Pages are forks of one process that has loaded torch."""
    server = subprocess.Popen(
        [sys.executable, str(HELPERS / "page.py")],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None

    def run_one(page: Path, folder: Path, *needs: str) -> str:
        printed = folder.parent / f"{folder.name}.printed"
        server.stdin.write(json.dumps([str(page), str(folder), str(printed), needs]) + "\n")
        server.stdin.flush()
        code = server.stdout.readline()
        said, errors = printed.read_text(encoding="utf-8"), Path(f"{printed}.err").read_text(encoding="utf-8")
        assert code == "0\n", f"{said[-2000:]}\n{errors[-4000:]}"
        return said

    yield run_one
    server.stdin.close()
    server.stdout.close()
    assert server.wait() == 0


def marked(name: str) -> Any:
    slow = name in KNOWN and KNOWN[name].slow
    return pytest.param(name, marks=pytest.mark.slow) if slow else name


@pytest.mark.parametrize("name", [marked(name) for name in RUNNING])
def test_a_page_runs_from_top_to_bottom(name: str, tmp_path: Path, run_page: Callable[..., str]) -> None:
    known = KNOWN.get(name, Page())
    for package in known.needs:
        pytest.importorskip(package)
    printed = run_page(RUNNING[name], tmp_path, *known.needs)
    for text in known.says:
        assert re.search(text, printed, re.MULTILINE), text
    for file in known.leaves:
        assert (tmp_path / file).is_file(), file
    if name == "smaller":
        before, after = (int(number) for number in re.findall(r"(\d+) parameters", printed))
        assert after < 0.6 * before


def test_pages_for_users_have_something_to_run() -> None:
    assert {"README", "estimator", "install", "report", "tuning", "tutorial", "user_data"} <= set(RUNNING)
    assert len(blocks(RUNNING["estimator"])) > 5
    assert sum(len(list(commands(block.text))) for block in blocks(RUNNING["user_data"], ("console",))) >= 10


def test_a_page_that_does_not_run_is_noticed(tmp_path: Path, run_page: Callable[..., str]) -> None:
    page = tmp_path / "wrong.md"
    for text in ("```python\nassert False\n```", "```console\nsncl trian\n```", "```console\nmake demo\n```"):
        page.write_text(f"# Wrong\n\n{text}\n")
        with pytest.raises(AssertionError):
            run([str(HELPERS / "page.py"), str(page)], tmp_path)
        with pytest.raises(AssertionError):
            run_page(page, tmp_path)


def test_a_warning_on_a_page_is_noticed(tmp_path: Path, run_page: Callable[..., str]) -> None:
    page = tmp_path / "warned.md"
    page.write_text('```python\nimport warnings\nwarnings.warn("old", DeprecationWarning)\n```\n')
    with pytest.raises(AssertionError, match="DeprecationWarning: old"):
        run_page(page, tmp_path)


# --- what is shown and not run ---------------------------------------------------------------------------------------

PROGRAM: Any = typer.main.get_command(app)
SHOWN = [
    (path, block)
    for path in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "results").glob("*.md"), *(ROOT / "recipes").glob("*.md")]
    for block in blocks(path, ("console", "sh", "bash"))
]


def parse(words: list[str]) -> None:
    """Read a command as the program would, without running it: an unknown command or option is refused."""
    command, arguments = PROGRAM, words[1:]
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    assert not getattr(command, "commands", {}) or not arguments or arguments[0] == "--version", words
    context = typer.Context(command, info_name=words[0])
    command.make_parser(context).parse_args(args=list(arguments))


@pytest.mark.parametrize(("path", "block"), SHOWN, ids=[f"{path.stem}-{block.line}" for path, block in SHOWN])
def test_commands_that_are_shown_exist(path: Path, block: Block) -> None:
    for words in commands(block.text):
        if words[0] == "sncl":
            parse(words)
        if words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), words


def test_a_wrong_option_is_noticed() -> None:
    with pytest.raises(Exception, match="--memry"):
        parse(["sncl", "train", "--memry", "100"])
    with pytest.raises(AssertionError):
        parse(["sncl", "trian"])


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page on methods and streams."""
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    text = re.split(r"\n#+ ", page.split(f"\n{heading}\n")[1])[0]
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_of_methods_is_that_of_the_code() -> None:
    rows = {row[0].strip("`"): row for row in rows_of("## Methods")}
    assert list(rows) == list(METHODS)
    for name, entry in METHODS.items():
        method = make(name)
        said = [cell == "yes" for cell in rows[name][2:5]]
        assert said == [entry.memory, method.needs_boundaries, method.needs_task_at_test], name
        assert names_in(" ".join(rows[name][5:])) == list(entry.settings), name


def test_the_table_of_gates_is_that_of_the_code() -> None:
    policies = METHODS["sncl"].choices["gates"]
    told = {row[0].strip("`"): names_in(row[-1]) for row in rows_of("### Gates") if len(row) == 3}
    assert {name: told[name] for name in policies} == {name: [*settings] for name, settings in policies.items()}


def test_the_table_of_streams_is_that_of_the_code() -> None:
    told: list[str] = []
    for cells in rows_of("## Streams"):
        told += (names := names_in(cells[0]))
        for each in (STREAMS[name] for name in names):
            tasks = re.match(r"none|\d+", cells[2])
            assert tasks and tasks[0] == ("none" if each.once else str(each.tasks)), names
            assert cells[3] == str(each.epochs), names
            assert cells[4].replace("-", "").lower() == each.network, names
    assert sorted(told) == sorted(STREAMS)


def test_the_table_of_extras_is_that_of_the_project() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    told = {
        name: brings.split(", ") for name, brings in re.findall(r"^\| `(\w+)` \| ([\w, -]+) \|", page, re.MULTILINE)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    assert told == {name: [re.match(r"[\w-]+", each)[0] for each in needed] for name, needed in extras.items()}
    pinned = re.search(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    (least,) = (each.partition(">=")[2] for each in project["dependencies"] if each.startswith("torch"))
    assert pinned
    assert f"| PyTorch | {least} or newer | {pinned[1]} |" in page
    assert f"| Python | {project['requires-python'].removeprefix('>=')} or newer |" in page


def layers() -> dict[str, tuple[int, str]]:
    """The folders in the table of layers of the page on architecture: level, and what is said of the files."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (\d+) \| `sncl/(\w+)(?:/|\.py)` \| (.*) \|$", page, re.MULTILINE)
    return {name: (int(level), text) for level, name, text in found}


def test_the_table_of_layers_is_the_import_contract() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    levels = {
        name.strip(): number for number, line in enumerate(reversed(contract["layers"]), 1) for name in line.split("|")
    }
    assert {name: level for name, (level, _) in layers().items()} == levels


@pytest.mark.parametrize("name", sorted(layers().keys() - {"errors"}))
def test_the_table_of_layers_names_every_module(name: str) -> None:
    """Readers of single data sets and single methods are not named one by one."""
    told = set(re.findall(r"`(\w+\.py)`", layers()[name][1]))
    files = {path.name for path in (ROOT / "sncl" / name).rglob("*.py")}
    assert told <= files
    if name != "methods":
        unnamed = {
            "__init__.py",
            "__main__.py",
            *(f"{each}.py" for each in ("cifar10", "digits", "mnist", "tiny_imagenet")),
        }
        if name == "report":
            unnamed |= {path.name for path in (ROOT / "sncl" / "report" / "figures").glob("*.py")}
        assert files - told <= unnamed


# --- adding a method -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_method_of_the_page_on_adding_one_can_be_added(tmp_path: Path) -> None:
    """Follow the page in a copy of the project, and run the commands it names."""
    page = ROOT / "docs" / "adding_a_method.md"
    file, line, test = (block.text for block in blocks(page, ("py",)))
    (defaults,) = (block.text for block in blocks(page, ("toml",)))
    for folder in ("sncl", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "sncl/methods/weighted.py").write_text(file)
    (tmp_path / "tests/methods/test_weighted.py").write_text(test)
    change(tmp_path / "sncl/methods/table.py", "METHODS: dict[str, Entry] = {\n", lambda found: found + line)
    change(tmp_path / "sncl/defaults.toml", "[seq-digits]\n", lambda found: defaults)
    shown = [words for block in blocks(page, ("sh",)) for words in commands(block.text)]
    assert len(shown) == 3
    for program, *arguments in [*shown, ["python", "-m", "pytest", "tests/methods/test_weighted.py"]]:
        if program == "sncl":
            assert (
                "weighted" in run(["-c", "from sncl.cli import main; main()", *arguments], tmp_path, tmp_path).lower()
            )
        else:
            assert re.search(r"\d passed", run([*arguments, "-p", "no:cacheprovider"], tmp_path, tmp_path))


def change(path: Path, text: str, into: Callable[[str], str]) -> None:
    found = path.read_text(encoding="utf-8")
    assert found.count(text) == 1
    path.write_text(found.replace(text, into(text)), encoding="utf-8")
