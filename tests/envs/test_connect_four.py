"""Connect Four: PettingZoo's games step by step, all 69 lines, draws, masks, illegal moves, openings,
the heuristic, and recorded positions under perfect play.
"""

import sys
from types import ModuleType

import connect_four_positions as positions
import numpy as np
import pytest
import torch
from conftest import optional

import cupydrive as cd
from cupydrive.envs import connect_four
from cupydrive.envs.connect_four import PLAYERS
from cupydrive.errors import ActionError

GAMES = 500  # with each parameter
AGENTS = "player_0", "player_1"  # PettingZoo's names


def make(num_envs, board=None, **params):
    """Return the environment on a CPU, and its observation and info, with discs (N, 2, 6, 7)."""
    env = cd.make("connect_four", num_envs, device="cpu", **params)
    obs, info = env.reset(seed=0)
    if board is not None:
        states = connect_four.packed(board)
        obs, info = env.set_state(**{player: states[player] for player in PLAYERS})
    return env, obs, info


def both(column):
    """Return actions of both players from columns (N,)."""
    column = torch.as_tensor(np.asarray(column), dtype=torch.int32)[:, None]
    return {player: column for player in PLAYERS}


@pytest.fixture
def theirs(monkeypatch):
    """Return a function that makes a game of PettingZoo, whose import needs pygame only to draw."""
    optional("pettingzoo")
    monkeypatch.setitem(sys.modules, "pygame", ModuleType("pygame"))
    from pettingzoo.classic import connect_four_v3

    return connect_four_v3.env


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("masks", [True, False])
def test_random_games_are_pettingzoos_step_by_step(theirs, masks):
    """Waiting players send actions, too, which change nothing."""
    rng = np.random.default_rng(4 + masks)
    games = [theirs() for _ in range(GAMES)]
    for game in games:
        game.reset()
    env, obs, info = make(GAMES, masks=masks)
    playing, ends = set(range(GAMES)), []
    for ply in range(42):
        mover = PLAYERS[ply % 2]
        chosen = {player: rng.integers(0, 7, GAMES) for player in PLAYERS}
        if masks:
            for player in PLAYERS:
                chance = rng.random((GAMES, 7)) * info["action_mask"][player][:, 0].numpy()
                chosen[player] = chance.argmax(1)
        for k in playing:
            for player, agent in zip(PLAYERS, AGENTS, strict=True):
                seen = games[k].observe(agent)
                np.testing.assert_array_equal(obs[player][k, 0], seen["observation"])
                if masks and player == mover:
                    allowed = info["action_mask"][player][k, 0]
                    np.testing.assert_array_equal(allowed, seen["action_mask"])
        actions = {p: torch.from_numpy(chosen[p].astype(np.int32))[:, None] for p in PLAYERS}
        obs, reward, terminated, truncated, info = env.step(actions, autoreset=False)
        for k in sorted(playing):
            game = games[k]
            game.step(int(chosen[mover][k]))
            want = [game.rewards[agent] for agent in AGENTS]
            assert [float(reward[player][k]) for player in PLAYERS] == want
            assert bool(terminated[k]) == any(game.terminations.values())
            assert [bool(info["active"][player][k]) for player in PLAYERS] == [
                player == mover for player in PLAYERS
            ]
            if terminated[k]:
                playing.remove(k)
                ends.append(tuple(want))
        if not playing:
            break
    kinds = {(1, -1), (-1, 1)} | (set() if masks else {(-1, 0), (0, -1)})
    assert not playing and set(ends) - {(0, 0)} == kinds and not truncated.any()


def lines():
    """Return the four cells (row from the bottom, column) of every line, from their definition."""
    cells = [(row, column) for row in range(6) for column in range(7)]
    ways = (0, 1), (1, 0), (1, 1), (1, -1)
    found = [
        [(r + k * up, c + k * right) for k in range(4)] for r, c in cells for up, right in ways
    ]
    return [line for line in found if set(line) <= set(cells)]


