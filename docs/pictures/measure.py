"""Make the runs behind the curves of docs/concepts.md and keep what is drawn of them in numbers.json.

By hand, a minute on two cores: ``python docs/pictures/measure.py && python docs/pictures/draw.py``
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NUMBERS = Path(__file__).with_name("numbers.json")
FORGETTING = {
    "sgd": "sncl train --stream seq-digits --method sgd --seeds 5",
    "er": "sncl train --stream seq-digits --method er --memory 100 --seeds 5",
    "sncl": "sncl train --stream seq-digits --method sncl --memory 100 --seeds 5",
}
GATES = "sncl train --stream perm-digits --method sncl --memory 100 --set sparsity=0.3 --set start=0.3 --set fill=40"


def run(command: str, folder: Path) -> list[dict[str, Any]]:
    """The results of a command, one for each seed, with the events of the log at the end of each task."""
    words = shlex.split(command)[1:]
    subprocess.run([sys.executable, "-m", "sncl.cli", *words, "--out", str(folder)], check=True)
    found = []
    for file in sorted(folder.rglob("result.json")):
        events = [json.loads(line) for line in (file.parent / "log.jsonl").read_text().splitlines()]
        ended = [event for event in events if event["event"] == "evaluation"]
        found.append(json.loads(file.read_text()) | {"ended": ended})
    return found


def rounded(rows: list[list[float | None]]) -> list[list[float | None]]:
    return [[None if value is None else round(value, 2) for value in row] for row in rows]


def main() -> None:
    with TemporaryDirectory() as folder:
        runs = {name: run(command, Path(folder) / name) for name, command in FORGETTING.items()}
        (gates,) = run(GATES, Path(folder) / "gates")
    numbers = {
        "forgetting": {
            name: {
                "command": FORGETTING[name],
                "matrices": [rounded(each["accuracy_matrix"]) for each in seeds],  # by seed, task learned, task tested
                "task_il": [round(each["accuracy"]["task_il"], 2) for each in seeds],
            }
            for name, seeds in runs.items()
        },
        "memory": {"command": FORGETTING["er"], "by_task": [each["memory_by_task"] for each in runs["er"][0]["ended"]]},
        "gates": {"command": GATES, "open": [each["open_neurons"] for each in gates["ended"]]},
    }
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
