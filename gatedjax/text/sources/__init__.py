"""Tables of labelled texts, from files, folders, named data sets and values in memory."""
