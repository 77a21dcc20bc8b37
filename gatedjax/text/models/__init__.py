"""The trained models of texts: their inputs, their outputs, and their folders."""
