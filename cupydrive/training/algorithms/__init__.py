"""Learning algorithms: one frozen dataclass of settings each, and the learner that it makes."""

from cupydrive.training.algorithms.a2c import A2C
from cupydrive.training.algorithms.ddpg import DDPG
from cupydrive.training.algorithms.ppo import PPO
from cupydrive.training.algorithms.settings import OnPolicy

__all__ = ["A2C", "ALGORITHMS", "DDPG", "PPO", "OnPolicy"]

ALGORITHMS = {"ppo": PPO, "a2c": A2C, "ddpg": DDPG}
