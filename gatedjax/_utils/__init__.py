"""Helpers for all packages: files, terminals, limits, numbers and messages."""
