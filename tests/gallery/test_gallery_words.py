"""What a gallery's pages say of its clips: figures by their names, as far as they are known, and of which settings they are."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import cupydrive as cd
from cupydrive.errors import SpecError
from cupydrive.gallery.build import own_numbers, planned, read_entries
from cupydrive.gallery.page import page, readme
from cupydrive.gallery.words import with_interval
from cupydrive.playing.players import Heuristic
from cupydrive.playing.recording import Recording

HERE = Path(__file__).resolve().parents[2] / "gallery"


def test_figures_are_called_what_their_environment_calls_them():
    entries = read_entries(HERE)
    for name, entry in entries.items():
        spec = cd.envs.get(name) if name in cd.names() else None
        for key in ("figures", "readable"):
            assert spec is None or entry.get(key) == spec.showcase.get(key), name
        assert all(f"<dt>{words}</dt>" in page({name: entry}) for words in entry.get("figures", {}).values()), name
    assert sum("figures" in entry for entry in entries.values()) >= 3
    for key, wrong, told in (
        ("figures", {"speed": "speed, m/s"}, "'speed'"),
        ("figures", {"tags": 3}, r"\['tags'\] = 3"),
        ("readable", "wide", r"showcase\['readable'\] = 'wide'"),
    ):
        with pytest.raises(SpecError, match=told):
            replace(cd.envs.get("tag_grid"), showcase={key: wrong})


def test_beside_each_curve_stands_why_it_may_end_at_another_number_than_the_means():
    """What training logs are latest episodes by actions that are drawn; means are of greedy ones."""
    entries = read_entries(HERE)
    for shown in (page(entries), readme(entries)):
        assert shown.count("training logged, each copy") == shown.count("likeliest actions") == len(entries)
    assert all(str(settings).startswith("PPO(") or settings == "heuristic" for entry in entries.values()
               for settings in entry["training"]["policies"].values())  # fmt: skip


def test_what_a_clip_leaves_out_and_what_its_episode_has_is_told():
    name, entry = next((name, entry) for name, entry in read_entries(HERE).items() if "table" in entry)
    first = entry["clips"][0]
    clip = {key: value for key, value in first.items() if key not in ("every", "here")} | {
        "means": {"tags": [3.5, 0.5]}
    }
    for said, extra, told in (({}, (), False), ({"every": 7, "here": {"tags": 12}}, ("; here 12",), True)):
        for shown in (page({name: entry | {"clips": [clip | said]}}), readme({name: entry | {"clips": [clip | said]}})):
            assert ("One step in 7 is drawn." in shown) is told and all(
                f"3.5 ± 0.5{text}" in re.sub("</?span>", "", shown) for text in extra
            )


@pytest.mark.parametrize(("mean", "half", "text"), [
    (1561283.2, 12345.0, "1,561,000 ± 12,000"), (12345.6, 54.3, "12,350 ± 50"),
    (785412.0, 0.0, "785,412 ± 0"), (-1244.7, 23.1, "-1245 ± 20"),
    (8692.7, 55.2, "8693 ± 60"), (262.31, 13.0, "262 ± 13"), (-77.394, 1.3567, "-77.4 ± 1.4"), (-77.394, 1.96, "-77 ± 2"),
    (9.8416, 0.0052, "9.842 ± 0.005"), (0.394, 0.0312, "0.39 ± 0.03"), (0.5, 0.0962, "0.5 ± 0.1"), (500.0, 0.0, "500 ± 0"),
    (28.2119, 0.0, "28.21 ± 0"), (float("nan"), float("nan"), "nan ± nan"), (3.0, float("inf"), "3 ± inf"),
])  # fmt: skip
def test_means_are_written_out_as_far_as_they_are_known(mean, half, text):
    assert with_interval(mean, half) == text


@pytest.mark.parametrize(("mean", "half", "here", "text"), [
    (1561283.2, 12345.0, 1929876.5, "1,561,000 ± 12,000; here 1,930,000"), (-84.9, 1.2, -77.0, "-84.9 ± 1.2; here -77"),
    (89.341, 0.009, 89.4, "89.341 ± 0.009; here 89.4"), (0.17, 0.03, -0.0, "0.17 ± 0.03; here 0"),
    (28.2, 0.0, 28.2, "28.2 ± 0"),
])  # fmt: skip
def test_beside_a_mean_stands_what_the_clips_own_episode_has(mean, half, here, text):
    assert with_interval(mean, half, here) == text


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "tag_continuous"])
def test_committed_clips_of_one_episode_tell_what_it_has(name):
    for clip in read_entries(HERE)[name]["clips"]:
        recording = Recording.load(HERE / clip["recording"])
        assert clip.get("here", {}) == own_numbers(recording, clip["means"]).get("here", {})
        assert (clip["episodes"] == 1) == ("here" in clip) and (
            "here" not in clip or clip["here"].keys() | {"length"} == clip["means"].keys()
        )


def test_committed_clips_are_of_the_settings_that_are_suggested_now():
    """What a command of the page trains anew is what its clips show; the precision is the device's choice."""
    for name, entry in read_entries(HERE).items():
        if name in cd.envs.names():
            policies, params, goal, copies = planned(cd.envs.get(name))
            said = {group: "heuristic" if isinstance(how, Heuristic) else str(how) for group, how in policies.items()}
            trained = {
                g: re.sub("precision='[a-z0-9]+'", "precision='auto'", how)
                for g, how in entry["training"]["policies"].items()
            }
            assert trained == said and entry["changed"] == params, name
            assert entry["training"]["num_envs"] == copies and 0 <= entry["training"]["env_steps"] - goal < goal / 20, (
                name
            )


def test_no_figure_on_the_page_is_a_power_of_ten():
    assert not re.search(r"\de[+-]\d", re.sub(r"<code>.*?</code>", "", page(read_entries(HERE)), flags=re.S))
