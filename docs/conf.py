"""The documentation site: ``make docs`` writes docs/_build, which needs no network to be read."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import relatum

project = "relatum"
author = "the relatum developers"
release = relatum.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "formulas",
    "signatures",
    "objective_pages",
    "command_pages",
]
exclude_patterns = ["_build", "extensions"]

myst_enable_extensions = ["attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # the fields of a NamedTuple are documented once

html_theme = "furo"
html_title = "relatum"
html_static_path = ["_static"]
html_css_files = ["relatum.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_use_index = html_domain_indices = False  # search finds more
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # a page opened from a file may not fetch others
templates_path = []
# Nothing is fetched while reading: formulas are MathML, fonts are those of the reader's system.
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#7fbcf5", "color-brand-content": "#7fbcf5"},
}
