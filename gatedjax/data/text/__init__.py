"""Texts: tokens, vocabularies, characters, byte pairs, word vectors and running text."""
