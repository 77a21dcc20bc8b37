"""The answers of all trained models, as JSON, for a terminal and as a page.

A prediction and its JSON are in `_prediction`; `_explain` makes an `Explanation`, which
`_explanation` describes in JSON, sentences and tables, and `_page` shows in a terminal and as a
page, which marks the words that are read in `_mark_words`. `_evaluation` measures a model on
labelled texts, `_leak` the effect of unread words; `_report` shows metrics, and `_words` the words
of a lexicon.
"""
