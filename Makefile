# Everything sets itself up: `make demo` and `make test` need python3 with venv and pip, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint format golden man screenshots bench bench-apply clean venv debian-packages test-faults test-chain test-wheel

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

venv: $(STAMP)  ## the environment, from the lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(STAMP)  ## render the four-Spark example with its proof
	$(BIN)/fabric-plan render -i inventories/ring4.yaml -o build/ring4
	@echo
	@echo "Open build/ring4/review.html; beside it one tree a node, and plan.json."

lint: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)  ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: lint  ## everything that needs neither the lab nor long
	$(BIN)/python -m pytest -m browser
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not lab and not faults and not nccl and not browser and not chain"

test-faults: $(STAMP)  ## every fault at every step of an apply
	$(BIN)/python -m pytest -n 3 --dist worksteal -rA -m faults

test-chain: $(STAMP)  ## the command line, first apply to removal, against four machines behind SSH servers
	$(BIN)/python -m pytest -n 2 --dist loadfile -m chain

test-wheel: $(STAMP)  ## wheel and sdist, installed and used in empty environments of each Python that is here
	$(BIN)/python -m tests.packaging.try_it

golden: $(STAMP)  ## rewrite the golden trees after a change that is meant
	$(BIN)/python -m tests.golden_trees

man: $(STAMP)  ## write the man page from the help text
	$(BIN)/python -m tests.packaging.man

screenshots: $(STAMP)  ## take the pictures of docs/ anew (needs chromium)
	$(BIN)/python -m tests.review.screenshots

bench: $(STAMP)  ## print both benchmark tables: start-up and render, then an apply
	$(BIN)/python -m bench
	$(BIN)/python -m bench apply

bench-apply: $(STAMP)  ## print only that of an apply against Ansible and pyinfra, which it installs below build/
	$(BIN)/python -m bench apply

debian-packages:  ## the linters and tools that the tests use beside Python (as root, Debian or Ubuntu)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$(cat debian-packages.txt)

clean:  ## take away what was made
	rm -rf $(VENV) build dist native/build .mypy_cache .ruff_cache .pytest_cache .hypothesis

-include lab/lab.mk
-include native/native.mk
