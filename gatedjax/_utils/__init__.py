"""Helpers that every package may use: files, terminals, limits, numbers and messages."""
