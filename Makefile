# Every target that needs packages first runs setup_venv.py, which creates .venv once and then does nothing:
# any of them may be the first command on a fresh machine with Python 3.11 or newer. Where somebody's own Python is given, as in
# `make site RUN=/path/to/python`, it has the packages, and no .venv is made.

PYTHON ?= python3
RUN := .venv/bin/python

# Processes: one per core, eight at most. Torch gets one thread in each: with more, the processes wait for each other.
# nproc returns OMP_NUM_THREADS where that is set, which is not the number of cores.
CORES := $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
JOBS ?= $(shell [ $(CORES) -lt 8 ] && echo $(CORES) || echo 8)
# worksteal: an idle process takes tests from the end of another one's list; neighbours, which share fixtures, stay together.
# Bytecode is kept even if PYTHONDONTWRITEBYTECODE is set: otherwise each process would compile the package again.
PYTEST := env OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q --dist worksteal -n $(JOBS)
LINT_SKIPPED := echo "lint skipped: $(RUN) has no ruff or no mypy; pip install ruff mypy there, or leave RUN out"

# Tiers of `make test-all`. Every test is in exactly one of them, by its markers.
TIERS := quick full gpu slow slow-gpu mutants
quick := first
full := not first and not gpu and not slow and not mutants
gpu := gpu and not first and not slow
slow := slow and not gpu and not mutants
slow-gpu := slow and gpu
mutants := mutants

.PHONY: demo test test-all lint bench gallery notebook notebooks site release clean setup test-lowest $(addprefix test-,$(TIERS))
# Tiers must not share the cores.
.NOTPARALLEL:

demo:
	$(if $(filter command,$(origin RUN)),,@$(PYTHON) setup_venv.py --demo)
	$(RUN) -m cupydrive demo

test: lint test-quick

# --keep-going: later tiers run even if an earlier one fails. Kernels are built with -O3, as users have them (tests/conftest.py).
test-all: setup
	@CUPYDRIVE_OPTIMIZE=3 $(MAKE) --no-print-directory --keep-going lint $(addprefix test-,$(TIERS))

# Skipped only if RUN names another Python that lacks ruff or mypy. The one in .venv must have both.
lint: setup
	@$(if $(filter command,$(origin RUN)),$(RUN) -c "import mypy; import ruff" 2>/dev/null || { $(LINT_SKIPPED); exit 0; };) \
	$(RUN) -m ruff check . && $(RUN) -m ruff format --check . && $(RUN) -m mypy

$(addprefix test-,$(TIERS)): test-%: setup
	$(PYTEST) -m "$($*)" $(if $(findstring slow,$*)$(findstring mutants,$*),-o faulthandler_timeout=7200) tests

# The adapters with the lowest versions that pyproject.toml allows, in a venv of their own. LOWEST_TORCH: another torch, such
# as torch==2.13.0+cpu; the lowest is a CUDA build of gigabytes, unless TORCH_INDEX names an index of CPU builds.
test-lowest:
	$(PYTHON) tests/tools/lowest.py $(if $(LOWEST_TORCH),--torch $(LOWEST_TORCH))

# Wheel and sdist in dist/, each tried in an empty environment; nothing is uploaded.
release: setup
	$(RUN) tests/tools/release.py

bench: setup
	$(RUN) -m cupydrive bench

gallery: setup
	$(RUN) -m cupydrive gallery

# It opens copies, in runs/notebooks.
notebook: setup
	$(RUN) notebooks/start.py

# Runs the lessons on this machine's GPU, or CPU, and keeps them with what they showed. ONLY="03 04": some of them.
notebooks: setup
	$(RUN) tests/tools/run_notebooks.py $(if $(ONLY),--only $(ONLY))

# What the theme says about its successor, each time, is left out.
site: setup
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo "wrote site/index.html"

setup:
	$(if $(filter command,$(origin RUN)),,@$(PYTHON) setup_venv.py)

# Leaves .venv and runs/ alone: delete those by hand.
clean:
	rm -rf build dist site .cache .hypothesis .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +
