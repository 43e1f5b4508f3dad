"""Statements of any form can note that they are reached, and mean the same."""

import ast
import sys
from types import SimpleNamespace

import pytest
from damaged_statements import ROOMS, ROOT, damages, draw, with_notes

TEXT = """
def f(a, b, deep):
    found = {}
    found["x"] = (a + b)[1:][
        0  # [a comment]
    ]
    if (deep or [0])[0] and len(f"{'é'}{a[0]}"): found["y"] = (b[1:2], [0][0])[0]; found["z"] = 1
    found["x"] += 1 if a[0] else 2
    return found
"""


def test_statements_with_notes_mean_the_same(monkeypatch):
    tree = ast.parse(TEXT)
    found = list(dict.fromkeys(one[0] for one in damages("f.py", TEXT, tree)))
    noted, seen, there, here = with_notes("f.py", TEXT, found), set(), {}, {}
    monkeypatch.setitem(sys.modules, "cupydrive.reached", reached := SimpleNamespace(note=seen.add))
    monkeypatch.setattr("cupydrive.reached", reached, raising=False)
    exec(TEXT, there)
    exec(noted, here)
    assert here["f"]([1, 2], [3, 4], [5]) == there["f"]([1, 2], [3, 4], [5])
    assert seen == set(range(len(found))) and len(found) > 12
    with pytest.raises(LookupError, match="has no longer"):
        with_notes("f.py", "def f(): pass", found)


@pytest.mark.full
def test_every_statement_of_the_package_can_note_that_it_is_reached():
    for room in ROOMS:
        for path in sorted((ROOT / "cupydrive" / room).rglob("*.py")):
            file, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
            with_notes(file, text, [one[0] for one in damages(file, text, ast.parse(text))])


def test_kinds_of_damages_are_drawn_in_turn():
    assert [damage.kind for damage in draw(4, 0)] == ["dropped", "dropped", "inverted", "shifted"]
