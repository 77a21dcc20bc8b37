"""The site: `make docs` builds it from the whole repository into docs/_build."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs" / "_ext"), str(ROOT)]

from gatedjax import __version__  # noqa: E402

project = "gatedjax"
author = "The gatedjax developers"
copyright = f"{author}, Apache-2.0"
version = release = __version__

# The source folder is the repository: pages of results and notebooks are pages of the site where
# they are, and links between files are links between pages.
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "experiments/results/**/RESULTS.md",
    "experiments/results/**/TUNING.md",
    "CONTRIBUTING.md",
]
exclude_patterns = ["docs/_build", ".venv*", ".git", "runs", "build", "dist", "**/runs", "tests"]

extensions = [
    "myst_nb",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",  # links from the reference to the source, which is part of the site
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "site_parts",
]
suppress_warnings = []
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

html_theme = "pydata_sphinx_theme"
html_title = "gatedjax"
html_baseurl = ""
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = True
html_show_sourcelink = True
html_show_sphinx = False
# The landing page has its own doors. Two pages need the width for code, some of it side by side.
html_sidebars: dict = {page: [] for page in ("docs/index", "docs/libraries", "docs/own_loop")}
# The reader's browser loads nothing from other hosts, so the site carries MathJax itself. Only the
# parts that draw TeX are copied, because the whole of it has 24 MB.
mathjax = importlib.util.find_spec("sphinx-mathjax-offline")
if mathjax is None or not mathjax.submodule_search_locations:
    raise SystemExit("sphinx-mathjax-offline is not installed: type `make docs`, which installs it")
html_static_path += [str(Path(mathjax.submodule_search_locations[0]) / "static")]
mathjax_path = "mathjax/tex-chtml.js"
exclude_patterns += [
    f"mathjax/{part}"
    for part in ("a11y", "adaptors", "sre", "ui", "*-full*", "*svg*", "*mml*", "input/asciimath*")
]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
nb_ipywidgets_js: dict = {}
templates_path = ["_templates"]
html_additional_pages = {"index": "to_start.html"}
html_theme_options = {
    "logo": {"text": "gatedjax"},
    "navigation_with_keys": False,
    # the menu of each page has the names of its package only, not all 340 names of the reference
    "collapse_navigation": True,
    "show_prev_next": True,
    "header_links_before_dropdown": 10,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_center": ["sourcelink"],
    "footer_end": ["release"],
    # the theme leaves the sidebar out of pages without headings
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# GitHub Actions names the repository. Elsewhere its address is not known, and the pages have no
# edit links.
repository = os.environ.get("GITHUB_REPOSITORY", "")
if repository:
    html_context = {
        "github_user": repository.partition("/")[0],
        "github_repo": repository.partition("/")[2],
        "github_version": os.environ.get("GITHUB_REF_NAME", "main"),
        "doc_path": "",
    }
    html_theme_options["use_edit_page_button"] = True
    html_theme_options["footer_center"] = ["edit-this-page", "sourcelink"]
