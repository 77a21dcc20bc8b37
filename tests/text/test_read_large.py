"""A file of 2 GB is read through in the memory of one record."""

import subprocess
import sys

import pytest

from tests._programs import environment

PROGRAM = """
import resource, sys
from gatedjax.text._read import Record, open_table
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
used = aside = 0
for row in open_table(sys.argv[1]):
    if isinstance(row, Record):
        used += 1
    else:
        aside += 1
print(used, aside, row.line, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) >> 10)
"""
TEXT = "a quiet , well made film of which nobody spoke ; " * 30


@pytest.mark.slow
def test_a_table_of_2_gb_takes_the_memory_of_a_record(tmp_path):
    path = tmp_path / "large.csv"
    block = (f'7,pos,"{TEXT}"\n' * 3 + f'8,neg,"{TEXT}\n{TEXT}"\n9,{TEXT}\n') * 100
    blocks = (2 << 30) // len(block) + 1
    try:
        with path.open("w") as file:
            file.write("id,label,text\n")
            for _ in range(blocks):
                file.write(block)
        assert path.stat().st_size > 2 << 30
        command = [sys.executable, "-c", PROGRAM, str(path)]
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment()
        )
    finally:
        path.unlink(missing_ok=True)
    used, aside, line, megabytes = map(int, result.stdout.split())
    assert (used, aside) == (blocks * 400, blocks * 100)
    assert line == 1 + blocks * 600
    assert megabytes < 10
