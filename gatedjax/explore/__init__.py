"""The explorer, which shows gates and the effect of forcing them: a page, a widget or a file.

`gatedjax explore model` serves a page on this machine, `explorer(model)` shows it in a notebook,
and `gatedjax explore model --html page.html --text "..."` writes a page that needs no server.
"""

from gatedjax.explore._widget import explorer as explorer
