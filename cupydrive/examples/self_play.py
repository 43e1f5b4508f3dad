"""Self-play in Connect Four: one policy learns both sides against its own past.

Saved stages of the policy then play a tournament with random moves and the heuristic. Run it with
``python -m cupydrive.examples.self_play`` to print their Elo ratings.
"""

import tempfile
from pathlib import Path

import cupydrive as cd
from cupydrive.protocols import PlayerSettings, Policies

PLIES = (
    6  # maximum number of random moves at the start, so that greedy policies do not repeat one game
)


def self_play(
    folder: Path, steps: int = 500_000, stages: int = 4, device: str = "auto"
) -> cd.Tournament:
    """Return a tournament of one policy after each stage of its training.

    Args:
        folder: Folder in which the policy of each stage is saved.
        steps: Environment steps of each stage.
        stages: Number of stages.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
    """
    settings = cd.suggested_algorithm("connect_four")
    assert isinstance(settings, cd.PPO)
    given = {"first+second": cd.OpponentPool(settings, size=4, share=0.5)}
    run = cd.train("connect_four", policies=given, steps=steps, device=device, random_plies=PLIES)
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
