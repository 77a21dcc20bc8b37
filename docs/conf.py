"""The site: `make docs` builds it from the whole repository into docs/_build."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs" / "_ext"), str(ROOT)]

from gatedjax import __version__  # noqa: E402

project = "gatedjax"
author = "The gatedjax developers"
copyright = f"{author}, Apache-2.0"
version = release = __version__

# The source folder is the repository: pages of results, notebooks and the changelog are pages of
# the site where they are, and links between files are links between pages.
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "experiments/results/**/RESULTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = ["docs/_build", ".venv*", ".git", "runs", "build", "dist", "**/runs", "tests"]

extensions = [
    "myst_nb",
    "sphinx.ext.viewcode",  # links from the reference to the source, which is part of the site
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "site_parts",
]
suppress_warnings = [
    "toc.empty_glob",  # concepts may come and go
]
nitpicky = True
# types in signatures are those of the source; what is not a name of ours has no page
nitpick_ignore_regex = [("py:.*", ".*")]
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
# the outputs are those of the committed notebooks; tests/test_notebooks.py runs them
nb_execution_mode = "off"
nb_merge_streams = True
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "unsrt"

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "gatedjax"
html_baseurl = ""
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"docs/beside": [], "docs/own_loop": [], "docs/gallery": []}
html_show_sphinx = False
# nothing is fetched from elsewhere, when it is built or read
nb_ipywidgets_js: dict = {}
templates_path = ["_templates"]
html_additional_pages = {"index": "to_start.html"}
html_theme_options = {
    "navigation_with_keys": False,
    # the menu of each page has the names of its package only, not all 340 names of the reference
    "collapse_navigation": True,
    "show_prev_next": True,
    "header_links_before_dropdown": 9,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
