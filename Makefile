# Every target that needs packages first runs setup_venv.py, which creates .venv once and then does nothing:
# any of them may be the first command on a fresh machine with Python 3.11 or newer. Where somebody's own Python is given, as in
# `make site RUN=/path/to/python`, it has the packages, and no .venv is made.

PYTHON ?= python3
RUN := .venv/bin/python

# Seconds for `make test`, installation not counted, and for each of its groups: for what hangs, on machines three times slower
# than two cores of a server, which take a quarter of an hour.
TEST_SECONDS ?= 2640
GROUP_SECONDS ?= 2400
# `make test-all` alone, of two cores; it also gives the slow GPU tests this long.
SLOW_SECONDS ?= 7200
# For one test that is not slow, and what is set up for it: one that hangs fails by its name, and the rest of its group runs.
HANG_SECONDS ?= 200

# Every test belongs to exactly one group, whatever markers it has; tests/project/test_project.py checks that.
CORE_TESTS := not gpu and not slow and not checker and not build and not sanitizer and not notebook
CHECKER_TESTS := checker and not gpu and not slow
BUILD_TESTS := (build or sanitizer) and not checker and not gpu and not slow
NOTEBOOK_TESTS := notebook and not checker and not build and not sanitizer and not gpu and not slow
GPU_TESTS := gpu and not slow
SLOW_TESTS := slow and not gpu
SLOW_GPU_TESTS := gpu and slow
# $(call naming,marker): the files that have such tests. To collect all files takes each process of a group four seconds more;
# tests/conftest.py holds that a test's markers are named in its own file.
naming = $(shell grep -rlE "mark\.($(1))([^a-z]|$$)" tests --include="test_*.py")

# Processes of a group: one per core, eight at most. Torch gets one thread in each: with more they wait for each other.
# nproc says OMP_NUM_THREADS where that is set, which is no number of cores.
CORES := $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
JOBS ?= $(shell [ $(CORES) -lt 8 ] && echo $(CORES) || echo 8)
# Tests of one GPU run in as many: what takes time there is compiling. Where there is none all are skipped, in one process.
GPU_JOBS ?= $(if $(shell command -v nvidia-smi),$(JOBS),0)
# worksteal: a process that is done takes the last tests of another one; neighbours, which may share a fixture, stay together.
# Bytecode of tests and package is kept wherever PYTHONDONTWRITEBYTECODE is set, too: each process would compile all of it anew.
PYTEST := env OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -q --dist worksteal -n
# faulthandler writes what all threads of the process do and ends it; pytest-xdist names the test, and starts another process.
HANGS := -o faulthandler_timeout=$(HANG_SECONDS) -o faulthandler_exit_on_timeout=true

# The GPU's tests first: where there is none, the last words are not "skipped".
GROUPS := test-gpu test-core test-checker test-build test-notebook

.PHONY: demo test test-all lint bench gallery notebook notebooks site release clean setup test-notebook test-core test-checker test-build test-gpu test-slow test-slow-gpu test-lowest
# Groups must not share the cores, or their times would mean nothing.
.NOTPARALLEL:

# $(call timed,name,seconds,command): runs the command for so long at most, and until DEADLINE (seconds since 1970) if that is
# given; prints its time, fails as it fails. Exit code 5 is pytest's "no tests": a group that has lost its tests fails too.
define timed
@start=$$(date +%s); code=0; limit=$(2); left=$$(($(or $(DEADLINE),start + limit) - start)); \
if [ $$left -lt $$limit ]; then limit=$$left; fi; \
if [ $$limit -lt 1 ]; then echo "[$(1)] failed: no time was left for it"; exit 1; fi; \
timeout --kill-after=10 $$limit $(3) || code=$$?; \
took=$$(($$(date +%s) - start)); \
case $$code in \
0) echo "[$(1)] passed in $$took s of $$limit s" ;; \
5) echo "[$(1)] failed after $$took s: it has no tests" ;; \
124|137) echo "[$(1)] failed: still running after its $$limit s" ;; \
*) echo "[$(1)] failed after $$took s of $$limit s, exit code $$code" ;; \
esac; exit $$code
endef

LINT = $(call timed,lint,$(GROUP_SECONDS),sh -c "$(RUN) -m ruff check . && $(RUN) -m ruff format --check .")
LINT_SKIPPED = @echo "[lint] skipped: $(RUN) has no ruff; pip install ruff there, or leave RUN out"

demo:
	$(if $(filter command,$(origin RUN)),,@$(PYTHON) setup_venv.py --demo)
	$(RUN) -m cupydrive demo

# --keep-going: every group runs and prints its time even when an earlier one fails.
test: setup
	@$(MAKE) --no-print-directory --keep-going DEADLINE=$$(($$(date +%s) + $(TEST_SECONDS))) lint $(GROUPS)

# Kernels are built as users have them in all tests, not only in those of bits (tests/conftest.py).
test-all: setup
	@CUPYDRIVE_OPTIMIZE=3 $(MAKE) --no-print-directory --keep-going lint $(GROUPS) test-slow test-slow-gpu

# Skipped only where somebody's own Python, given as RUN, has no ruff: not .venv's, which must have it.
lint: setup
	$(if $(and $(filter command,$(origin RUN)),$(shell $(RUN) -c "import ruff" 2>&1)),$(LINT_SKIPPED),$(LINT))

test-core: setup
	$(call timed,core,$(GROUP_SECONDS),$(PYTEST) $(JOBS) $(HANGS) -m "$(CORE_TESTS)")

test-checker: setup
	$(call timed,checker,$(GROUP_SECONDS),$(PYTEST) $(JOBS) $(HANGS) -m "$(CHECKER_TESTS)" $(call naming,checker))

test-build: setup
	$(call timed,build,$(GROUP_SECONDS),$(PYTEST) $(JOBS) $(HANGS) -m "$(BUILD_TESTS)" $(call naming,build|sanitizer))

test-notebook: setup
	$(call timed,notebook,$(GROUP_SECONDS),$(PYTEST) $(JOBS) $(HANGS) -m "$(NOTEBOOK_TESTS)" $(call naming,notebook))

test-gpu: setup
	$(call timed,gpu,$(GROUP_SECONDS),$(PYTEST) $(GPU_JOBS) $(HANGS) -m "$(GPU_TESTS)" $(call naming,gpu))

test-slow: setup
	$(call timed,slow,$(SLOW_SECONDS),$(PYTEST) $(JOBS) -m "$(SLOW_TESTS)" $(call naming,slow))

test-slow-gpu: setup
	$(call timed,slow-gpu,$(SLOW_SECONDS),env OMP_NUM_THREADS=1 $(RUN) -m pytest -q -m "$(SLOW_GPU_TESTS)" $(call naming,slow))

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
