"""The page to explore a space with: what it holds is right, nothing in it can end its data, and it is served safely."""

from __future__ import annotations

import http.client
import json
import re
import threading

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from isometry import GMML, KDCA
from isometry.cli import app
from isometry.cli.page_server import PageServer
from isometry.explanation import plain_map
from isometry.report.explorer import Shown, Space, explorer_data, explorer_page, shares_of_pair, sprite, write_explorer
from tests.report.test_html import EVIL


@pytest.fixture(scope="module")
def wine():
    data = load_wine()
    X = StandardScaler().fit_transform(data.data)
    linear, curved = GMML(reg=0.1).fit(X, data.target), KDCA(reg=0.1).fit(X, data.target)
    spaces = [Space("Euclidean", np.asarray), Space("GMML", plain_map(linear)), Space("KDCA", plain_map(curved))]
    texts = [f"bottle {k} {EVIL}" for k in range(len(X))]
    shown = Shown(X, [*data.feature_names[:-1], EVIL], np.arange(len(X)), data.target, texts)
    return shown, spaces, linear


def test_neighbours_distances_and_reasons_are_those_of_the_metric(wine):
    shown, spaces, linear = wine
    data = explorer_data(shown, spaces, "wine")
    Z = linear.transform(shown.X)
    D = np.linalg.norm(Z[:, None] - Z, axis=2)
    unit = np.sqrt(np.mean(D**2))
    space = data["spaces"][1]
    W = linear.get_mahalanobis_matrix()
    for i in (0, 77):
        near = space["near"][i]
        np.testing.assert_allclose(D[i, near] / unit, space["distance"][i], atol=1e-3)
        assert set(near) == set(np.argsort(D[i] + np.where(np.arange(len(D)) == i, np.inf, 0))[: len(near)])
        delta = shown.X[near[0]] - shown.X[i]
        shares = delta * (W @ delta)
        told = np.reshape(space["why"][i][0], (-1, 2))
        expected = shares / np.abs(shares).sum()
        np.testing.assert_allclose(told[:, 1], expected[told[:, 0].astype(int)], atol=6e-4)
        assert np.abs(told[0, 1]) == pytest.approx(np.abs(expected).max(), abs=6e-4)
    assert data["spaces"][2]["why"] is None  # curved: told on demand
    own = np.mean(shown.y[np.array(space["near"])] == shown.y[:, None])
    assert space["own"] == pytest.approx(own, abs=1e-4)


def test_reasons_of_a_linear_metric_on_demand_are_the_stored_ones(wine):
    shown, spaces, _ = wine
    data = explorer_data(shown, spaces, "wine")["spaces"][1]
    j = data["near"][5][0]
    np.testing.assert_allclose(shares_of_pair(spaces[1], shown, 5, j), data["why"][5][0], atol=2e-3)


def test_nothing_in_the_data_ends_the_element_that_holds_it(wine):
    shown, spaces, _ = wine
    text = explorer_page(explorer_data(shown, spaces, EVIL))
    assert text.count("</script>") == 2 and "<img" not in text and "<!--" not in text
    inside = re.search(r'type="application/json">(.*?)</script>', text, re.DOTALL)[1]
    held = json.loads(inside)
    assert held["title"] == EVIL and held["features"][-1] == EVIL and held["text"][3].endswith(EVIL)
    assert "http:" not in text and "https:" not in text


def test_images_stand_in_one_picture_row_by_row():
    import base64
    import io

    from matplotlib.image import imread

    X = load_digits().data[:7]
    made = sprite(X, (1, 8, 8))
    picture = imread(io.BytesIO(base64.b64decode(made["source"].partition(",")[2])))[..., 0]
    assert picture.shape == (made["down"] * 8, made["across"] * 8)
    r, c = divmod(5, made["across"])
    np.testing.assert_allclose(
        picture[8 * r : 8 * r + 8, 8 * c : 8 * c + 8], X[5].reshape(8, 8) / X.max(), atol=1 / 250
    )


def test_the_page_is_written_whole(wine, tmp_path):
    shown, spaces, _ = wine
    data = explorer_data(shown, spaces, "wine")
    assert write_explorer(data, tmp_path / "page.html").read_text() == explorer_page(data)
    with pytest.raises(ValueError, match="at least two"):
        explorer_data(shown, spaces[:1], "wine")


@pytest.fixture
def served():
    def answer(question):
        if question.get("i") != "1":
            raise ValueError("i must be 1")
        return {"shares": [0, 1.0]}

    with PageServer(lambda nonce, ask: f"page {nonce} {ask}", answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def test_only_the_whole_address_opens_the_page(served):
    assert served.server_address[0] == "127.0.0.1"
    answer, body = ask(served, f"/{served.token}/")
    assert answer.status == 200 and body == f"page {served.nonce} /{served.token}/why"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and f"'nonce-{served.nonce}'" in policy and "unsafe" not in policy
    for path in ("/", f"/{served.token[:-1]}/", "/why?i=1", "/../", "/%2e%2e/etc/passwd"):
        answer, body = ask(served, path)
        assert answer.status == 403 and served.token not in body
    assert ask(served, f"/{served.token}/other")[0].status == 404
    assert ask(served, f"/{served.token}/", host="evil.example")[0].status == 403


def test_questions_are_answered_or_refused_in_words(served):
    answer, body = ask(served, f"/{served.token}/why?i=1")
    assert answer.status == 200 and json.loads(body) == {"shares": [0, 1.0]}
    answer, body = ask(served, f"/{served.token}/why?i=2")
    assert answer.status == 400 and json.loads(body) == {"error": "i must be 1"}


def run(*args, code=0):
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def test_explore_writes_a_page_of_rows_held_out(tmp_path):
    run("explore", "wine", "--methods", "GMML,RCA", "--out", tmp_path / "page.html", "--points", 30)
    inside = re.search(r'application/json">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)[1]
    held = json.loads(inside)
    assert [s["name"] for s in held["spaces"]] == ["Euclidean", "GMML", "RCA"]
    assert len(held["rows"]) == 30 and "of the other 54" in held["notes"][0]


def test_explore_of_a_saved_metric_with_text(tmp_path):
    data = load_wine(as_frame=True).frame.iloc[::3].assign(note=lambda f: [f"bottle {k}" for k in range(len(f))])
    data.to_csv(tmp_path / "wine.csv", index=False)
    numbers = data.drop(columns=["note", "target"])
    make_pipeline(StandardScaler(), GMML(reg=0.1)).fit(numbers, data["target"])[-1].save(
        tmp_path / "metric.safetensors"
    )
    args = ("explore", tmp_path / "wine.csv", "-y", "target", "--model", tmp_path / "metric.safetensors")
    run(*args, "--show", "note", "--out", tmp_path / "page.html", "--drop", "nothing", code=2)
    run(*args, "--show", "note", "--out", tmp_path / "page.html")
    assert "bottle 7" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--show", "nothing"], "no column"),
        (["--methods", "GMLM"], "GMML"),
        (["--out", "wine.csv"], "is the table itself"),
        (["--image-shape", "3x3"], "9 pixels"),
    ],
)
def test_wrong_usage_is_named(more, says, tmp_path, monkeypatch):
    load_wine(as_frame=True).frame.to_csv(tmp_path / "wine.csv", index=False)
    monkeypatch.chdir(tmp_path)
    out = [] if "--out" in more else ["--out", "page.html"]
    result = run("explore", "wine.csv", "-y", "target", *out, *more, code=2)
    assert says in result.stderr
