"""Training: a pure step, one loop, data parallelism, and checkpoints that resume exactly.

A model takes part through the methods of `Task`, so that any network with these methods can be
trained. Read `step`, then `loop.train`, then `fit`.
"""

from gatedjax._utils.cpu import keep_freed_memory as keep_freed_memory
from gatedjax.training.checkpoint import CheckpointDamaged as CheckpointDamaged
from gatedjax.training.checkpoint import CheckpointMismatch as CheckpointMismatch
from gatedjax.training.checkpoint import CheckpointNotSaved as CheckpointNotSaved
from gatedjax.training.checkpoint import CheckpointStore as CheckpointStore
from gatedjax.training.checkpoint import average_params as average_params
from gatedjax.training.checkpoint import restore_params as restore_params
from gatedjax.training.config import OptimizerConfig as OptimizerConfig
from gatedjax.training.config import TrainConfig as TrainConfig
from gatedjax.training.config import eval_params as eval_params
from gatedjax.training.config import make_optimizer as make_optimizer
from gatedjax.training.config import params_ema as params_ema
from gatedjax.training.data import replay as replay
from gatedjax.training.distributed import DistributedConfig as DistributedConfig
from gatedjax.training.distributed import ProcessMismatch as ProcessMismatch
from gatedjax.training.distributed import initialize as initialize
from gatedjax.training.fit import evaluate as evaluate
from gatedjax.training.fit import fit as fit
from gatedjax.training.lanes import fit_lanes as fit_lanes
from gatedjax.training.lanes import lanes_of as lanes_of
from gatedjax.training.loop import FitResult as FitResult
from gatedjax.training.loop import NonFiniteError as NonFiniteError
from gatedjax.training.loop import StoppedBySignal as StoppedBySignal
from gatedjax.training.metrics import Ratio as Ratio
from gatedjax.training.metrics import merge as merge
from gatedjax.training.metrics import to_floats as to_floats
from gatedjax.training.parallel import Parallel as Parallel
from gatedjax.training.parallel import fsdp_rule as fsdp_rule
from gatedjax.training.parallel import make_parallel as make_parallel
from gatedjax.training.step import TrainState as TrainState
from gatedjax.training.step import init_state as init_state
from gatedjax.training.step import make_train_step as make_train_step
from gatedjax.training.step import step_rngs as step_rngs
from gatedjax.training.task import Carried as Carried
from gatedjax.training.task import Task as Task
from gatedjax.training.task import objective as objective
from gatedjax.training.workdir import WorkdirBusy as WorkdirBusy
from gatedjax.training.workdir import WorkdirLost as WorkdirLost
