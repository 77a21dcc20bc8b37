"""HTML pages that are one file: nothing is loaded, and a policy tells the browser so."""

import base64
import hashlib
import html


def render_page(
    title: str, body: str, style: str, *, script: str = "", css_class: str = "", lang: str = "en"
) -> str:
    """Returns a page that needs nothing but a browser.

    Args:
      title: text, which is escaped.
      body: HTML, of which only a page without a script may have `style` attributes.
      style: CSS.
      script: a module of JavaScript that runs after the body is read.
      css_class: class of the body element.
      lang: language of the page.
    """
    # a policy allows style attributes only together with every style element
    styles = f"'{_digest(style)}'" if script else "'unsafe-inline'"
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    icon = '\n<link rel="icon" href="data:,">' if script else ""
    images = "img-src data:; " if script else ""
    policy = f"default-src 'none'; {scripts}style-src {styles}; {images}"
    opening = f'<body class="{css_class}">' if css_class else "<body>"
    module = f'\n<script type="module">{script}</script>' if script else ""
    return f"""<!doctype html>
<html lang="{html.escape(lang)}">
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
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
