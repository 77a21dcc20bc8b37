"""The training of a model on labelled texts.

`_fit` reads and splits the texts, and calls a learner: that of a `_network`, or one of those
`_without_network`, whose stages `_stages` compares and measures: `choose_share` chooses the share.
`_rivals` are the simple models in the report.
"""
