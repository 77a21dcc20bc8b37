"""Encoded examples as columns, and batches of them by step."""
