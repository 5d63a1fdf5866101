"""The built site in a real browser: wide and narrow, as files and from a server, its search without a network.

Build it with `make docs`, then `ISOMETRY_SITE=site pytest -m slow tests/exams/test_site_in_a_browser.py`; with
`ISOMETRY_SCREENSHOTS=folder` it leaves pictures of every page to look at.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

SITE = Path(os.environ.get("ISOMETRY_SITE", Path(__file__).resolve().parents[2] / "site")).resolve()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("chromium") or not shutil.which("chromedriver"), reason="no chromium here"),
    pytest.mark.skipif(
        not (SITE / "index.html").exists(), reason="no site: run make docs, or name it in ISOMETRY_SITE"
    ),
]
# the page, and whether it has mathematics and pictures of its own
PAGES = {
    "index.html": (False, True),
    "start.html": (False, True),
    "choose.html": (False, False),
    "guides/tables.html": (False, False),
    "guides/embeddings.html": (False, False),
    "methods/index.html": (False, True),
    "methods/LMNN.html": (True, True),
    "methods/ProxyAnchor.html": (True, True),
    "survey.html": (True, True),
    "results/index.html": (False, False),
    "results/accuracy.html": (False, True),
    "results/speed.html": (False, False),
    "gallery/index.html": (False, True),
    "api/index.html": (False, False),
    "api/isometry.LMNN.html": (True, False),
    "coming_from_metric_learn.html": (False, False),
    "names.html": (False, False),
    "CHANGELOG.html": (False, False),
}
QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


@pytest.fixture(scope="module", params=[1400, 400])
def browser(request, tmp_path_factory):
    options = webdriver.ChromeOptions()
    for flag in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.command_executor.client_config.timeout = 3600  # two minutes by default, which a busy machine may need
    driver.width = request.param
    driver.set_script_timeout(120)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def served():
    """The address of the site from a server of this machine."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def opened(browser, address, height=1000):
    size = {"width": browser.width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser"), browser.get_log("performance")  # what is in them is of the page before
    browser.get(address)
    browser.execute_async_script(  # until mathematics is set and every picture is there
        "const done = arguments[0]; const set = window.MathJax?.startup?.promise ?? Promise.resolve();"
        "const pictures = [...document.images].map(i => { i.loading = 'eager';"
        " return i.complete ? 0 : new Promise(r => { i.onload = i.onerror = r; }); });"
        "Promise.all([set, document.fonts.ready, ...pictures]).then(() => done())"
    )


def troubles(browser, within):
    """What the console says, requests to elsewhere, pictures that are not there, and what is wider than the window."""
    said = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    told = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in told if m["method"] == "Network.requestWillBeSent"]
    assert asked, "nothing was loaded"
    outside = [url for url in asked if not url.startswith((within, "data:", "blob:"))]
    absent = browser.execute_script("return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
    wide = browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    past = browser.execute_script(  # text that a reader cannot reach: cut off, with no way to scroll to it
        "const w = document.documentElement.clientWidth, seen = [];"
        "for (const e of document.querySelectorAll('main *')) {"
        "  const b = e.getBoundingClientRect(); if (b.right <= w + 1 || !b.width || !b.height) continue;"
        "  let p = e, scrolls = false; while (p && p.tagName != 'MAIN') {"
        "    if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) scrolls = true; p = p.parentElement; }"
        "  if (!scrolls) seen.push(e.tagName + '.' + e.className + ': ' + (e.textContent || '').trim().slice(0, 40)); }"
        "return seen.slice(0, 5)"
    )
    return {
        "console": said,
        "outside": outside,
        "pictures": absent,
        "too wide by": max(wide, 0),
        "cut off": past,
    }


CALM = {"console": [], "outside": [], "pictures": [], "too wide by": 0, "cut off": []}


def picture(browser, name):
    if folder := os.environ.get("ISOMETRY_SCREENSHOTS"):
        browser.save_screenshot(
            os.path.join(folder, f"{name.replace('/', '-').removesuffix('.html')}-{browser.width}.png")
        )


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole(browser, page):
    opened(browser, (SITE / page).as_uri())
    picture(browser, page)
    assert troubles(browser, "file:") == CALM
    mathematics, pictures = PAGES[page]
    raw = browser.execute_script("return document.querySelector('main').innerText")
    assert "\\(" not in raw and "\\[" not in raw and "$$" not in raw, "mathematics is shown as its source"
    assert len(browser.find_elements(By.TAG_NAME, "mjx-merror")) == 0, "mathematics that MathJax cannot read"
    assert bool(browser.find_elements(By.TAG_NAME, "mjx-container")) >= mathematics
    assert bool(browser.find_elements(By.CSS_SELECTOR, "main img")) >= pictures
    assert len(browser.find_elements(By.TAG_NAME, "h1")) == 1


@pytest.mark.parametrize("how", ["as files", "served"])
@pytest.mark.parametrize(
    ("words", "wanted"),
    [("LMNN", "methods/LMNN.html"), ("threshold", "guides/pairs.html"), ("onnx", "embeddings.html")],
)
def test_search_finds_without_a_network(browser, served, how, words, wanted):
    home = SITE.as_uri() if how == "as files" else served
    opened(browser, f"{home}/index.html")
    button = next(
        b for b in browser.find_elements(By.CSS_SELECTOR, ".search-button, .search-button__button") if b.is_displayed()
    )
    button.click()
    field = WebDriverWait(browser, 60).until(
        lambda b: next((f for f in b.find_elements(By.CSS_SELECTOR, "input[name=q]") if f.is_displayed()), None)
    )
    field.send_keys(words, Keys.ENTER)
    WebDriverWait(browser, 120).until(
        lambda b: (
            "search.html" in b.current_url
            and b.find_elements(By.CSS_SELECTOR, "#search-results .search-summary")
            and "Searching" not in b.find_element(By.CSS_SELECTOR, "#search-results").text
        )
    )
    links = browser.find_elements(By.CSS_SELECTOR, "#search-results li a")
    picture(browser, f"search-{words}-{how.split()[-1]}")
    found = [link.get_attribute("href") for link in links]
    assert any(wanted in address for address in found[:12]), found[:20]
    assert troubles(browser, "file:" if how == "as files" else served) == CALM


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_front_page_in_both_colours(browser, mode):
    opened(browser, (SITE / "index.html").as_uri())
    browser.execute_script(
        "localStorage.setItem('mode', arguments[0]); localStorage.setItem('theme', arguments[0])", mode
    )
    opened(browser, (SITE / "index.html").as_uri())
    assert browser.execute_script("return document.documentElement.dataset.theme") == mode
    picture(browser, f"front-{mode}")
    low = browser.execute_script(  # WCAG: text against what lies behind it, 4.5 to 1
        "const rgb = c => c.match(/[\\d.]+/g).map(Number);"
        "const lum = c => { const [r, g, b] = rgb(c).map(v => v / 255)"
        "  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return .2126*r + .7152*g + .0722*b; };"
        "const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;"
        "  const p = rgb(c); if (p.length < 4 || p[3] == 1) return c; } return 'rgb(255,255,255)'; };"
        "return [...document.querySelectorAll('main p, main h1, main h2, main a, main code, main figcaption, main li')]"
        ".filter(e => e.offsetParent && e.textContent.trim()).map(e => { const a = lum(getComputedStyle(e).color),"
        "  b = lum(behind(e)), told = e.textContent.trim().slice(0, 30);"
        "  return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), told]; })"
        ".filter(x => x[0] < 4.5)"
    )
    assert low == []
