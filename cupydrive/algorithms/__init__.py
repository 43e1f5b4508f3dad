"""Learning algorithms: one frozen dataclass of settings each, and the learner that it makes."""

from cupydrive.algorithms.a2c import A2C
from cupydrive.algorithms.ddpg import DDPG
from cupydrive.algorithms.ppo import PPO
from cupydrive.algorithms.pqn import PQN
from cupydrive.algorithms.settings import OnPolicy

__all__ = ["A2C", "ALGORITHMS", "DDPG", "PPO", "PQN", "OnPolicy"]

ALGORITHMS = {"ppo": PPO, "a2c": A2C, "pqn": PQN, "ddpg": DDPG}
