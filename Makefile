# Headgate's commands; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

ifeq ($(HOME),)
export HOME := $(CURDIR)/.venv/home
endif
export HEADGATE_CACHE ?= $(HOME)/.cache/headgate
# Each driver, Python worker and server would compile all that it imports again: seconds of each start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/headgate-setup.sha256
PURE := not spark and not airflow and not servers and not e2e and not slow

# What some targets take: make crash-demo SEED=7 KILLS=20 BACKEND=rocksdb
SEED ?= 1
KILLS ?= 20
SEEDS ?= 2000
CELLS ?= *
BACKEND ?= both
SECONDS ?= 60
ROUNDS ?= 3
BREAK ?=
WORKERS ?= 1
GRAPH ?=
NUMBERS ?= all
KEEP ?=
ARGS ?=

.PHONY: help
help: ## this list
	@echo "Headgate: make <target>"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## make .venv equal to the lock (needs Python 3.11 and Java 17+; safe to repeat)
	@scripts/setup.sh

$(STAMP): requirements-dev.txt scripts/setup.sh
	@scripts/setup.sh

.PHONY: lock
lock: $(STAMP) ## lock the dependencies again after a change of requirements*.in
	$(VENV)/bin/uv pip compile --quiet --system-certs requirements.in -o requirements.txt
	$(VENV)/bin/uv pip compile --quiet --system-certs requirements-dev.in -o requirements-dev.txt

.PHONY: lint
lint: $(STAMP) ## style, formatting, types, and the walls between the packages
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

.PHONY: format
format: $(STAMP) ## format the code and mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: test
test: $(STAMP) ## every test but the slow ones, in two runs beside each other (ARGS="tests/contract -k slot" for some)
	$(PY) $(if $(ARGS),-m pytest -m "not slow" --durations=10 $(ARGS),scripts/all_tests.py)

.PHONY: test-pure
test-pure: $(STAMP) ## the tests that need no Spark, Airflow or server, with their branch coverage
	$(PY) -m pytest -m "$(PURE)" --durations=10 $(if $(ARGS),$(ARGS),--pure-coverage)

.PHONY: spec
spec: $(STAMP) ## each behaviour of docs/behaviours.md with the tests that cover it, run now
	$(PY) -m pytest -m "not slow" -q --spec

.PHONY: spec-break
spec-break: $(STAMP) ## reverse behaviours one after the other: a test of each must fail (NUMBERS=44,162 for some)
	$(PY) -m pytest -m "$(PURE)" -q --spec-break $(NUMBERS)

.PHONY: test-minio
test-minio: $(STAMP) ## the S3 tests against a real MinIO (needs Go once; cached in HEADGATE_CACHE)
	scripts/minio.sh test $(ARGS)

.PHONY: demo
demo: $(STAMP) ## the whole story: Airflow, a stream, a crash, a restore, an exact count (KEEP=1 leaves Airflow up)
	KEEP=$(KEEP) $(PY) scripts/demo.py

.PHONY: crash-demo
crash-demo: $(STAMP) ## kill a driver KILLS times at moments from SEED and check every record (BACKEND=hashmap|rocksdb|both, BREAK=)
	$(PY) scripts/crash_demo.py --seed $(SEED) --kills $(KILLS) --backend $(BACKEND) $(if $(BREAK),--break $(BREAK))

.PHONY: soak
soak: $(STAMP) ## one life of 1,000 restarts and 10,000 checkpoints: files, bytes, descriptors and threads stay what they were
	$(PY) -m pytest -m slow -q -s tests/runtime/driver/test_soak.py

.PHONY: crash-matrix
crash-matrix: $(STAMP) ## kill a driver before and after each step of the protocol, on Spark (CELLS=rocksdb:*-slot, SEED=, BREAK=, WORKERS=, GRAPH=1 or at-least-once: with channels); goes on from the cells that have passed on this commit
	$(PY) scripts/crash_matrix.py --seed $(SEED) --cells '$(CELLS)' --graph '$(GRAPH)' --workers $(WORKERS) $(if $(BREAK),--break $(BREAK))

.PHONY: simulate
simulate: $(STAMP) ## the protocol under faults, without Spark, SEEDS times (BREAK= plants a fault; ARGS="--seed 7 --trace" replays)
	PYTHONPATH=plugins:spark_jobs $(PY) -m headgate.testing.simulation --seeds $(SEEDS) $(if $(BREAK),--break $(BREAK)) $(ARGS)

.PHONY: bench-quick
bench-quick: $(STAMP) ## a keyed count against the stateless floor, in one run
	PYTHONPATH=plugins:spark_jobs:. $(PY) -m benchmarks.quick

.PHONY: bench-checkpoint
bench-checkpoint: $(STAMP) ## what checkpoints cost a running stream, on an idle machine (SECONDS= of an arm in a round, ROUNDS=, BACKEND=hashmap|rocksdb)
	PYTHONPATH=plugins:spark_jobs:. $(PY) -m benchmarks.checkpoint --seconds $(SECONDS) --rounds $(ROUNDS) \
		$(if $(filter both,$(BACKEND)),,--backend $(BACKEND))

.PHONY: bench-start
bench-start: $(STAMP) ## what the archive of Spark's classes gains at a start
	PYTHONPATH=plugins:spark_jobs:. $(PY) -m benchmarks.start $(ARGS)

.PHONY: bench-alignment
bench-alignment: $(STAMP) ## what barriers cost where channels are full: aligned, unaligned, at least once
	PYTHONPATH=plugins:spark_jobs:. $(PY) -m benchmarks.alignment $(ARGS)

.PHONY: clean
clean: ## remove what tools, tests and the demo left behind (not .venv)
	rm -rf work .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov \
		spark-warehouse metastore_db derby.log artifacts
	find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
