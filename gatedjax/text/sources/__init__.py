"""Tables of labelled texts, from files, folders, named data sets and values in memory.

`_open` chooses the format. A format opens a `Source` of rows: `_csv` (fields in quotes), `_formats`
(JSON, fastText, a folder per class, workbooks), `_memory` (also Arrow), and `_conll` sentences.
`_table` makes records of rows, by the rule of `_labels`.
"""
