"""The pages of the site: every row of the method table has one, with its equation as mathematics and a reference."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from isometry.registry import METHODS, get

pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # docs/ belongs to the repository, not to the package

from docs.docstrings import linked, tolerant, with_mathematics  # noqa: E402
from docs.equations import GREEK, SIGNS, display, latex, lines  # noqa: E402
from docs.links import broken  # noqa: E402
from docs.proofs import proofs  # noqa: E402
from docs.proofs import tests as tests_of  # noqa: E402
from docs.toys import SETS, laid_on, slug, warped, why_not  # noqa: E402

EQUATIONS = sorted({m.equation for m in METHODS})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("W = C_w⁻¹", r"W = C_{w}^{-1}"),
        ("VᵀS_lwV", r"V^{\top}S_{lw}V"),
        ("Σ_i p_i", r"\sum_{i} p_{i}"),
        ("W = Σ⁻¹", r"W = \Sigma ^{-1}"),
        ("Σ_S − Σ_D", r"\Sigma _{S} - \Sigma _{D}"),
        ("√(zᵀWz)", r"\sqrt{z^{\top}Wz}"),
        ("min_{W ⪰ 0} tr W", r"\min_{W \succeq 0} \operatorname{tr} W"),
        ("mean over pairs of d²", r"\operatorname*{mean} \text{ over pairs of }d^{2}"),
        ("[x]₊²", r"[x]_{+}^{2}"),
        ("ẑ_iᵀπ̂", r"\hat{z}_{i}^{\top}\hat{\pi}"),
        ("e^{−t²/2}", r"e^{-t^{2}/2}"),
        ("a ♯_t b", r"a \mathbin{\sharp_{t}}\, b"),
        ("C ξ", r"C\, \xi"),
        ("½|W|_F²", r"\tfrac{1}{2}\vert W\vert _{F}^{2}"),
        ("argmin_W' f", r"\operatorname*{arg\,min}_{W'} f"),
    ],
)
def test_plain_text_becomes_latex(written, meant):
    assert latex(written) == meant


def test_an_unknown_sign_is_named():
    with pytest.raises(ValueError, match=r"no LaTeX is known for '☃' \(U\+2603\)"):
        latex("x + ☃")


@pytest.mark.parametrize("equation", EQUATIONS, ids=lambda e: e[:40])
def test_every_equation_of_the_table_is_mathematics(equation):
    """It is whole: braces and environments close, only known commands stand in it, and no sign is left in Unicode."""
    shown = display(equation)
    bare = re.sub(r"\\[{}]", "", shown)
    depth = 0
    for char in bare:
        depth += {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0, shown
    assert depth == 0 and shown.count(r"\begin{") == shown.count(r"\end{")
    assert shown.isascii() or re.sub(r"\\text\{[^}]*\}", "", shown).isascii(), shown
    commands = set(re.findall(r"\\([A-Za-z]+)", shown))
    signs = {c for text in SIGNS.values() for c in re.findall(r"\\([A-Za-z]+)", text)}
    others = {"text", "mathrm", "operatorname", "sum", "prod", "sqrt", "quad", "begin", "end", "mathbin", "mathopen"}
    others |= {"top", "prime", "hat", "tilde", "bar", "dot", "ast", "sharp", "min", "max", "log", "exp", "det", "cos"}
    assert commands <= signs | others | set(GREEK.values()) | {"sin", "tan", "tanh"}, commands - signs - others


def test_every_equation_is_set_by_a_second_engine():
    """matplotlib's own parser of mathematics, which knows most of LaTeX, takes every line."""
    from matplotlib.mathtext import MathTextParser

    parser = MathTextParser("path")
    known = {
        r"\operatorname*": r"\operatorname",
        r"\tfrac": r"\frac",
        r"\Vert": r"\|",
        r"\vert": "|",
        r"\quad": r"\ \ ",
    }
    for equation in EQUATIONS:
        for line in lines(equation):
            for there, here in known.items():
                line = line.replace(there, here)
            line = re.sub(r"\\mathopen\{(.*?)\}", r"\1", line)
            line = re.sub(r"\\mathbin\{(.*?\}?)\}", r"\1", line)
            line = re.sub(r"\\text\{([^}]*)\}", r"\\mathrm{x}", line).replace(r"arg\,m", "argm")
            parser.parse(f"${line}$")


