"""A recipe for verify-resume: python _recipe.py --workdir W [--forget]."""

import argparse
import sys

from gatedjax.training import OptimizerConfig, TrainConfig, fit
from tests.training._tiny import Data, Tiny


class Forgetful(Data):
    """Its batches depend on what happened before, which no resume can repeat."""

    calls = 0

    def __getitem__(self, step):
        self.calls += 1
        return super().__getitem__(step + (self.calls if step < 900 else 0))


parser = argparse.ArgumentParser()
parser.add_argument("--workdir")
parser.add_argument("--forget", action="store_true")
options = parser.parse_args()
config = TrainConfig(
    num_steps=60, log_every=7, eval_every=10, checkpoint_every=4, progress=False,
    best_metric="accuracy", optimizer=OptimizerConfig(learning_rate=0.05),
)  # fmt: skip
data = Forgetful() if options.forget else Data()
sys.exit(fit(Tiny(), data, [Data()[1000]], config, options.workdir).exit_code)
