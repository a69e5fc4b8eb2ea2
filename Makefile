# Two commands do everything: `make bench` and `make test`. Each makes .venv first if needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# PyTorch's default wheel on Linux is the CUDA build; set TORCH to choose another one.
TORCH ?= torch

.PHONY: bench test install lint format clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@

bench: install
	$(BIN)/python -m bench workload=bert_large device=tpu scale=smoke run_dir=runs/smoke/tpu
	$(BIN)/python -m bench workload=bert_large device=cpu scale=smoke run_dir=runs/smoke/cpu
	$(BIN)/python -m bench.reports runs/smoke --out runs/smoke/report

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs
