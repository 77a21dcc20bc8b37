"""See gates, force them, and see what changes: a local page, a notebook's widget, one file.

`gatedjax explore model` serves the page, `explorer(model)` shows it in a notebook, and
`gatedjax explore model --html page.html --text "..."` writes a page that needs neither.
"""

from gatedjax.explore._widget import explorer as explorer
