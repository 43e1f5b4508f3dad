"""The pages of a gallery, from what ``gallery.json`` says: ``index.html``, and ``README.md`` for code hosts."""

import html
import re
from pathlib import Path
from string import Template
from urllib.parse import quote

from cupydrive.gallery.words import (
    KINDS,
    called,
    curve_and_means,
    learnt,
    left_out,
    made,
    parameters,
    results,
    shown,
    told,
)
from cupydrive.inputs.files import write_atomically
from cupydrive.inputs.sources import sources

TEMPLATE = Path(__file__).resolve().parent / "page.html.txt"
CHECKOUT = TEMPLATE.parents[2]  # of the project, if this is no installed package
THREE_LINES = (
    "import cupydrive as cd",
    "",
    'run = cd.train("cartpole", steps=500_000)  # seconds',
    'run.render("cartpole.mp4")',
)
CHAPTERS = {  # in their order on the page
    "Many agents": "Taggers chase, runners flee, and both can learn.",
    "Sciences": "Rules and data of published models: chemistry, climate and trade, a pandemic.",
    "Classics": "Small problems of control that every library has, by Gymnasium's rules.",
}
PARAMETERS = "Parameters other than the defaults"
WIDE = {"beside": 640}  # clips that take the page's whole width, and pixels that they have on a narrow page
COLUMN = 136  # pixels that a table's column has at least; where the page is narrower the table scrolls
BROAD = 900  # pixels; clips that are wider stand two in a row, others three
# Pictures of measurements, where a gallery has them: file, what it shows, and how to read it.
CHARTS = (
    ("speed.png", "Random rollouts on a GPU", "Each task in a group of its own, beside the fastest of each other library. The "
     "factor is ours over theirs, with as many copies, or the nearest number that was measured. Ours keeps every step of every "
     "copy; gymnax keeps none, WarpDrive the last. How many steps a launch makes differs from bar to bar: below, "
     "'More steps in a launch' shows what that changes."),
    ("speed-training.png", "Training on a GPU", "Whole iterations with learning, each task in a group of its own: PPO beside "
     "PPO in JAX, A2C beside that of WarpDrive. The factor is ours by kernels over theirs, or over ours by torch. Kernels "
     "multiply in bfloat16 ('tensor'), or in float32 with the same bits on CPU and GPU ('exact'); JAX and torch in float32, "
     "JAX by its default precision."),
    ("scaling-envs.png", "More copies", "CartPole, 10 to 10,000,000 copies; other libraries where they were measured."),
    ("speed-cpu.png", "On two cores", "Rollouts in one launch beside gymnax, single steps beside Gymnasium and EnvPool."),
    ("scaling-agents.png", "More agents on a grid", "Grid Tag, 2 to 10,000 agents in each of 2,000 copies."),
    ("scaling-agents-continuous.png", "More agents on a plane", "Continuous Tag, 2 to 10,000 agents in each of 200 copies."),
    ("scaling-steps.png", "More steps in a launch", "10,000 copies of CartPole, 1 to 1,024 steps in a launch."),
    ("convergence-seconds.png", "How soon it learns", "Return over seconds of training, after set-up and compiling, for 10 to "
     "100,000 copies by equal settings; ten seeds each. An environment counts as solved from the dashed line on. An "
     "iteration has as many steps of each copy and as many gradient steps, however many copies there are; CartPole needs about "
     "as many iterations with 100 copies as with 100,000, where each takes longer, so that 100 solve it in less time."),
    ("convergence-env-steps.png", "From how much experience", "The same runs over env-steps, those of all copies together."),
)  # fmt: skip


LONG = ("convergence-seconds.png", "convergence-env-steps.png")  # charts of two panels beside each other


def chapter_of(spec, groups):
    """Return the chapter of an environment: those on data of others are sciences, those of several groups many agents."""
    if spec.name in sources():
        return "Sciences"
    return "Many agents" if len(groups) > 1 else "Classics"


def ordered(entries):
    """Return the entries by chapter, in the order of the page; within one by name, those with a clip of several runs first."""
    found = {}
    for chapter in (*CHAPTERS, *{e.get("chapter", "Classics") for e in entries.values()} - {*CHAPTERS}):
        names = [name for name, entry in entries.items() if entry.get("chapter", "Classics") == chapter]
        wide = {name for name in names if any(clip["kind"] in WIDE for clip in entries[name]["clips"])}
        if names:
            found[chapter] = {name: entries[name] for name in sorted(names, key=lambda name: (name not in wide, name))}
    return found