def test_each_of_the_69_lines_wins_with_its_last_disc_and_three_do_not():
    """Either player completes it at either cell that may be the last one. Three of the discs and
    one of the opponent's are no line.
    """
    boards, columns, wins, movers = [], [], [], []
    assert len(lines()) == 69
    for line in lines():
        for last in line:
            above = {cell for cell in line if cell[1] == last[1] and cell[0] > last[0]}
            for mover in (0, 1) if not above else ():
                for foreign in (None, *(cell for cell in line if cell != last)):
                    board = np.zeros((2, 6, 7), bool)  # rows from the bottom
                    board[1 - mover, : last[0], last[1]] = True
                    for cell in set(line) - {last}:
                        board[:, cell[0], cell[1]] = False
                        board[mover if cell != foreign else 1 - mover, cell[0], cell[1]] = True
                    # One disc more, where it touches nothing, makes it the mover's turn.
                    spare = next(c for c in range(7) if not board[:, :, c].any() and c != last[1])
                    board[1 - mover, 5, spare] = board.sum() % 2 != mover
                    boards.append(board[:, ::-1])
                    columns.append(last[1])
                    wins.append(foreign is None)
                    movers.append(mover)
    env, *_ = make(len(boards), np.array(boards))
    _, reward, terminated, _, _ = env.step(both(columns), autoreset=False)
    wins, signs = np.array(wins), 1 - 2 * np.array(movers)
    np.testing.assert_array_equal(terminated, wins)
    np.testing.assert_array_equal(reward["first"][:, 0], wins * signs)
    np.testing.assert_array_equal(reward["second"][:, 0], wins * -signs)


