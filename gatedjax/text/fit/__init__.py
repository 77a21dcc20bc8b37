"""Training of the models of texts: the split, the share of words, the rivals and the report."""