def charts_in(out):
    """Return those of ``CHARTS`` that a gallery's folder has."""
    return [chart for chart in CHARTS if (Path(out) / chart[0]).is_file()]


def write_pages(out, entries):
    """Write ``index.html`` and ``README.md`` into the gallery's folder.

    Args:
        out: Folder.
        entries: What ``gallery.json`` says of each environment, by name.
    """
    out = Path(out)
    write_atomically(out / "index.html", page(entries, charts_in(out), home_of(out)).encode())
    write_atomically(out / "README.md", readme(entries, charts_in(out), home_of(out)).encode())


def home_of(out):
    """Return where the project lies as links of a gallery's folder see it, or None: the folder is not the project's own."""
    ours = Path(out).resolve().parent == CHECKOUT and (CHECKOUT / "pyproject.toml").is_file()
    return "../" if ours else None


def page(entries, charts=(), home=None):
    """Return ``index.html``, with some of ``CHARTS``, and with links to the project if it is known where its ``home`` is."""
    chapters = ordered(entries)
    links = [
        f'<li><a href="#{slug(chapter)}">{html.escape(chapter)}</a>: '
        + ", ".join(f'<a href="#{name}">{name}</a>' for name in map(html.escape, found))
        for chapter, found in chapters.items()
    ]
    sections = [
        f'<h2 id="{slug(chapter)}">{html.escape(chapter)}</h2>\n<p>{html.escape(CHAPTERS.get(chapter, ""))}</p>\n'
        + "\n".join(section(name, entry) for name, entry in found.items())
        for chapter, found in chapters.items()
    ]
    if charts:
        links.append('<li><a href="#speed">Speed</a>')
        sections.append(
            '<h2 id="speed">Speed</h2>\n<p>An env-step is a step of a whole environment, all its agents included. Machines, '
            'versions, commands and every number: <a href="SPEED.md">SPEED.md</a>.</p>\n<div class="charts">\n'
            + "\n".join(measured(*chart) for chart in charts)
            + "\n</div>"
        )
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        links="\n".join(links),
        sections="\n".join(sections),
        episodes=episodes_of_means(entries),
        three_lines=html.escape("\n".join(THREE_LINES)),
        project="cupydrive" if home is None else f'<a href="{home}README.md">cupydrive</a>',
        more=""
        if home is None
        else f'<p>How to <a href="{home}README.md">install it</a>, and how to '
        f'<a href="{home}docs/how/watch.md">watch and keep episodes</a>.</p>',
    )
    return re.sub(r"(?<=[ >])(\d{4}-\d\d-\d\d)(?=[.,])", r"<time>\1</time>", text)  # which no line breaks


def episodes_of_means(entries):
    """Return of how many episodes the means are, in words: most entries' number, then who has another."""
    counts = [(name, clip["episodes_of_means"]) for name, entry in entries.items() for clip in entry["clips"]]
    numbers = [count for _, count in counts]
    usual = max(numbers, key=numbers.count, default=0)
    others = sorted({(name, count) for name, count in counts if count != usual})
    of_others = ", ".join(f"{count:,} in {html.escape(name)}" for name, count in others)
    return f"{usual:,} evaluation episodes" + (f" ({of_others})" if others else "")


def slug(text):
    """Return what a chapter is called in links."""
    return text.lower().replace(" ", "-")


def section(name, entry):
    """Return the part of one environment."""
    clips = in_order(entry["clips"])
    shown_first = [figure(name, entry, clip) for clip in clips if clip["kind"] in WIDE]
    others = [figure(name, entry, clip) for clip in clips if clip["kind"] not in WIDE]
    figures = "\n".join([*shown_first, *table(entry.get("table", ())), *others])
    wide = "table" in entry  # of entries of several runs, whose curve has two panels a row
    broad = " broad" if all(clip["size"][0] > BROAD for clip in clips) or (wide and len(others) == 2) else ""
    columns = 2 if broad else 3
    free = columns - len(others) % columns  # of the row that the curve stands in
    look = ' class="chart"' if free == 1 else f' class="chart rest" style="--columns: {free}"'
    look = ' class="chart wide"' if wide else look
    name, curve = html.escape(name), html.escape(quote(entry["curve"]))
    folded = f"\n<details><summary>{PARAMETERS}</summary><p>{html.escape(parameters(entry))}</p></details>"
    folded = folded if parameters(entry) else ""
    code = "<br>".join(html.escape(line) for line in (*learnt(entry), entry["training"]["command"]))
    return f"""<section aria-labelledby="{name}">
<h3 id="{name}">{name}</h3>
<p>{html.escape(told(entry))}</p>{folded}
<div class="clips{broad}">
{figures}
<figure{look}><div class="scroll" tabindex="0"><img src="{curve}"
alt="Learning curve of {name}" loading="lazy"></div>
<figcaption><h4>Learning curve</h4><p>{html.escape(entry.get("learning", ""))}</p>
<p>{html.escape(curve_and_means(entry))}</p>
<details><summary>How the clips' policy was trained</summary><p>{html.escape(made(entry))}</p>
<code>{code}</code></details></figcaption></figure>
</div>
</section>"""


