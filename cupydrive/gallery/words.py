"""What the pages of a gallery say of an entry and its clips: names, players, settings, and means with their intervals."""

import math

from cupydrive.drawing.frames import players_in_words

KINDS = {  # what a clip is called that has no title of its own
    "beside": "Side by side",
    "random": "Random",
    "heuristic": "Heuristic",
    "trained": "Trained",
    "longer": "Trained longer",
    "mosaic": "Trained, many starts",
    "general": "Trained, against a rule",
}
FIGURES = {"length": "length, steps"}  # what figures of every environment are called; of others it says so itself


def learnt(entry):
    """Return the settings of each policy that has learnt, a line each."""
    return [f"{name}: {how}" for name, how in entry["training"]["policies"].items() if how != "heuristic"]


def told(entry):
    """Return what an environment is, and how to read its figures."""
    return " ".join(entry[key] for key in ("summary", "reading") if key in entry)


def parameters(entry):
    """Return the parameters that differ from the defaults, by their names, as text; empty if none does."""
    return ", ".join(f"{key} {value}" for key, value in entry["changed"].items())


def curve_and_means(entry):
    """Return in a sentence what a learning curve is of and what the means of clips are of, whose numbers differ."""
    several = "table" in entry  # runs, whose curves have panels of both kinds
    curve = "Curves over env-steps show" if several else "The curve shows"
    means = "panels over steps of an episode, and the means of clips," if several else "the means of clips"
    return (
        f"{curve} what training logged, each copy's latest episode with actions drawn from the policy; {means} are of fresh "
        "episodes with its likeliest actions, so that the two may differ."
    )


def made(entry):
    """Return how and where the policies were trained."""
    training = entry["training"]
    rivals = [name for name, settings in training["policies"].items() if settings == "heuristic"]
    against = f" against heuristic {' and '.join(rivals)}s" if rivals else ""
    versions = ", ".join(
        f"{key} {entry['versions'][key]}" for key in ("cupydrive", "torch") if key in entry["versions"]
    )
    return (
        f"{training['env_steps']:,} env-steps in {training['num_envs']:,} environments{against}, seed {training['seed']}, on "
        f"{entry['device']}, {entry['date']}, {versions}."
    )


def called(clip):
    """Return what a clip is called: where groups are played by others than the clip's kind, who plays each."""
    if (
        "title" in clip
        or len(set(clip["players"].values())) == 1
        or clip["kind"] not in ("random", "heuristic", "trained")
    ):
        return clip.get("title", KINDS[clip["kind"]])
    who = players_in_words(clip["players"])
    return who[:1].upper() + who[1:]


def shown(clip):
    """Return what one sees in a clip, in words; who plays is not said again where the clip is called so."""
    who = players_in_words(clip["players"])
    who = "" if called(clip).lower() == who else f"{who}; "
    if "beside" in clip:
        count = 1 + len(clip["beside"])
        return f"{who}{count} runs from start {clip['first_env']} of seed {clip['seed']}"
    if clip["episodes"] > 1:
        return f"{who}the first {clip['episodes']} starts of seed {clip['seed']}"
    return f"{who}{clip['steps'][0]} steps from start {clip['first_env']} of seed {clip['seed']}"


def left_out(clip):
    """Return in a sentence which steps a clip's video leaves out; empty if it shows all."""
    return f"One step in {clip['every']} is drawn." if "every" in clip else ""


def results(entry, clip):
    """Return the mean results of the policy that plays a clip of an entry, by what they are called, as text.

    Beside a mean stands what the clip's own episode has, which may be no usual one; not where all episodes had the same.
    """
    words, found = FIGURES | entry.get("figures", {}), {}
    here = ({"length": clip["steps"][0]} if clip["episodes"] == 1 else {}) | clip.get("here", {})
    for key, (mean, half) in clip["means"].items():
        found[words.get(key, key.replace("_", " "))] = with_interval(mean, half, here.get(key))
    return found


def with_interval(mean, half, here=None):
    """Return a mean and the half of its interval as text: the half with one digit that counts, the mean as far as it goes.

    A half that begins with 1 has two digits: with one, 1.4 would lose a third. Both are written out, without powers of ten:
    -1245.3 and 23.1 are ``"-1245 ± 20"``; from 10,000 on digits that say nothing are 0: 1561283 and 13012 are ``"1,561,000 ±
    13,000"``. Where all values were equal, or the half is not known, the mean has four digits that count. Otherwise the number
    of one episode, ``here``, follows.
    """
    if not (math.isfinite(mean) and math.isfinite(half)) or half <= 0:
        text = f"{mean:.4g}"
        return f"{f'{mean:,.0f}' if 'e+' in text else text} ± {half:.1g}"
    counting = 2 if f"{half:.1e}".startswith("1") else 1
    half = float(f"{half:.{counting}g}")
    digits = counting - 1 - math.floor(math.log10(half))
    large = abs(mean) >= 1e4

    def written(value):
        return f"{round(value, digits):,.0f}" if large else f"{value:.{max(0, digits)}f}"

    if here is None:
        return f"{written(mean)} ± {written(half)}"
    own = written(here)
    own = own.rstrip("0").rstrip(".") if "." in own else own  # it is exact: 14 tags, and not 14.0
    return f"{written(mean)} ± {written(half)}; here {'0' if own == '-0' else own}"
