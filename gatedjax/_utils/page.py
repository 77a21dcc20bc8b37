"""HTML pages in a single file, with a policy that forbids the browser to load other files."""

import base64
import hashlib
import html

MARKED_WORDS = """
:root { color-scheme: light dark; --back: #ffffff; --front: #1a1a1a; --closed: #595959;
  --shade: 0 114 178; --line: #0072b2; --other: #a33c00; --rule: #d5d5d5; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181d; --front: #f2f2f2; --closed: #a6a6a6; --shade: 86 180 233;
    --line: #56b4e9; --other: #ffb37a; --rule: #3a4048; } }
body { background: var(--back); color: var(--front); margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; line-height: 1.3; overflow-wrap: anywhere; }
.text { overflow-wrap: anywhere; }
.w { background: rgb(var(--shade) / calc(var(--a, 0) * 0.5)); border-radius: 0.2em;
  padding: 0.1em 0.15em; }
.closed { color: var(--closed); text-decoration: line-through; }
"""
"""The style of texts with words that are closed, or shaded by their attention `--a`."""


def render_page(title: str, body: str, style: str, *, script: str = "", css_class: str = "") -> str:
    """Returns an HTML page; with a `script` its `body` must not have `style` attributes."""
    # A policy can allow style attributes only if it allows all style elements as well.
    styles = f"'{_digest(style)}'" if script else "'unsafe-inline'"
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    icon = '\n<link rel="icon" href="data:,">' if script else ""
    images = "img-src data:; " if script else ""
    policy = f"default-src 'none'; {scripts}style-src {styles}; {images}"
    opening = f'<body class="{css_class}">' if css_class else "<body>"
    module = f'\n<script type="module">{script}</script>' if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>{icon}
<style>{style}</style>
</head>
{opening}
{body}{module}
</body>
</html>
"""


def _digest(text: str) -> str:
    # A browser runs a script, or uses a style, only if its hash is in the policy.
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
