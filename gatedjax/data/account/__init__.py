"""Accounts of the lines and texts of data sets."""
