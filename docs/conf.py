"""How Sphinx builds the site: `make docs`, or `python -m docs.site`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import isometry

project = "isometry"
author = "the isometry authors"
copyright = "the isometry authors"
version = release = isometry.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["_templates"]
templates_path = ["_templates"]
nitpicky = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "isometry"
html_static_path = ["_static"]
html_css_files = ["isometry.css"]
html_theme_options = {
    "logo": {"text": "isometry"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"]},
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "monokai",
}
html_show_sourcelink = False

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["examples"],
    "plot_gallery": False,
    "filename_pattern": r"^$",
}
