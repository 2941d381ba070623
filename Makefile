# Landfall. `make validate` sets everything up and runs the main job; `make test` lints and tests. `make help` lists all.
#
#   make setup PYTHON=python3.12                                          another interpreter (3.11 or newer)
#   make -B setup                                                         again, after packages were changed
#   make setup TORCH_INDEX=https://download.pytorch.org/whl/cu130         another torch build (cpu, cu…, rocm…)
#   make validate ARGS="trainer=quick"                                    arguments of the command behind a target

PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
SAMPLE := samples/data/sample-data.json
BIOME := node_modules/.bin/biome

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY)  ## Create .venv and install requirements.lock, once; no development tools

# Without its package python3-venv, Debian's Python leaves an environment without pip: the next run completes it.
environment = $(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(1)

# The locks hold a digest for every file of each release, and pip installs no other. What only another platform or build of
# torch needs is in no lock: the last line adds it, with the other packages as they are.
INSTALL := $(BIN)/python -m pip install --quiet
LOCKED := --no-deps --require-hashes --requirement

# The build of torch depends on the machine, so its version alone is pinned: in the lock, pip would prefer the builds whose
# digests are there. One that is asked for is installed even where another one is: the versions are the same.
TORCH = $(if $(TORCH_INDEX),--force-reinstall --index-url $(TORCH_INDEX)) "$$(grep -o '^torch==[^ ]*' requirements.lock)"

$(READY): requirements.lock pyproject.toml $(if $(TORCH_INDEX),always)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Landfall needs Python 3.11 or newer; $(PYTHON) is older. Try make setup PYTHON=python3.12" >&2; exit 2; }
	$(call environment,$(VENV))
	$(INSTALL) --no-deps $(TORCH)
	$(INSTALL) $(LOCKED) requirements.lock
	$(INSTALL) --no-build-isolation --editable ".[lab]"
	@touch $@

.PHONY: setup-dev
setup-dev: $(READY_DEV)  ## Install the development tools of requirements-dev.lock too, once

# The development tools come on top: what tests, lints or compares with other libraries needs them, running does not. Few
# of their many modules are imported, so they are compiled at their import.
$(READY_DEV): $(READY) requirements-dev.lock
	$(INSTALL) --no-compile $(LOCKED) requirements-dev.lock
	$(INSTALL) --no-build-isolation --editable ".[dev]"
	@touch $@

.PHONY: always
always:

.PHONY: sample-data
sample-data: $(SAMPLE)  ## Create the sample data in samples/, once

$(SAMPLE): $(READY) | pipelines/sample_data/command.py
	$(BIN)/python -m pipelines.sample_data --out samples >/dev/null
	@touch $@

.PHONY: validate
validate: $(READY) $(SAMPLE)  ## Train both streams, score, check everything, export the dashboard
	$(BIN)/python -m pipelines.run_local_training_pipeline $(ARGS)

# A process for each core: more of them cost time, because each imports everything. Slow tests also wait for files, programs
# and servers, so three share two cores. A process without tests takes those of another.
PYTEST := -m pytest --dist worksteal --numprocesses logical --maxprocesses 8
WAITING := --numprocesses 3

.PHONY: test test-slow test-nightly test-all
test: $(READY_DEV) lint  ## Run the linter, then all tests except those marked slow
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not slow" $(ARGS)
test-slow: $(READY_DEV)  ## Run the tests marked slow but not nightly
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(WAITING) -m "slow and not nightly" $(ARGS)
test-nightly: $(READY_DEV)  ## Run the tests marked nightly: tutorials, memory, two machines, compiled models
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(WAITING) -m nightly $(ARGS)
test-all: test test-slow  ## Run what CI runs: all tests but those marked nightly

.PHONY: coverage
coverage: $(READY_DEV)  ## Measure which lines the tests run: at least 95 % (25 % longer than the tests)
	@rm -rf artifacts/coverage && mkdir -p artifacts/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run $(PYTEST) $(WAITING) $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

.PHONY: lint
lint: $(READY_DEV)  ## Check style and formatting
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check --quiet .
	@if $(BIOME) --version >/dev/null 2>&1 || npm install --silent --no-package-lock --no-audit --no-fund 2>/dev/null; \
	  then $(BIOME) check; \
	  else echo "the dashboard's page is not linted: Node.js, or its package registry, is absent" >&2; fi

.PHONY: lab
lab: $(READY) $(SAMPLE)  ## Open the notebooks in JupyterLab
	$(BIN)/python -m pipelines.open_lab -- $(ARGS)

.PHONY: dashboard
dashboard: $(READY) export  ## Serve the dashboard on this machine and open it
	$(BIN)/python -m pipelines.serve_dashboard $(ARGS)

.PHONY: train-patchtst
train-patchtst: $(READY) $(SAMPLE)  ## Train PatchTST-SSL from the command line
	$(BIN)/python -m trainers.train_patchtst_ssl $(ARGS)

.PHONY: train-swinmae
train-swinmae: $(READY) $(SAMPLE)  ## Train Swin-MAE from the command line
	$(BIN)/python -m trainers.train_swinmae_ssl $(ARGS)

.PHONY: score
score: $(READY)  ## Score every stream in use with its checkpoint
	$(BIN)/python -m inference.run_scoring_example $(ARGS)

.PHONY: export
export: $(READY)  ## Write the documents of the dashboard
	$(BIN)/python -m pipelines.export_training_dashboard_state --persist-run-history

# Its tools are in a lock file of their own: no test needs them.
.PHONY: site
site: $(READY)  ## Build the documentation site, with the Python API, in artifacts/site
	$(INSTALL) $(LOCKED) requirements-site.lock
	$(INSTALL) --no-build-isolation --editable ".[lab,site]"
	$(BIN)/python -m tools.site $(ARGS)

# Its tools are in an environment of their own, which they do not list.
AUDIT := $(VENV)/audit
SUPPLY := artifacts/supply-chain

$(AUDIT)/.ready: $(READY) requirements-audit.lock
	$(call environment,$(AUDIT))
	$(AUDIT)/bin/python -m pip install --quiet $(LOCKED) requirements-audit.lock
	@touch $@

$(SUPPLY):
	@mkdir -p $@

.PHONY: sbom licences audit
sbom: $(AUDIT)/.ready | $(SUPPLY)  ## List what is installed, as CycloneDX, in artifacts/supply-chain
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-file $(SUPPLY)/sbom.json $(BIN)/python
licences: $(AUDIT)/.ready | $(SUPPLY)  ## List the licences of what is installed, in artifacts/supply-chain
	$(AUDIT)/bin/pip-licenses --python $(BIN)/python --format markdown --with-urls --output-file $(SUPPLY)/licences.md
audit: $(AUDIT)/.ready | $(SUPPLY)  ## Look up known vulnerabilities of requirements.lock; another service: ARGS="--service osv …"
	@echo "Advisories of $(if $(ARGS),the service in ARGS,pypi.org), as of $$(date -u +%F)"
	@$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock --progress-spinner off \
	    --format markdown --output $(SUPPLY)/audit-$$(date -u +%F).md $(ARGS) \
	  || { echo "There are vulnerabilities, or the database was not reached: then nothing was audited" >&2; exit 1; }

FROM ?=
REPLACE ?=

.PHONY: import-artifacts
import-artifacts: $(READY)  ## Import a run from Colab or a drive: FROM=DIR|ZIP [REPLACE=1]
	@test -n "$(FROM)" || { echo "say where they are: make import-artifacts FROM=DIR|ZIP" >&2; exit 2; }
	$(BIN)/python -m pipelines.import_artifacts "$(FROM)" $(if $(REPLACE),--replace) $(ARGS)

# Links, so that there is one text; a file that somebody put there is never replaced.
.PHONY: docs-local docs-baseline
docs-local: ## Link prd.md, trd.md and todo.md to the requirements of the local version
docs-baseline: ## Link them to the requirements of the Colab version
docs-local docs-baseline: docs-%:
	@for link in prd.md trd.md todo.md; do \
	  if [ -e $$link ] && [ ! -L $$link ]; then echo "$$link is a file of its own; move it away" >&2; exit 2; fi; \
	done
	@for pair in prd:PRD trd:TRD todo:Todo; do \
	  ln -sf docs/requirements/$*/$${pair#*:}.md $${pair%:*}.md && ls -l $${pair%:*}.md | sed 's/.* \(.* -> \)/\1/' || exit 1; \
	done

.PHONY: bench bench-full
bench: $(READY_DEV)  ## Compare the speed with other implementations (minutes; ARGS="patchtst scalogram")
	$(BIN)/python -m benchmarks $(ARGS)
bench-full: $(READY_DEV)  ## Compare everything in nine rounds and write the results (ARGS="--peers DIR")
	$(BIN)/python -m benchmarks --full $(ARGS)

.PHONY: clean
clean:  ## Remove the files of runs and of the set-up; your own data stays
	rm -rf $(VENV) samples runs checkpoints artifacts cache machines training_dashboard/data
	rm -rf .pytest_cache .ruff_cache build *.egg-info node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
