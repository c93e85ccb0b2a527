"""The page of a server in a real browser: its forms call the server, and it asks nobody else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from browsers import NEEDS_BROWSER, started_browser
from servers import DIGITS, running, small_model

from sncl.serving import make_app

pytest.importorskip("selenium.webdriver")
pytestmark = [pytest.mark.slow, NEEDS_BROWSER]
TOKEN = "a-token-of-some-length"
HOSTILE = "<img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with started_browser() as started:
        yield started


def send(driver: Any, path: str, body: Any) -> str:
    """Fill in a form and send it: what the page shows then."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.execute_script(
        "const form = document.querySelector(`form[data-path=${arguments[0]}]`);"
        "document.getElementById(arguments[0] + '-answer').textContent = '';"
        "if (arguments[1] !== null) form.elements.body.value = arguments[1];"
        "form.querySelector('button').click()",
        path,
        None if body is None else json.dumps(body),
    )
    shown = f"return document.getElementById('{path}-answer').textContent"
    return str(WebDriverWait(driver, 20, poll_frequency=0.05).until(lambda found: found.execute_script(shown)))


def test_the_page_predicts_and_learns(driver: Any) -> None:
    with running(make_app(small_model(), token=TOKEN)) as port:
        driver.get(f"http://127.0.0.1:{port}/")
        assert send(driver, "predict", {"rows": DIGITS[:2].tolist()}).startswith("401")
        driver.execute_script("document.getElementById('token').value = arguments[0]", TOKEN)
        assert send(driver, "predict", {"rows": DIGITS[:2].tolist()}).startswith("200")
        assert json.loads(send(driver, "learn", None).partition("\n")[2])["learned"] == 2  # ids were filled in
        assert "sncl_labelled_predictions_total 2" in send(driver, "metrics", None)
        refused = send(driver, "learn", {"ids": [HOSTILE], "labels": [1]})
        assert refused.startswith("404") and HOSTILE in refused  # as text
        assert driver.execute_script("return window.hacked === undefined && !document.querySelector('img')")
        asked = [json.loads(line["message"])["message"] for line in driver.get_log("performance")]
        urls = [each["params"]["request"]["url"] for each in asked if each["method"] == "Network.requestWillBeSent"]
        assert len(urls) >= 6
        assert all(url.startswith((f"http://127.0.0.1:{port}/", "data:", "chrome")) for url in urls), urls
        said = [line["message"] for line in driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        assert [line for line in said if "401" not in line and "404" not in line] == []