def table(rows):
    """Return a list of a table, whose first row and first column are titles; without rows an empty one."""
    if not rows:
        return []
    lines = [
        "<tr>"
        + f'<th scope="row">{html.escape(first)}</th>'
        + "".join(f"<td>{html.escape(x)}</td>" for x in others)
        + "</tr>"
        for first, *others in rows[1:]
    ]
    titles = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in rows[0])
    head = f'<table style="min-width: {COLUMN * len(rows[0])}px">\n<tr>{titles}</tr>\n'
    return [f'<div class="scroll" tabindex="0">{head}' + "\n".join(lines) + "\n</table></div>"]


def in_order(clips):
    """Return the clips of one environment in the order of ``KINDS``."""
    return sorted(clips, key=lambda clip: list(KINDS).index(clip["kind"]))


def measured(file, title, words):
    """Return the part of one chart."""
    words, title = html.escape(words), html.escape(title)
    kind = "chart long" if file in LONG else "chart"
    return f"""<figure class="{kind}"><div class="scroll" tabindex="0"><img src="{html.escape(quote(file))}"
alt="{title}. {words}" loading="lazy"></div>
<figcaption><h3>{title}</h3><p>{words}</p></figcaption></figure>"""


def figure(name, entry, clip):
    """Return one clip of an entry with what it shows and the command that draws it."""
    width, height = (int(pixels) for pixels in clip["size"])
    title, kind = called(clip), ' class="wide"' if clip["kind"] in WIDE else ""
    readable = WIDE[clip["kind"]] if kind else entry.get("readable", 0)
    scroll, end, least = "", "", ""
    if readable:  # on a narrower page the picture scrolls
        scroll, end, least = '<div class="scroll" tabindex="0">', "</div>", f' style="min-width: {int(readable)}px"'
    video, still = (html.escape(quote(clip[key])) for key in ("video", "poster"))
    label = html.escape(f"{name}: {title.lower()}")
    means = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{' '.join(f'<span>{html.escape(part)}</span>' for part in parted(value))}</dd>"
        for key, value in results(entry, clip).items()
    )
    means = f"<dl>{means}</dl>" if clip["kind"] != "mosaic" else ""  # those of the clip of one start
    means += f"<p>{html.escape(left_out(clip))}</p>" if left_out(clip) else ""
    return f"""<figure{kind}><div class="stage">{scroll}<video src="{video}" poster="{still}"
width="{width}" height="{height}"{least} loop muted playsinline preload="none" aria-label="{label}"></video>{end}
<button type="button" aria-label="Play {label}">&#9654;</button></div>
<figcaption><h4>{html.escape(title)}</h4>{means}
<details><summary>What it shows, and how to draw it</summary><p>{html.escape(shown(clip))}</p>
<code>{html.escape(clip["command"])}</code></details></figcaption></figure>"""


