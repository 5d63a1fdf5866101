"""How Sphinx builds the site from build/docs, where docs/site.py gathers the pages."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent  # build/docs
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

import isometry  # noqa: E402

project = "isometry"
author = "the isometry authors"
copyright = "the isometry authors, BSD-3-Clause"
version = release = isometry.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["_templates", "GALLERY_HEADER.rst"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "isometry"
html_static_path = ["_static"]
html_css_files = ["isometry.css"]
html_js_files = ["search.js"]
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_copy_source = False
html_sidebars = {
    "index": [],
    "start": [],
    "choose": [],
    "survey": [],
    "api/**": [],
    "methods/**": [],
    "tests/**": [],
    "changes": [],
}
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo-dark.svg", "alt_text": "isometry"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "collapse_navigation": True,
    "navigation_depth": 2,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "monokai",
}
mathjax_path = "mathjax/tex-chtml.js"  # a copy of ours: nothing is asked of the network
mathjax3_config = {"options": {"enableMenu": False}, "chtml": {"scale": 0.98}}

sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "examples" / "gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "default_thumb_file": str(HERE / "_static" / "warps" / "as-they-are.png"),
}


suppress_warnings = ["myst.header"]  # pages of results skip a level of headings


def skip_foreign(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """What scikit-learn and torch give to their subclasses is in their own documentation."""
    function = getattr(obj, "fget", None) or getattr(obj, "__func__", obj)
    home = getattr(function, "__module__", None)
    return True if (home and not home.startswith("isometry")) or name.endswith("_extra_state") else None


def copy_mathjax(app: Any, error: Exception | None) -> None:
    """What the pages load of MathJax, and no more: one script and its fonts."""
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    if error is None and found is not None and found.origin is not None:
        source, target = Path(found.origin).parent / "static" / "mathjax", Path(app.outdir) / "_static" / "mathjax"
        fonts = Path("output") / "chtml" / "fonts"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / "tex-chtml.js", target / "tex-chtml.js")
        shutil.copytree(source / fonts, target / fonts, dirs_exist_ok=True)


def point_within(app: Any, name: str, text: list[str]) -> None:
    """Pages written for readers of the repository point to files; here these are pages."""
    for there, here in {
        "errata.md": "survey.rst",
        "methods.md": "methods/index.rst",
        "docs/design.md": "design.md",
        "../CONTRIBUTING.md": "CONTRIBUTING.md",
    }.items():
        text[0] = text[0].replace(f"]({there})", f"]({here})").replace(f"](../{there})", f"](../{here})")


def setup(app: Any) -> None:
    from docs.docstrings import process

    app.connect("autodoc-process-docstring", process, priority=100)  # before numpydoc
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("build-finished", copy_mathjax)
    app.connect("source-read", point_within)
