"""What stays equal while the house is rebuilt: every test compares with a committed file.

`golden/NAME.json` holds what `test_NAME.py` finds with its `found()`. A difference is a change that
a stranger would see: of results, cells, bits, names, parameter paths, formats or commands. Where
it is meant, the files are written anew, and their diff says what became of what:

    python -m tests.equality            all of them
    python -m tests.equality cells      only golden/cells.json
    pytest tests/equality -m "slow or not slow"
"""
