"""Self-play in Connect Four: one policy learns both sides against its own past. Saved stages of it
then play a tournament with random moves and the heuristic, and their Elo ratings are printed.

    python -m cupydrive.examples.self_play
"""

import tempfile
from pathlib import Path

import cupydrive as cd
from cupydrive.protocols import PlayerSettings, Policies

SETTINGS = cd.PPO(  # smaller than the suggested ones, for a CPU
    hidden=(128, 128), activation="relu", learning_rate=1e-3, num_steps=64, gamma=1.0
)
PLIES = 6  # most random moves of an opening, so that greedy policies do not repeat one game


def self_play(
    folder: Path, steps: int = 500_000, stages: int = 4, device: str = "auto"
) -> cd.Tournament:
    """Return a tournament of one policy after each stage of its training.

    Args:
        folder: Where the policy of each stage is saved.
        steps: Env-steps of each stage.
        stages: Number of stages.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
    """
    given = {"first+second": cd.OpponentPool(SETTINGS, size=4, share=0.5)}
    run = cd.train(
        "connect_four",
        policies=given,
        num_envs=128,
        steps=steps,
        device=device,
        random_plies=PLIES,
    )
    assert isinstance(run, cd.Run)
    players: dict[str, PlayerSettings | Policies] = {}
    for stage in range(stages):
        if stage > 0:
            cd.train(run, steps=steps)
        run.save(folder / str(stage))
        players[f"{run.step:,} steps"] = cd.FrozenPolicy(str(folder / str(stage)), greedy=True)
    players |= {"random moves": cd.RandomPolicy(), "heuristic": cd.HeuristicPolicy()}
    return cd.tournament(players, "connect_four", device=device, random_plies=PLIES)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for name, rating in self_play(Path(scratch)).elo.items():
            print(f"{name:>20} {rating:6.0f}")
