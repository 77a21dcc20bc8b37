"""The Transformer: layers of encoder and decoder, and the search for the best target."""