def readme(entries, charts=(), home=None):
    """Return ``README.md``: small animated pictures, which code hosts show, and some of ``CHARTS``; ``home`` as of ``page``."""
    project = "cupydrive" if home is None else f"[cupydrive]({home}README.md)"
    more = "" if home is None else f" See also [watch and keep episodes]({home}docs/how/watch.md)."
    lines = [
        "# Gallery",
        "",
        f"Random, scripted (heuristic) and trained policies in {len(entries)} environments of {project}. `index.html` shows"
        " them as video. These three lines train and render an episode:",
        "",
        *fenced(THREE_LINES, "python"),
        "",
        f"Each clip and each learning curve has the command that reproduces it. `make gallery` reproduces all of them.{more}"
        " Pictures on this page show the first seconds of an episode: the last frame first, then the steps from step 0."
        " `index.html` shows whole episodes. Means are of evaluation episodes, with their 95 % confidence intervals (±). “here”"
        " gives the value of the clip's own episode, if episodes differ. A return is the sum of an episode's rewards.",
    ]
    for chapter, found in ordered(entries).items():
        lines += ["", f"## {markdown(chapter)}", "", markdown(CHAPTERS.get(chapter, ""))]
        for name, entry in found.items():
            lines += entry_in_readme(name, entry)
    if charts:
        lines += ["", "## Speed", "", "Machines, versions, commands and every number: [SPEED.md](SPEED.md)."]
    for file, title, words in charts:
        lines += ["", f"### {markdown(title)}", "", markdown(words), "", f"![{markdown(title)}]({quote(file)})"]
    return "\n".join(lines) + "\n"


def parted(figure):
    """Return the parts of a figure between which a line may break: a mean with its interval, the clip's own number."""
    mean, *here = figure.split("; ")
    return [f"{mean};", *here] if here else [mean]


def entry_in_readme(name, entry):
    """Return the lines of one environment in ``README.md``."""
    clips, heading = in_order(entry["clips"]), markdown(name)
    commands = [" ".join(command.split()) for command in (*(c["command"] for c in clips), entry["training"]["command"])]
    lines = ["", f"### {heading}", "", markdown(told(entry))]
    lines += ["", *in_markdown(entry["table"])] if "table" in entry else []
    wide = [clip for clip in clips if clip["kind"] in WIDE]
    rows = [[clip] for clip in wide] + pairs([clip for clip in clips if clip not in wide])
    for row in rows:  # two beside each other: four would be too small to read
        titles = [inline(called(clip)) for clip in row]
        pictures = [
            f"![{heading}, {title.lower()}]({quote(c['preview'])})" for title, c in zip(titles, row, strict=True)
        ]
        lines += ["", f"| {' | '.join(titles)} |", "|" + "---|" * len(row), f"| {' | '.join(pictures)} |"]
    for kept in means_in_rows(entry, [clip for clip in clips if not ("table" in entry and "beside" in clip)]):
        lines += ["", *in_markdown(kept)]
    lines += ["", f"![Learning curve of {heading}]({quote(entry['curve'])})", ""]
    lines += [markdown(f"Curve: {entry['learning']} {curve_and_means(entry)}"), ""] * ("learning" in entry)
    lines += [
        markdown(f"Clips: {made(entry)}"),
        "",
        "<details><summary>Starts, settings, and commands to draw and train</summary>",
    ]
    lines += ["", markdown(f"{PARAMETERS}: {parameters(entry)}.")] if parameters(entry) else []
    for clip in clips:
        lines += ["", f"{markdown(called(clip))}: {markdown(shown(clip))}. {left_out(clip)}".rstrip()]
    return [
        *lines,
        "",
        *fenced([*commands, *(f"# {' '.join(line.split())}" for line in learnt(entry))]),
        "",
        "</details>",
    ]


def means_in_rows(entry, clips):
    """Return tables of the means of an environment's clips, their first row titles: one of all clips of the same metrics."""
    tables = {}
    for clip in clips:
        found = results(entry, clip)
        if clip["kind"] != "mosaic":  # whose means are those of the clip of one start
            titles = (f"means of {clip['episodes_of_means']:,} episodes", *found)
            tables.setdefault(titles, []).append([called(clip), *found.values()])
    return [[list(titles), *rows] for titles, rows in tables.items()]


def in_markdown(rows):
    """Return the lines of a Markdown table, the first row titles."""
    first, *others = [f"| {' | '.join(inline(cell) for cell in row)} |" for row in rows]
    return [first, "|" + "---|" * len(rows[0]), *others]


def pairs(things):
    """Return things two by two."""
    return [things[k : k + 2] for k in range(0, len(things), 2)]


def markdown(text):
    """Return text as Markdown that shows just this text: no mark-up, HTML, link, table cell or new line begins in it."""
    return re.sub(r"^(\d*)([-+=#.)])", r"\1\\\2", inline(text))  # lists and headings begin a line


def inline(text):
    """Return text as Markdown likewise, for where no line begins."""
    text = re.sub(r"[\\`*\[\]<>|&~$]", r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within words, as in mountain_car, it marks nothing


def fenced(lines, language=""):
    """Return lines of code between fences longer than any run of backticks in them."""
    longest = max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *lines, fence]
