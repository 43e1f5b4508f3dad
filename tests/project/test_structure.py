"""The house: imports go one way, kernels use nothing that differs between CPU and GPU, two files an
environment.
"""

import ast
import itertools
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from conftest import run_python

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cupydrive"
# Rooms, and the modules beside them. One imports itself and those that stand before it.
ORDER = [
    "errors", "protocols", "inputs", "random", "spec", "envs", "codegen", "executors", "scans", "nn",
    "drawing", "terminal", "simulation", "checks", "playing", "rendering", "algorithms", "training",
    "experiments", "examples",
    "adapters", "gymnasium", "pettingzoo", "stable_baselines3", "lightning", "gallery", "bench",
    "profiling", "cli", "__main__",
]  # fmt: skip
# What a user calls may hand over to later rooms, by an import inside the function.
HANDS_OVER = {("simulation.make", "profiling.tuner"), ("simulation.vector", "rendering.viewer")}
MOST_MODULES = 14  # directly in cupydrive/
ROOMS = [room for room in ORDER if (PACKAGE / room).is_dir()]
KERNELS = sorted((ROOT / "kernels" / "envs").glob("*.cu"))
GENERATED = {
    "sizes.cuh",
    "groups.cuh",
    "metrics.cuh",
    "spaces.cuh",
    "agreement.cuh",
    "fields.cuh",
    "policies.cuh",
}  # by Python
PATH = r"(?<![\w./])(?:cupydrive|kernels|tests|gallery|notebooks)/[\w./*-]*"


def imported(path):
    """Return the modules of the package that a file imports when it runs, as names with dots after
    the package's.
    """
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []  # for annotations only
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "cupydrive"
        ):
            folder = PACKAGE.joinpath(*node.module.split(".")[1:])
            modules = [
                a.name
                for a in node.names
                if (folder / f"{a.name}.py").exists() or (folder / a.name).is_dir()
            ]
            for name in modules or [""]:
                yield ".".join([*folder.relative_to(PACKAGE).parts, *filter(None, [name])])


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_go_one_way(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts == ("__init__",):
        return
    here = ORDER.index(parts[0])
    for name in filter(None, imported(path)):
        if (".".join(parts), name) in HANDS_OVER:
            continue
        assert ORDER.index(name.split(".")[0]) <= here, f"{path.name} imports {name}"


def test_only_adapters_examples_and_the_command_line_import_the_package_itself():
    found = [
        path
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^ *import cupydrive\b", path.read_text(), re.M)
    ]
    rooms = {
        path.relative_to(PACKAGE).parts[0]
        for path in found
        if path.name not in ("__init__.py", "startup.py")
    }
    assert rooms <= {"adapters", "cli", "examples"}  # the others hold programs and examples as text


def defined(path):
    """Return the public names that a module defines: functions, classes, constants and types."""
    for node in ast.parse(path.read_text()).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        flat = [each for target in targets for each in getattr(target, "elts", [target])]
        names = [getattr(node, "name", None), *(getattr(each, "id", None) for each in flat)]
        yield from (name for name in names if name and not name.startswith("_"))


def test_a_public_name_means_one_thing():
    # Environments and examples define SPEC, Params and the functions of a reference. Adapters have
    # the classes of a framework, and `nn` the modules of torch's names that descriptions make.
    where = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if room not in ("envs", "examples", "adapters", "nn.py", "__init__.py"):
            for name in set(defined(path)):
                where.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_annotations_say_more_than_any():
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            annotation = (
                node.returns
                if isinstance(node, ast.FunctionDef)
                else getattr(node, "annotation", None)
            )
            if annotation is not None:
                found.append(ast.unparse(annotation))
    assert sum(each in ("Any", "object") for each in found) <= 0.02 * len(found)


@pytest.mark.full
def test_no_module_imports_itself_by_way_of_others():
    files = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    modules = {
        name.removesuffix(".__init__"): path for name, path in files.items() if name != "__init__"
    }
    later = {name: {there for here, there in HANDS_OVER if here == name} for name in modules}
    TopologicalSorter(
        {name: set(imported(path)) - {name} - later[name] for name, path in modules.items()}
    ).prepare()


def test_the_corridor_is_short():
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_MODULES
    assert {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))
    } == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_lives_there(room):
    assert ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text()))


def on_the_map():
    """Return the paths that the map of CONTRIBUTING.md names, in its order: the first words of a
    line, below what it is in.
    """
    paths, above, text = [], [], (ROOT / "CONTRIBUTING.md").read_text()
    for line in re.search(r"^```\n(.*?)^```", text, re.S | re.M)[1].splitlines():
        names = list(
            itertools.takewhile(lambda word: re.fullmatch(r"\w+(/|\.py)", word), line.split())
        )
        above[(len(line) - len(line.lstrip())) // 2 :] = names[:1]
        paths += ["".join([*above[:-1], name]) for name in names]
    return paths


def test_the_map_of_the_code_is_whole():
    paths = on_the_map()
    assert all((ROOT / path).exists() for path in paths), paths
    rooms = [
        path.removeprefix("cupydrive/")
        for path in paths
        if re.fullmatch(r"cupydrive/\w+(/|\.py)", path)
    ]
    assert rooms == [f"{name}/" if name in ROOMS else f"{name}.py" for name in ORDER]
    folders = {
        path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "kernels").rglob("*.cu*")
    }
    assert {f"{folder}/" for folder in folders} <= set(paths)
    assert "(CONTRIBUTING.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "file", ["README.md", "CONTRIBUTING.md", "gallery/SPEED.md", "kernels/NOTES.md"]
)
def test_paths_in_prose_exist(file):
    for name in re.findall(PATH, (ROOT / file).read_text()):
        if not re.search("NAME|-v0$", name):  # of any environment; Gymnasium's ids
            assert list(ROOT.glob(name.rstrip("/."))), name


