"""A run in a process of its own: python _recipe.py --workdir W [--forget]."""

import argparse
import sys

from tests.training._tiny import SIXTY, Data, run


class Forgetful(Data):
    """Its batches depend on what happened before, which no resume can repeat."""

    calls = 0

    def __getitem__(self, step):
        self.calls += 1
        return super().__getitem__(step + self.calls)


parser = argparse.ArgumentParser()
parser.add_argument("--workdir")
parser.add_argument("--forget", action="store_true")
options = parser.parse_args()
data = Forgetful() if options.forget else Data()
sys.exit(run(options.workdir, train=data, **SIXTY).exit_code)
