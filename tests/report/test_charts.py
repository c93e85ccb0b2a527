"""The chart library inside reports: it is the file that was built, and it can lie in a page."""

import hashlib
import json
import re
from pathlib import Path

import sncl.report
from sncl.report.page import resource

CHARTS = Path(sncl.report.__file__).parent / "charts"


def test_the_file_is_the_one_that_was_built() -> None:
    (said,) = re.findall(r"SHA-256 `([0-9a-f]{64})`", (CHARTS / "README.md").read_text())
    assert hashlib.sha256((CHARTS / "plotly.min.js").read_bytes()).hexdigest() == said


def test_nothing_in_it_ends_the_script_it_lies_in() -> None:
    text = resource("charts/plotly.min.js")
    assert not re.search(r"</script|<!--", text, re.IGNORECASE)


def test_it_names_its_version_and_the_licence_of_every_part() -> None:
    banner = resource("charts/plotly.min.js").partition("*/")[0]
    version = json.loads((CHARTS / "package.json").read_text())["dependencies"]["plotly.js"]
    assert f"plotly.js {version} (MIT)" in banner
    parts = re.findall(r"(\S+ [\d.]+) \(", banner)
    licences = (CHARTS / "LICENSES.txt").read_text()
    assert len(parts) > 15 and all(f"{part}\n" in licences for part in parts)