def test_files_that_comments_name_exist():
    headers = {path.name for path in (ROOT / "kernels").rglob("*.cuh")} | GENERATED
    files = [
        path
        for folder in (PACKAGE, ROOT / "kernels", ROOT / "tests")
        for path in folder.rglob("*.*")
    ]
    files += (ROOT / "notebooks").glob("*.ipynb")
    for file in files:
        if file.suffix in (".py", ".cu", ".cuh", ".txt", ".ipynb"):
            text = file.read_text()
            for name in re.findall(
                r"(?<![\w./])(?:cupydrive|kernels|tests)/[\w/]+\.(?:py|cuh?|md|json)\b", text
            ):
                assert (ROOT / name).exists() or Path(name).stem.isupper(), f"{file}: {name}"
            assert set(re.findall(r"\b\w+\.cuh\b", text)) <= headers, file


@pytest.mark.parametrize(
    "module",
    [
        "spec",
        "random",
        "envs",
        "codegen.source",
        "checks.report",
        "simulation.batch",
        "checks.checker",
        "executors.host",
    ],
)
def test_these_need_neither_torch_nor_cupy(module):
    block = "import sys\nfor name in ('torch', 'cupy'):\n    sys.modules[name] = None\n"
    done = run_python("-c", f"{block}import cupydrive.{module}")
    assert done.returncode == 0, done.stderr


def test_every_name_of_the_stub_is_imported_on_first_use():
    import cupydrive

    nodes = ast.parse((PACKAGE / "__init__.pyi").read_text()).body
    stub = {node.names[0].name: node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert stub == cupydrive._HOME and all(hasattr(cupydrive, name) for name in stub)
    assert (PACKAGE / "py.typed").exists()  # without it type checkers ignore both


def test_no_module_has_the_name_of_something_the_package_offers():
    """An import of the module would put it where the function is expected."""
    import cupydrive

    assert not set(cupydrive._HOME) & set(ORDER)


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.name)
def test_environments_use_the_dialects_mathematics_only(path):
    code = re.sub(r"//.*", "", path.read_text())
    words = "(?:f?(?:min|max|abs)|sin|cos|tan|tanh|atan2|sqrt|exp|log|pow|floor|ceil|round|fmod)f?"
    bare = rf"(?<![\w:.]){words}\s*\("
    assert not re.findall(bare, code)
    assert not re.findall(r"#\s*include\s*<|\bdouble\b|\d\.\d+(?![\df])", code)


def test_a_macro_means_one_thing():
    """Headers that are compiled together define a macro alike, but for defaults behind #ifndef.
    ``backend/`` has one header for each backend.
    """
    found = {}
    for path in (ROOT / "kernels").rglob("*.cuh"):
        if path.parent.name == "backend":
            continue
        text = re.sub(r"#\s*ifndef (\w+)\n#\s*define \1\b", "", path.read_text())
        for name, value in re.findall(r"^#\s*define (\w+)(.*?)(?://|$)", text, re.MULTILINE):
            found.setdefault(name, {}).setdefault(path.name, value.strip())
    both = {name: values for name, values in found.items() if len(values) > 1}
    assert set(both) == {"APPROXIMATE"}, both  # before functions.cuh, by the kind of a unit


def test_every_environment_has_its_two_files():
    from cupydrive import envs

    assert (
        {p.stem for p in KERNELS}
        == {
            p.stem
            for p in (PACKAGE / "envs").glob("*.py")
            if p.stem not in {"__init__", *envs.SHARED} and not p.stem.endswith("_data")
        }
        == set(envs.names())
    )


def test_torchs_generators_are_named_where_they_are_kept():
    """Where there are several GPUs torch warns of ``fork_rng`` without names, which only such a
    machine shows.
    """
    bare = [
        path
        for folder in (PACKAGE, ROOT / "tests")
        for path in folder.rglob("*.py")
        if "fork_rng" + "()" in path.read_text()
    ]
    assert not bare, (
        f"fork_rng without devices in {bare}; take own_random_numbers of cupydrive/playing/torch_settings.py"
    )


@pytest.mark.full
def test_buffers_name_their_dtype_and_device():
    """Otherwise they are what torch's defaults are, which a caller may have changed."""
    typed, inferred = {"zeros", "ones", "empty", "full", "rand", "randn"}, {"tensor", "arange"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                f"torch.{name}" for name in typed | inferred
            }:
                named = {keyword.arg for keyword in node.keywords}
                needed = {"device"} if node.func.attr in inferred else {"dtype", "device"}
                assert None in named or needed <= named, (
                    f"{path}, line {node.lineno}: name {needed - named}"
                )
