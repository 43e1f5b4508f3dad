"""Recurrent PPO: a GRU repeats the card that was shown three steps ago, which an MLP cannot.

The trained policy then plays one episode step by step, with its hidden state in your hands.

Run it with ``python -m cupydrive.examples.recurrent_ppo``.
"""

import torch

import cupydrive as cd

NETWORKS = {
    "MLP": cd.Network(hidden=(128,), activation="relu", shared=True),
    "GRU": cd.Network(hidden=(128,), core=cd.GRU(128), activation="relu", shared=True),
}


def trained(name: str, steps: int = 250_000, device: str = "auto") -> cd.Run:
    """Return a run of ``repeat_previous``.

    Args:
        name: Network in ``NETWORKS``.
        steps: Environment steps.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
    """
    settings = cd.suggested_algorithm("repeat_previous", network=NETWORKS[name])
    run = cd.train("repeat_previous", settings, steps=steps, device=device)
    assert isinstance(run, cd.Run)
    return run


def play(run: cd.Run) -> float:
    """Return the return of one episode."""
    env = cd.make("repeat_previous", num_envs=1, device=run.device)
    obs, _ = env.reset(seed=0)
    state, total = None, 0.0
    for _ in range(env.params.max_episode_steps):
        action, state = run.act(obs, state)
        obs, reward, terminated, truncated, _ = env.step(action)
        assert isinstance(reward, torch.Tensor)  # the environment has one group
        total += reward.item()
        if terminated or truncated:
            break
    return total


if __name__ == "__main__":
    for run in map(trained, NETWORKS):
        print(run.evaluate())
    print(f"one episode of the GRU: {play(run):.2f}")
