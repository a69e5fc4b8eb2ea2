# Two commands do everything: `make bench` and `make test`. Each makes .venv first if needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip's usual PyTorch on Linux is the CUDA build. TORCH_INDEX, the address of another wheel index
# (PyTorch's CPU wheels, say), or TORCH, another version or file, chooses a different one.
TORCH ?= torch>=2.11,<2.16
TORCH_INDEX ?=

.PHONY: bench test install lint format clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)" $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)")
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@

bench: install
	rm -rf runs/smoke
	$(BIN)/python -m bench workload=bert_large device=tpu scale=smoke run_dir=runs/smoke/tpu
	$(BIN)/python -m bench workload=bert_large device=cpu scale=smoke run_dir=runs/smoke/cpu
	$(BIN)/python -m bench.reports runs/smoke --out runs/smoke/report

test: lint
	$(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs/smoke
