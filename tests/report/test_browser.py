"""A report in a real browser: it draws, answers, follows the reader's theme and window, and asks for nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import NEEDS_BROWSER, started_browser

from sncl.report import write_report

pytest.importorskip("selenium.webdriver")
pytestmark = [pytest.mark.slow, NEEDS_BROWSER]
HOSTILE = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"><a href="javascript:1">'
ACCURACY = "document.querySelector('#figure-accuracy .plot')"


class Browser:
    """One tab; what it said and asked for since the last look."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        self.driver.get(path.as_uri())
        self.wait("return document.querySelectorAll('#figure-accuracy .main-svg').length > 0")

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def wait(self, script: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))

    def choose(self, figure: str, number: int, text: str) -> None:
        self.ask(
            f"const select = document.querySelectorAll('#figure-{figure} select')[{number}];"
            f"select.value = {json.dumps(text)}; select.dispatchEvent(new Event('change'))"
        )

    def emulate(self, command: str, **values: Any) -> None:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", values)

    def requests(self) -> list[str]:
        messages = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "blob:", "chrome"))]

    def errors(self) -> list[str]:
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report([runs], path, print)
    return path


@pytest.fixture
def browser(driver: Any) -> Browser:
    browser = Browser(driver)
    browser.requests(), browser.errors()
    browser.emulate("setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.emulate("setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    return browser


def test_every_chart_is_drawn_and_nothing_is_asked_for(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.ask("for (const each of document.querySelectorAll('.plot')) each.scrollIntoView()")
    browser.emulate("setDeviceMetricsOverride", width=1200, height=12000, deviceScaleFactor=1, mobile=False)
    browser.wait("return [...document.querySelectorAll('.plot')].every((each) => each.querySelector('.main-svg'))")
    assert browser.ask("return document.querySelectorAll('.plot').length") == 12
    kinds = browser.ask(
        "return [...document.querySelectorAll('.plot')].flatMap((each) =>"
        "  each._fullData.map((drawn) => [drawn._input.type, drawn.type]))"
    )  # what plotly does not have becomes a scatter plot, without a word
    assert all(asked == drawn for asked, drawn in kinds)
    assert {asked for asked, _ in kinds} == {"scatter", "bar", "heatmap", "histogram"}
    assert browser.requests() == [report.as_uri()]
    assert browser.errors() == []


def test_choices_change_what_is_drawn_in_all_figures(browser: Browser, report: Path) -> None:
    browser.open(report)
    before = browser.ask(f"return {ACCURACY}.data.at(-1).y")
    browser.choose("accuracy", 3, "task 3")
    assert browser.ask(f"return {ACCURACY}.data.at(-1).y") != before
    browser.choose("accuracy", 0, "digits-360")
    assert browser.ask(f"return {ACCURACY}.data[0].type") == "bar"
    assert browser.ask("return document.querySelector('#figure-matrix select').value") == "digits-360"
    assert browser.errors() == []


def test_pointing_at_a_figure_tells_its_numbers(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.ask(
        f"document.documentElement.style.scrollBehavior = 'auto'; {ACCURACY}.scrollIntoView({{block: 'center'}})"
    )
    x, y = browser.ask(
        f"const box = {ACCURACY}.querySelector('.nsewdrag').getBoundingClientRect();"
        "return [box.x + box.width * 0.4, box.y + box.height * 0.5]"
    )
    for step in range(2):
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x + step, "y": y})
    browser.wait(f"return /ER: [0-9.]+ ± [0-9.]+/.test({ACCURACY}.querySelector('.hoverlayer').textContent)")


def test_a_figure_is_saved_as_picture_and_numbers(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.ask(
        "window.saved = {}; const click = HTMLAnchorElement.prototype.click;"
        "HTMLAnchorElement.prototype.click = function () {"
        "  const name = this.download; fetchText(this.href).then((text) => { window.saved[name] = text; }); };"
        "async function fetchText(url) {"
        "  return url.startsWith('blob:') ? await window.blobs.get(url).text() : url; }"
        "window.blobs = new Map(); const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { const url = make(blob); window.blobs.set(url, blob); return url; };"
        "document.querySelectorAll('#figure-accuracy [data-save]').forEach((button) =>"
        "  button.dispatchEvent(new Event('click')))"
    )
    browser.wait("return Object.keys(window.saved).length === 3")
    saved = browser.ask("return window.saved")
    assert saved["sncl-accuracy.png"].startswith("data:image/png")
    assert saved["sncl-accuracy.svg"].startswith("data:image/svg+xml")
    lines = saved["sncl-accuracy.csv"].splitlines()
    assert lines[0] == 'series,tasks learned,"accuracy, %",deviation'
    assert len(lines) == 1 + 2 * 3 and lines[1].startswith("ER,1,")
    assert browser.errors() == []


def test_dark_follows_the_system_and_the_button(browser: Browser, report: Path) -> None:
    browser.emulate("setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.open(report)
    colours = f"return [getComputedStyle(document.body).backgroundColor, {ACCURACY}.layout.paper_bgcolor]"
    assert browser.ask(colours) == ["rgb(16, 21, 27)", "#181f27"]
    browser.ask("document.getElementById('theme').click()")
    assert browser.ask(colours) == ["rgb(246, 247, 249)", "#ffffff"]


def test_print_is_light_and_complete(browser: Browser, report: Path) -> None:
    browser.emulate("setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.open(report)
    browser.ask("dispatchEvent(new Event('beforeprint'))")
    assert browser.ask(
        "return [...document.querySelectorAll('.plot')].every((each) => each.querySelector('.main-svg'))"
    )
    assert browser.ask(f"return {ACCURACY}.layout.paper_bgcolor") == "#ffffff"
    browser.emulate("setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("return getComputedStyle(document.querySelector('nav')).display") == "none"


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, report: Path) -> None:
    browser.emulate("setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    browser.open(report)
    assert browser.ask("return document.documentElement.scrollWidth") <= 360
    assert browser.ask(f"return {ACCURACY}.getBoundingClientRect().right") <= 360


def test_a_hostile_name_is_shown_and_not_run(browser: Browser, copied: Callable[..., Path], tmp_path: Path) -> None:
    stream = {"stream": HOSTILE}
    names = {"method": HOSTILE} | stream
    settings = {"settings": {HOSTILE: HOSTILE}}
    folders = [
        copied("sncl-0", "hostile", experiment=names | settings, result=names | {"manifest.device": HOSTILE}),
        copied(
            "er-0", "mixed", experiment={"stream": HOSTILE}, result={"stream": HOSTILE, "manifest.protocol": HOSTILE}
        ),
    ]
    write_report(folders, tmp_path / "report.html", print)
    browser.open(tmp_path / "report.html")
    assert browser.ask("return window.hacked") is None
    assert browser.ask("return document.querySelectorAll('img[src=x], svg a, main a').length") == 0
    assert HOSTILE in browser.ask("return document.querySelector('.legend').textContent")
    assert browser.ask("return document.querySelector('.warning').textContent").startswith(HOSTILE)
    assert browser.ask("return document.documentElement.scrollWidth") <= 1200
    assert browser.requests() == [(tmp_path / "report.html").as_uri()]
    assert browser.errors() == []
