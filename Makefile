PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS := -n 2 --dist worksteal # neighbours stay together, so that what a module shares is made once

# Every command and every worker of the tests starts Python anew: without files of bytecode, all is compiled each time.
unexport PYTHONDONTWRITEBYTECODE

# Where a test computes on two threads, those that wait for each other leave their core to the other worker.
export OMP_WAIT_POLICY = PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz lint check campaign docs format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install sncl with the pinned versions

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sncl needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make setup PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@# pip compiles on one core, and tests of other packages, too; what is left out here is compiled when it is used.
	@$(BIN)/python -m compileall -q -j 0 -x '/(tests|transformers)/' .venv/lib > /dev/null || true
	@touch $@

demo: setup ## watch a network forget, and one that does not
	$(BIN)/sncl demo

test: export OMP_NUM_THREADS = 1
test: setup ## run every test; those that need real data look in $SNCL_DATA and are skipped without it
	$(BIN)/python -m pytest $(WORKERS)

fuzz: export OMP_NUM_THREADS = 1
fuzz: export SNCL_FUZZ_EXAMPLES ?= 20000
fuzz: setup ## damage files of every kind, SNCL_FUZZ_EXAMPLES for each reader, other ones every time; an hour or more
	$(BIN)/python -m pytest $(WORKERS) $$(find tests -name 'test_fuzz_*.py')

lint: setup ## lint, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: export OMP_NUM_THREADS = 1
check: lint ## lint and the fast tests
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

campaign: export OMP_NUM_THREADS = 1
campaign: export SNCL_CAMPAIGN = 1
campaign: setup ## kill and fail programs at every call that changes a file: about half an hour
	$(BIN)/python -m pytest $(WORKERS) tests/reliability

docs: export NO_MKDOCS_2_WARNING = 1
docs: setup ## build the documentation into site/; a broken link fails
	$(BIN)/mkdocs build # not --quiet: what is not shown is not counted either, and a warning would not fail
	@echo "open site/index.html"

format: setup ## sort imports, apply safe fixes and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove the environment, caches and build outputs; runs/ stays
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site *.egg-info
	find sncl tests -name __pycache__ -type d -prune -exec rm -rf {} +
