"""The run that others are compared with."""

import pytest

from tests.training._tiny import run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, run(workdir)