def test_docstrings_show_their_equation_and_keep_their_markup():
    doc = ["Does it.", "", "W = Σ⁻¹", "", "By |x| and history_ of ``a_`` and `b`_."]
    shown = with_mathematics(doc, "W = Σ⁻¹")
    assert shown[:6] == ["Does it.", "", ".. math::", "", r"   W = \Sigma ^{-1}", ""]
    assert with_mathematics(doc, "another") == doc
    assert tolerant(doc)[-1] == r"By \|x\| and history\_ of ``a_`` and `b`_."


def test_subscripts_of_plain_text_are_set_lower():
    """Those of mathematics; names of code and of parameters stay as they are."""
    for written, shown in (
        ("the same with log p_i.", r"the same with log p\ :sub:`i`\ ."),
        ("Σ_{j: y_j ≠ y_i} d_W²", r"Σ\ :sub:`j: yⱼ ≠ yᵢ` d\ :sub:`W`\ ²"),
        ("Λ^{1/2}V and λ_max", r"Λ\ :sup:`1/2`\ V and λ\ :sub:`max`"),
        ("log Σ_pos e^{d_ij}", r"log Σ\ :sub:`pos` e\ :sup:`dᵢⱼ`"),
        ("``p_i``, lle_reg, X_new", "``p_i``, lle_reg, X_new"),
        ("k_s : int", "k_s : int"),
    ):
        assert tolerant([written]) == [shown]


def test_names_in_single_backticks_are_links():
    links = {"DCA": ":doc:`DCA <DCA>`"}
    written = ["As `DCA`, ``DCA``, `other`, `DCA`_ and :obj:`DCA`."]
    assert linked(written, links) == ["As :doc:`DCA <DCA>`, ``DCA``, `other`, `DCA`_ and :obj:`DCA`."]


def test_the_cost_of_a_method_is_not_what_a_parameter_saves():
    pytest.importorskip("numpydoc")
    from docs.method_pages import complexity, page

    assert complexity(get("NCA")) == "O(n² p + n d p)"  # ``batch_size`` makes it O(n)
    assert complexity(get("LMNN")) == "O(T p + n p d)"
    text = page(get("LMNN"))
    assert text.index("where j → i") < text.index("For whom"), "signs are explained beside the equation"
    assert ":doc:`FisherML <FisherML>`" in text


def test_every_row_has_a_page_a_reference_and_a_section():
    """Rows beyond the survey say that they are; Euclidean distance alone has no paper."""
    slugs = [slug(m) for m in METHODS]
    assert len({s.lower() for s in slugs}) == len(METHODS), "two pages would have one address"
    for m in METHODS:
        assert m.section.strip(), f"{m.key} has no section of the survey; write 'beyond the survey' if it is not in it"
        assert m.cite or m.key == "EUC", f"{m.key} has no reference"
        assert m.section == "beyond the survey" or m.key[0] in "EMPD", m.key


