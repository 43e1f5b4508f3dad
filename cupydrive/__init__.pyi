"""Public names of ``cupydrive`` and their modules.

``__init__.py`` reads this file and imports a module on first use.
"""

from cupydrive.algorithms import A2C as A2C
from cupydrive.algorithms import DDPG as DDPG
from cupydrive.algorithms import PPO as PPO
from cupydrive.algorithms import PQN as PQN
from cupydrive.algorithms import OnPolicy as OnPolicy
from cupydrive.algorithms.architecture import GRU as GRU
from cupydrive.algorithms.architecture import LSTM as LSTM
from cupydrive.algorithms.architecture import Conv as Conv
from cupydrive.algorithms.architecture import MinGRU as MinGRU
from cupydrive.algorithms.architecture import Network as Network
from cupydrive.algorithms.pool import OpponentPool as OpponentPool
from cupydrive.checks.checker import check as check
from cupydrive.cli.scaffold import new as new
from cupydrive.envs import names as names
from cupydrive.envs import register as register
from cupydrive.errors import ActionError as ActionError
from cupydrive.errors import CompileError as CompileError
from cupydrive.errors import CupydriveError as CupydriveError
from cupydrive.errors import CupydriveWarning as CupydriveWarning
from cupydrive.errors import DataError as DataError
from cupydrive.errors import DeviceError as DeviceError
from cupydrive.errors import KernelFault as KernelFault
from cupydrive.errors import LostProcessError as LostProcessError
from cupydrive.errors import MemoryLimitError as MemoryLimitError
from cupydrive.errors import MissingDataError as MissingDataError
from cupydrive.errors import NotFiniteError as NotFiniteError
from cupydrive.errors import OrderError as OrderError
from cupydrive.errors import ParameterError as ParameterError
from cupydrive.errors import RenderError as RenderError
from cupydrive.errors import SnapshotError as SnapshotError
from cupydrive.errors import SpecError as SpecError
from cupydrive.errors import TrainingError as TrainingError
from cupydrive.errors import UnknownEnvironmentError as UnknownEnvironmentError
from cupydrive.errors import UnknownEpisodeError as UnknownEpisodeError
from cupydrive.errors import UnknownFieldError as UnknownFieldError
from cupydrive.errors import UnknownParameterError as UnknownParameterError
from cupydrive.errors import UnregisteredEnvironmentError as UnregisteredEnvironmentError
from cupydrive.executors.about import info as info
from cupydrive.executors.python_kernels import PythonKernels as PythonKernels
from cupydrive.experiments.population import Population as Population
from cupydrive.experiments.population import interquartile_mean as interquartile_mean
from cupydrive.experiments.population import load as load
from cupydrive.experiments.sweep import Sweep as Sweep
from cupydrive.experiments.sweep import sweep as sweep
from cupydrive.experiments.tournament import Tournament as Tournament
from cupydrive.experiments.tournament import tournament as tournament
from cupydrive.experiments.train import train as train
from cupydrive.playing.evaluation import difference as difference
from cupydrive.playing.evaluation import evaluate as evaluate
from cupydrive.playing.players import HeuristicPolicy as HeuristicPolicy
from cupydrive.playing.players import RandomPolicy as RandomPolicy
from cupydrive.playing.recording import Recording as Recording
from cupydrive.profiling.profile import profile as profile
from cupydrive.profiling.tuner import best_num_envs as best_num_envs
from cupydrive.profiling.tuner import tune as tune
from cupydrive.rendering.play import play as play
from cupydrive.rendering.video import Video as Video
from cupydrive.rendering.video import render as render
from cupydrive.rendering.viewer import view as view
from cupydrive.simulation.make import make as make
from cupydrive.simulation.snapshots import Snapshot as Snapshot
from cupydrive.simulation.trajectory import Trajectory as Trajectory
from cupydrive.simulation.vector import VectorEnv as VectorEnv
from cupydrive.spec import Display as Display
from cupydrive.spec import EnvSpec as EnvSpec
from cupydrive.spec import Field as Field
from cupydrive.spec import Group as Group
from cupydrive.spec import Observation as Observation
from cupydrive.spec import Reference as Reference
from cupydrive.spec import StepResult as StepResult
from cupydrive.spec import Table as Table
from cupydrive.spec import nearest_decision as nearest_decision
from cupydrive.spec import param as param
from cupydrive.training.config import TrainConfig as TrainConfig
from cupydrive.training.frozen import FrozenPolicy as FrozenPolicy
from cupydrive.training.policy_check import check_policy as check_policy
from cupydrive.training.run import Run as Run
from cupydrive.training.suggestions import suggested_algorithm as suggested_algorithm

__version__: str
__all__: list[str]

def load_ipython_extension(ipython: object) -> None: ...
