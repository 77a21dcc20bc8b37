"""The Transformer: layers of an encoder and of a decoder, and the search for a target."""
