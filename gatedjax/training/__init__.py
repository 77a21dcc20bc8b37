"""Training: a pure step, one loop, data parallelism, and checkpoints that resume exactly.

A model takes part through the methods of `Task`, so that any network with these methods can be
trained.
"""

from gatedjax._utils.cpu import keep_freed_memory as keep_freed_memory
from gatedjax.training._agreement import ProcessMismatch as ProcessMismatch
from gatedjax.training._meter import NonFiniteError as NonFiniteError
from gatedjax.training._placement import fsdp_rule as fsdp_rule
from gatedjax.training.checkpoint import CheckpointDamaged as CheckpointDamaged
from gatedjax.training.checkpoint import CheckpointMismatch as CheckpointMismatch
from gatedjax.training.checkpoint import CheckpointNotSaved as CheckpointNotSaved
from gatedjax.training.checkpoint import CheckpointStore as CheckpointStore
from gatedjax.training.config import OptimizerConfig as OptimizerConfig
from gatedjax.training.config import TrainConfig as TrainConfig
from gatedjax.training.config import eval_params as eval_params
from gatedjax.training.config import make_optimizer as make_optimizer
from gatedjax.training.config import params_ema as params_ema
from gatedjax.training.distributed import DistributedConfig as DistributedConfig
from gatedjax.training.distributed import initialize as initialize
from gatedjax.training.evaluation import evaluate as evaluate
from gatedjax.training.lanes import fit_lanes as fit_lanes
from gatedjax.training.lanes import lanes_of as lanes_of
from gatedjax.training.load import average_params as average_params
from gatedjax.training.load import load_model_state as load_model_state
from gatedjax.training.load import restore_params as restore_params
from gatedjax.training.lock import WorkdirBusy as WorkdirBusy
from gatedjax.training.lock import WorkdirLost as WorkdirLost
from gatedjax.training.loop import FitResult as FitResult
from gatedjax.training.loop import StoppedBySignal as StoppedBySignal
from gatedjax.training.metrics import Ratio as Ratio
from gatedjax.training.metrics import merge as merge
from gatedjax.training.metrics import to_floats as to_floats
from gatedjax.training.parallel import Parallel as Parallel
from gatedjax.training.parallel import make_parallel as make_parallel
from gatedjax.training.replay import replay as replay
from gatedjax.training.single import fit as fit
from gatedjax.training.step import TrainState as TrainState
from gatedjax.training.step import init_state as init_state
from gatedjax.training.step import make_train_step as make_train_step
from gatedjax.training.step import step_rngs as step_rngs
from gatedjax.training.task import ModelStateTask as ModelStateTask
from gatedjax.training.task import StatefulTask as StatefulTask
from gatedjax.training.task import SummaryTask as SummaryTask
from gatedjax.training.task import Task as Task
from gatedjax.training.task import frozen_parameters as frozen_parameters
