"""The data sets, one file for each or for each family, listed in `_all`.

A parser returns the content of a row, or raises LineError with the reason, and the line is set
aside. A fault of a whole file (empty, truncated, damaged, longer than the limit, of another length
than its companion) raises a ValueError that names the file; a missing file, FileNotFoundError.
"""