def full_board():
    """Return discs (2, 6, 7) of a drawn game; pairs of columns alternate row by row."""
    own = (np.arange(7) // 2 + np.arange(6)[:, None]) % 2 == 0
    return np.stack([own, ~own])


def test_a_full_board_without_a_line_is_a_draw_and_before_it_the_game_goes_on():
    """The last disc is the second player's."""
    board = full_board()
    for column in range(2, 4):  # where the topmost discs are the second player's
        assert board[1, 0, column]
    board[:, 0, 2] = False
    env, _, info = make(1, board[None])
    assert info["action_mask"]["second"][0, 0].tolist() == [k == 2 for k in range(7)]
    _, reward, terminated, _, info = env.step(both([2]), autoreset=False)
    assert terminated.all() and not any(reward[player].any() for player in PLAYERS)
    board[:, 0, 1] = False
    env, *_ = make(1, board[None])
    _, reward, terminated, _, _ = env.step(both([2]), autoreset=False)
    assert not terminated.any()


@pytest.mark.parametrize("masks", [True, False])
def test_random_rollouts_make_illegal_moves_only_without_masks(masks):
    env, *_ = make(200, masks=masks)
    batch = env.rollout(100)
    over = batch.terminated
    illegal = batch.episode["illegal_moves"][over]
    assert illegal.any() != masks and illegal.max() <= 1
    draws = batch.episode["draws"][over] == 1
    won, illegal = ~draws & (illegal == 0), illegal == 1
    first, second = (batch.reward[player][..., 0][over] for player in PLAYERS)
    assert (first[won] == -second[won]).all() and (abs(first[won]) == 1).all()
    assert not first[draws].any() and not second[draws].any()
    assert (first[illegal] + second[illegal] == -1).all()
    assert (torch.minimum(first, second)[illegal] == -1).all()
    if masks:
        full = ~batch.obs["first"][:, :, 0, 0].bool().any(-1)  # (T + 1, N, 7), by the top row
        for player in PLAYERS:
            assert torch.equal(batch.action_mask[player][:, :, 0].bool(), full)


def test_a_move_into_a_full_column_is_an_error_with_masks_and_loses_without():
    board = full_board()
    board[:, :5, 1:] = False  # column 0 is full, the others have one disc: 12, the first one's turn
    env, *_ = make(1, board[None])
    with pytest.raises(ActionError, match=r"which its mask forbids. Allowed: 1, 2, 3, 4, 5, 6"):
        env.step(both([0]))
    env, *_ = make(1, board[None], masks=False)
    _, reward, terminated, _, _ = env.step(both([0]), autoreset=False)
    assert terminated.all()
    assert [float(reward[player]) for player in PLAYERS] == [-1.0, 0.0]


def test_openings_have_uniformly_many_random_moves_and_the_turn_follows():
    """Chi-square statistics below their 99.9 % quantiles: 22.46 of 6 degrees of freedom."""
    n = 14_000
    env, obs, _ = make(n, random_plies=6)
    own = obs["first"][:, 0].bool()
    discs = own.sum((1, 2, 3))
    for counts in (torch.bincount(discs, minlength=7), own.any(-1).sum((0, 1))):
        expected = counts.sum() / 7
        assert len(counts) == 7 and ((counts - expected) ** 2 / expected).sum() < 22.46
    of_players = own.sum((1, 2))
    assert torch.equal(of_players[:, 0] - of_players[:, 1], discs % 2)
    *_, info = env.step(both(np.full(n, 3)), autoreset=False)
    for k, player in enumerate(PLAYERS):
        assert torch.equal(info["active"][player][:, 0].bool(), discs % 2 == k)


def test_the_heuristic_wins_else_blocks_else_takes_the_centre():
    """It is compared with trying each move on boards of any kind."""
    spec, params, columns = connect_four.SPEC, connect_four.Params(), (3, 2, 4, 1, 5, 0, 6)
    states = spec.reference.sample_states(params, np.random.default_rng(2), 300)
    obs = connect_four.observe(params, states, np.zeros(300)).obs
    others = {
        (row, column): [set(line) - {(row, column)} for line in lines() if (row, column) in line]
        for row in range(7)
        for column in range(7)
    }
    kinds = set()
    for player in PLAYERS:
        (given,) = spec.heuristic(params, torch.from_numpy(obs[player].copy()), player)
        for k, board in enumerate(obs[player][:, 0, ::-1]):  # rows from the bottom
            height = board.any(2).sum(0)
            wanted = {}
            for kind, side in (("win", 0), ("block", 1)):
                for column in columns:
                    completed = others[height[column], column]
                    if any(all(board[*cell, side] for cell in three) for three in completed):
                        wanted.setdefault(kind, column)
            for column in columns:
                if height[column] < 6:
                    wanted.setdefault("centre", column)
            if wanted:
                kind = next(kind for kind in ("win", "block", "centre") if kind in wanted)
                kinds.add(kind)
                assert int(given[k, 0]) == wanted[kind]
    assert kinds == {"win", "block", "centre"}


def test_recorded_positions_are_2000_of_which_some_move_loses_value():
    states, optimal = positions.recorded()
    board = connect_four.discs(states)
    discs = board.sum((1, 2, 3))
    assert states.shape == (2000,) and optimal.shape == (2000, 7)
    assert set(discs) == set(range(12, 31)) and np.ptp(np.bincount(discs)[12:]) <= 1
    open_columns = ~board.any(1)[:, 0]
    assert (optimal <= open_columns).all()
    assert optimal.any(1).all() and (optimal != open_columns).any(1).all()
    images = {min(b.tobytes(), b[:, :, ::-1].tobytes()) for b in board}
    assert len(images) == 2000
    rows, columns = np.moveaxis(np.array(lines()), -1, 0)
    assert not board[:, :, ::-1][:, :, rows, columns].all(-1).any()


@pytest.mark.quick(1)
@pytest.mark.parametrize("discs", [30, 29, 28, 27, 26, 25, 24])
def test_late_positions_have_the_values_of_a_plain_search(discs):
    """All values, by the fast solver, and recorded moves: five positions each."""
    states, optimal = positions.recorded()
    board = connect_four.discs(states)
    chosen = np.flatnonzero(board.sum((1, 2, 3)) == discs)[:5]
    for k, values in zip(chosen, positions.move_values(states[chosen]), strict=True):
        assert values.tolist() == positions.plain_values(board[k])
        np.testing.assert_array_equal(values == values.max(), optimal[k])
