"""The pages of a gallery, from what ``gallery.json`` says: ``index.html``, and ``README.md`` for code hosts."""

import html
import re
from pathlib import Path
from string import Template
from urllib.parse import quote

from cupydrive.drawing.frames import players_in_words
from cupydrive.inputs.files import write_atomically

TEMPLATE = Path(__file__).resolve().parent / "page.html.txt"
KINDS = {
    "random": "Random",
    "heuristic": "Heuristic",
    "trained": "Trained",
    "mosaic": "Trained, many starts",
    "general": "Against those it has not trained with",
    "beside": "Side by side",
}


def write_pages(out, entries):
    """Write ``index.html`` and ``README.md`` into the gallery's folder.

    Args:
        out: Folder.
        entries: What ``gallery.json`` says of each environment, by name.
    """
    out = Path(out)
    write_atomically(out / "index.html", page(entries).encode())
    write_atomically(out / "README.md", readme(entries).encode())


def page(entries):
    """Return ``index.html``."""
    links = "\n".join(f'<a href="#{name}">{name}</a>' for name in map(html.escape, entries))
    sections = "\n".join(section(name, entry) for name, entry in entries.items())
    episodes = " or ".join(sorted({f"{c['episodes_of_means']:,}" for e in entries.values() for c in e["clips"]}))
    return Template(TEMPLATE.read_text()).substitute(links=links, sections=sections, episodes=episodes)


def section(name, entry):
    """Return the part of one environment."""
    clips = "\n".join(figure(name, clip) for clip in entry["clips"])
    name, curve = html.escape(name), html.escape(quote(entry["curve"]))
    training, changed = entry["training"], parameters(entry)
    return f"""<section aria-labelledby="{name}">
<h2 id="{name}">{name}</h2>
<p>{html.escape(entry["summary"])}{html.escape(changed)}</p>
<div class="clips">
{clips}
<figure class="wide"><img src="{curve}" alt="Learning curve of {name}" loading="lazy">
<figcaption><h3>Learning curve</h3><p>{html.escape(made(entry))}</p>
<code>{html.escape(training["command"])}</code></figcaption></figure>
</div>
</section>"""


def parameters(entry):
    """Return the parameters that differ from the defaults, in words."""
    changed = ", ".join(f"{key} {value}" for key, value in entry["changed"].items())
    return f" Here: {changed}." if changed else ""


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


def figure(name, clip):
    """Return one clip with what it shows and the command that draws it."""
    width, height = (int(pixels) for pixels in clip["size"])
    title = KINDS[clip["kind"]]
    video, still = (html.escape(quote(clip[key])) for key in ("video", "poster"))
    label = html.escape(f"{name}: {title.lower()}")
    means = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in results(clip).items())
    return f"""<figure><div class="stage"><video src="{video}" poster="{still}"
width="{width}" height="{height}" loop muted playsinline preload="metadata" aria-label="{label}"></video>
<button type="button" aria-label="Play {label}">&#9654;</button></div>
<figcaption><h3>{title}</h3><p>{html.escape(shown(clip))}</p><dl>{means}</dl>
<code>{html.escape(clip["command"])}</code></figcaption></figure>"""


def shown(clip):
    """Return what one sees in a clip, in words."""
    who = players_in_words(clip["players"])
    if "beside" in clip:
        count = 1 + len(clip["beside"])
        return f"{who}; {count} runs from start {clip['first_env']} of seed {clip['seed']}"
    if clip["episodes"] > 1:
        return f"{who}; the first {clip['episodes']} starts of seed {clip['seed']}"
    return f"{who}; {clip['steps'][0]} steps from start {clip['first_env']} of seed {clip['seed']}"


def results(clip):
    """Return the mean results of the policy that plays a clip, by name, as text."""
    return {key: f"{mean:.4g} ± {half:.1g}" for key, (mean, half) in clip["means"].items()}


def readme(entries):
    """Return ``README.md``: small animated pictures, which code hosts show."""
    lines = [
        "# Gallery",
        "",
        "Random, heuristic and trained policies from the same start. `index.html` shows them as video; `make gallery` makes all"
        " of it anew, and the command below a clip draws that clip again.",
    ]
    for name, entry in entries.items():
        clips, called = entry["clips"], markdown(name)
        commands = [
            " ".join(command.split()) for command in (*(c["command"] for c in clips), entry["training"]["command"])
        ]
        lines += ["", f"## {called}", "", markdown(entry["summary"] + parameters(entry)), ""]
        lines += ["| " + " | ".join(KINDS[c["kind"]] for c in clips) + " |", "|" + "---|" * len(clips)]
        lines += [
            "| " + " | ".join(f"![{called}, {KINDS[c['kind']].lower()}]({quote(c['preview'])})" for c in clips) + " |"
        ]
        for clip in clips:
            means = ", ".join(f"{key} {value}" for key, value in results(clip).items())
            words = f"{shown(clip)}. Means of {clip['episodes_of_means']:,} episodes: {means}."
            lines += ["", f"{KINDS[clip['kind']]}: {markdown(words)}"]
        lines += ["", *fenced(commands)]
        lines += ["", f"![Learning curve of {called}]({quote(entry['curve'])})", "", markdown(made(entry))]
    return "\n".join(lines) + "\n"


def markdown(text):
    """Return text as Markdown that shows just this text: no mark-up, HTML, link, table cell or new line begins in it."""
    text = re.sub(r"[\\`*\[\]<>|&~$]", r"\\\g<0>", " ".join(text.split()))
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within words, as in mountain_car, it marks nothing
    return re.sub(r"^(\d*)([-+=#.)])", r"\1\\\2", text)  # lists and headings begin a line


def fenced(lines):
    """Return lines of code between fences longer than any run of backticks in them."""
    longest = max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *lines, fence]
