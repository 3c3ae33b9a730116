# Paceline: every target works on a fresh clone; the environment is made on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TORCH  := $(shell sed -n 's/^\(torch==[0-9.]*\).*/\1/p' constraints.txt)
# One thread per process of numpy's own pools: the ranks share the cores.
export OPENBLAS_NUM_THREADS = 1

.PHONY: setup study test quick check bench docs clean

setup: $(READY)

# torch first and alone: any other spelling fetches the CUDA build (gigabytes).
$(READY): pyproject.toml constraints.txt src/paceline/comm/shm/_core.c src/paceline/nn/_batch_norm.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '$(TORCH)' numpy -c constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt --editable '.[dev]'
	@touch $(READY)

study: setup            ## the embedded scaling study; ends with the path of its report
	$(BIN)/paceline study --out runs/quick-study

test: setup             ## all tests
	$(BIN)/python -m pytest

quick: setup            ## unit and contract tests alone
	$(BIN)/python -m pytest -m 'not slow' tests/test_architecture.py tests/unit tests/contract tests/known_answers

check: setup            ## style, types, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory docs

bench: setup            ## side-by-side measurements (minutes); JSON in benchmarks/results
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/faults.py --trials 10 --json benchmarks/results/faults.json
	$(BIN)/python benchmarks/mpi.py
	$(BIN)/python benchmarks/backend.py
	$(BIN)/paceline bench allreduce --config studies/all-reduce.toml --json benchmarks/results/all-reduce.json
	$(BIN)/paceline bench allreduce --config studies/shared-memory.toml --json benchmarks/results/shared-memory.json
	$(BIN)/paceline bench step --json benchmarks/results/step.json
	$(BIN)/python benchmarks/svhn_resnet18.py --json benchmarks/results/svhn-resnet18.json --docs docs
	$(BIN)/paceline bench syncbn --json benchmarks/results/syncbn.json

docs: setup             ## HTML in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build --quiet -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf docs/_build .mypy_cache .ruff_cache .pytest_cache
