# Every target that needs packages first runs setup_venv.py, which creates .venv once and then does nothing:
# any of them may be the first command on a fresh machine with Python 3.11 or newer.

PYTHON ?= python3
RUN := .venv/bin/python

# Seconds that `make test` gives each group. They sum to at most 15 minutes, installation not counted. Where there is no GPU its
# tests are skipped, and their share goes to the others: the cores of such a machine are often shared, and slow at times.
LINT_SECONDS ?= 20
ifneq ($(wildcard /dev/nvidia0 /dev/dxg),)
CORE_SECONDS ?= 170
CHECKER_SECONDS ?= 240
BUILD_SECONDS ?= 100
NOTEBOOK_SECONDS ?= 190
GPU_SECONDS ?= 180
else
CORE_SECONDS ?= 220
CHECKER_SECONDS ?= 240
BUILD_SECONDS ?= 140
NOTEBOOK_SECONDS ?= 240
GPU_SECONDS ?= 20
endif
# `make test-all` alone; it also gives the slow GPU tests this long.
SLOW_SECONDS ?= 3600

# Every test belongs to exactly one group, whatever markers it has; tests/test_project.py checks that.
CORE_TESTS := not gpu and not slow and not checker and not build and not sanitizer and not notebook
CHECKER_TESTS := checker and not gpu and not slow
BUILD_TESTS := (build or sanitizer) and not checker and not gpu and not slow
NOTEBOOK_TESTS := notebook and not checker and not build and not sanitizer and not gpu and not slow
GPU_TESTS := gpu and not slow
SLOW_TESTS := slow and not gpu
SLOW_GPU_TESTS := gpu and slow

# Processes of a group that does not use the GPU. Torch gets one thread in each: with more they wait for each other.
JOBS ?= 2
PYTEST := env OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(JOBS)

# The GPU's tests first: where there is none, the last words are not "skipped".
GROUPS := test-gpu test-core test-checker test-build test-notebook

.PHONY: demo test test-all lint bench gallery notebook clean setup test-notebook test-core test-checker test-build test-gpu test-slow test-slow-gpu
# Groups must not share the cores, or their times would mean nothing.
.NOTPARALLEL:

# $(call timed,name,seconds,command): runs the command, prints its time, fails as it fails.
# Exit code 5 is pytest's "no tests": a group that has lost its tests fails too.
define timed
@start=$$(date +%s); code=0; \
timeout --kill-after=10 $(2) $(3) || code=$$?; \
took=$$(($$(date +%s) - start)); \
case $$code in \
0) echo "[$(1)] passed in $$took s of $(2) s" ;; \
5) echo "[$(1)] failed after $$took s: it has no tests" ;; \
124|137) echo "[$(1)] failed: still running after its $(2) s" ;; \
*) echo "[$(1)] failed after $$took s of $(2) s, exit code $$code" ;; \
esac; exit $$code
endef

demo: setup
	$(RUN) -m cupydrive demo

# --keep-going: every group runs and prints its time even when an earlier one fails.
test: setup
	@$(MAKE) --no-print-directory --keep-going lint $(GROUPS)

test-all: setup
	@$(MAKE) --no-print-directory --keep-going lint $(GROUPS) test-slow test-slow-gpu

lint: setup
	$(call timed,lint,$(LINT_SECONDS),sh -c "$(RUN) -m ruff check . && $(RUN) -m ruff format --check .")

test-core: setup
	$(call timed,core,$(CORE_SECONDS),$(PYTEST) -m "$(CORE_TESTS)")

test-checker: setup
	$(call timed,checker,$(CHECKER_SECONDS),$(PYTEST) -m "$(CHECKER_TESTS)")

test-build: setup
	$(call timed,build,$(BUILD_SECONDS),$(PYTEST) -m "$(BUILD_TESTS)")

test-notebook: setup
	$(call timed,notebook,$(NOTEBOOK_SECONDS),$(PYTEST) --dist loadfile -m "$(NOTEBOOK_TESTS)")

# One process: tests on one GPU would wait for each other. Without a GPU, all of them are skipped.
test-gpu: setup
	$(call timed,gpu,$(GPU_SECONDS),$(RUN) -m pytest -q -m "$(GPU_TESTS)")

test-slow: setup
	$(call timed,slow,$(SLOW_SECONDS),$(PYTEST) -m "$(SLOW_TESTS)")

test-slow-gpu: setup
	$(call timed,slow-gpu,$(SLOW_SECONDS),$(RUN) -m pytest -q -m "$(SLOW_GPU_TESTS)")

bench: setup
	$(RUN) -m cupydrive bench

gallery: setup
	$(RUN) -m cupydrive gallery

# JupyterLab comes with it: `make demo` and `make test` do without.
notebook: setup
	$(RUN) -m pip install -q --disable-pip-version-check jupyterlab
	$(RUN) -m jupyterlab notebooks

setup:
	@$(PYTHON) setup_venv.py

# Leaves .venv and runs/ alone: delete those by hand.
clean:
	rm -rf build dist .cache .hypothesis .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +
