"""The data sets, one file for each or for each family, listed in `_all`.

A parser gives what a row holds, or raises LineError with the reason and the line is set aside. What
is wrong with a whole file (empty, cut short, damaged, longer than the limit, of another length than
the file that belongs to it) is a ValueError that names the file; a missing one, FileNotFoundError.
"""
