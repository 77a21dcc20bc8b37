"""Labelled texts as numbers: tokens, vocabulary, the split, and texts that occur more than once."""
