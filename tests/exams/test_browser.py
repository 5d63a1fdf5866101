"""Pages in a real browser: that of `isometry explore`, served by the real command, and reports as files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from isometry import PairVerifier, adapt
from isometry.report import write_verification_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("chromium") or not shutil.which("chromedriver"), reason="no chromium here"),
]


@pytest.fixture(scope="module")
def address():
    """Of a page of held-out digits under a linear and a curved metric."""
    command = [sys.executable, "-m", "isometry.cli", "explore", "digits", "--methods", "GMML,KernelFisherML", "--json"]
    process = subprocess.Popen([*command, "--points", "300", "--image-shape", "8x8"], stdout=subprocess.PIPE, text=True)
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, "the command ended before it served anything"
        text += line
    yield json.loads(text)["address"]
    process.terminate()
    process.wait()


@pytest.fixture(params=[1400, 400])
def browser(request):
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.command_executor.client_config.timeout = 3600  # two minutes by default, which a busy machine may need
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": request.param, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    yield driver
    driver.quit()


def text(browser, name):
    return browser.find_element(By.ID, name).text


def test_click_switch_and_search(browser, address, tmp_path):
    browser.get(address)
    assert "of neighbours are of the same class" in text(browser, "own1")
    spot = browser.execute_script("return places[1][7]")
    browser.execute_script(
        "const v = document.getElementById('view1'), b = v.getBoundingClientRect();"
        "const at = {clientX: b.left + arguments[0], clientY: b.top + arguments[1], bubbles: true};"
        "v.dispatchEvent(new MouseEvent('click', at))",
        *spot,
    )
    picked = browser.execute_script("return data.rows[picked]")
    assert f"row {picked}" in text(browser, "picked") and "neighbours stay" in text(browser, "picked")
    assert text(browser, "picked").count("of the distance:") == 16  # eight neighbours under each of two linear metrics
    browser.find_element(By.CSS_SELECTOR, "#after option[value='2']").click()
    assert text(browser, "name1") == "KernelFisherML"
    browser.find_element(By.XPATH, "//button[text()='why?']").click()
    browser.execute_async_script(
        "const done = arguments[0], told = () => [...document.querySelectorAll('.lists > div:last-child div.why')]"
        ".some(node => node.textContent.includes('distance'));"
        "const wait = () => told() ? done() : setTimeout(wait, 50); wait()"
    )
    find = browser.find_element(By.ID, "find")
    find.send_keys(str(picked))
    assert text(browser, "found") == "1 found" and f"row {picked}" in text(browser, "picked")
    before = browser.execute_script("return places[1][7]")
    browser.find_element(By.CSS_SELECTOR, "#plane option[value='apart']").click()
    assert browser.execute_script("return places[1][7]") != before
    browser.save_screenshot(str(tmp_path / "page.png"))
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the window"
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith((address, "data:")) for url in urls)


def test_without_its_token_the_page_does_not_open(browser, address):
    browser.get(address.rsplit("/", 2)[0] + "/")
    assert "whole address" in browser.page_source and "row" not in browser.page_source


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of adapted embeddings and of a verifier of pairs, with a head and without one."""
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 8)
    signal = rng.normal(size=(40, 6))[y] + 0.4 * rng.normal(size=(320, 6))
    X = np.hstack([signal, 2.5 * rng.normal(size=(320, 6))])
    adapt(X, y, heads=False).report(folder / "adapt.html")
    adapt(X, rng.permutation(y), heads=False).report(folder / "kept.html")
    write_verification_report(PairVerifier(prior=0.5, random_state=0).fit(X, y), folder / "verify.html")
    return folder


@pytest.mark.parametrize("name", ["adapt", "kept", "verify"])
def test_reports_fit_the_window_and_ask_nobody(browser, reports, name):
    browser.get((reports / f"{name}.html").as_uri())
    assert len(browser.find_elements(By.TAG_NAME, "section")) >= 4
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the window"
    if folder := os.environ.get("ISOMETRY_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        width = browser.execute_script("return document.documentElement.clientWidth")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.save_screenshot(os.path.join(folder, f"{name}-{width}.png"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith(("file:", "data:")) for url in urls)