def test_pages_say_what_they_should():
    pytest.importorskip("numpydoc")
    pytest.importorskip("torch")
    from docs.method_pages import BEYOND, bibtex, pages, section_label

    written = pages()
    front = written["methods/index.rst"]
    for m in METHODS:
        assert f'href="{slug(m)}.html"' in front, f"the gallery does not show {m.name}"
        assert not m.cite or bibtex(m).startswith("@misc{"), f"the reference of {m.key} cannot be cited: {m.cite}"
    for m in METHODS:
        assert f"methods/{slug(m)}.rst" in written, f"{m.key} has no page"
        text = written[f"methods/{slug(m)}.rst"]
        assert ".. math::" in text or not m.equation, m.key
        assert "Reference\n---" in text and m.cite[:30] in text, m.key
        assert ("Beyond the survey" if m.section == BEYOND else m.section) in text, m.key
        assert not m.deviates or m.section == BEYOND or f"<{section_label(m.section)}>" in text, "no way to the errata"
        assert (f"warps/{slug(m)}.png" in text) != bool(why_not(m)), m.key


def test_the_guide_of_choice_ends_in_a_table_of_every_learner():
    pytest.importorskip("numpydoc")
    pytest.importorskip("torch")
    from docs.measured import measured
    from docs.method_pages import choice_table

    assert (ROOT / "docs" / "choose.md").read_text("utf-8").rstrip().endswith("```{include} choice_table.txt\n```")
    head, _, *lines = choice_table().strip().splitlines()
    assert head == "| method | rank | points | fit | cost | learns from | map | family |"
    rows = {line.split("](")[0].removeprefix("| ["): line.split(" | ") for line in lines}
    learners = [m for m in METHODS if m.kind == "estimator" and m.family != "deep"]
    assert rows.keys() == {m.name for m in learners}
    for m in learners:
        cells = rows[m.name]
        assert len(cells) == 8 and cells[5] == m.sees and ("O(" in cells[4] or cells[4] == "—")
        if m.key in measured():
            found = measured()[m.key]
            assert (float(cells[1]), float(cells[2])) == (round(found.rank, 1), round(found.gain, 1))
    ranks = [float(line.split(" | ")[1]) for line in lines if line.split(" | ")[1] != "—"]
    assert ranks == sorted(ranks) and len(ranks) == sum(m.key in measured() for m in learners)


def test_figures_of_the_survey_are_drawn_by_the_library(tmp_path):
    pytest.importorskip("numpydoc")
    pytest.importorskip("torch")
    from docs import survey, survey_figures

    survey_figures.draw_all(tmp_path)
    page = survey.page()
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert drawn == {"euclidean_mahalanobis", "contours", "contrastive_triplet", "siamese"}
    assert all(f"_static/survey/{name}.png" in page for name in drawn)


def test_every_correction_points_to_a_test():
    missing = [m.key for m in METHODS if m.deviates and not proofs(m)]
    assert not missing, f"no test names what these rows correct: {missing}"
    names = {(t.file, t.name) for t in tests_of()}
    assert all((t.file, t.name) in names for m in METHODS for t in proofs(m))


@pytest.mark.parametrize("name", SETS)
def test_euclidean_distance_leaves_the_toys_where_they_are(name):
    import numpy as np

    X, _ = SETS[name]()
    np.testing.assert_allclose(warped(get("EUC"), name)[0], X, atol=1e-9)
    Q = np.linalg.qr(np.random.RandomState(0).randn(2, 2))[0]
    np.testing.assert_allclose(laid_on(3 * X @ Q, X[None] @ Q, X)[0], X, atol=1e-9)  # turned back, and of its size


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="here"></h1><a href="b.html#there"></a><a href="#here"></a><a href="c.html">'
    )
    (tmp_path / "b.html").write_text('<img src="https://example.org/x.png"><a href="https://example.org/">')
    assert broken(tmp_path) == [
        "a.html: b.html#there: no such place on the page",
        "a.html: c.html leads nowhere",
        "b.html: loads https://example.org/x.png",
    ]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    copy = tmp_path / "clone"
    ignored = shutil.ignore_patterns(".venv*", ".git", "build", "site", "dist", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=ignored)
    done = subprocess.run([sys.executable, "-m", "docs.site"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "0 broken links" in done.stdout
    assert (copy / "site" / "searchindex.js").stat().st_size > 100_000
