# The staging lab's targets, for the Makefile of the project to include.
LAB_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)
LAB_INVENTORY ?= inventories/lab4.yaml
# Few tests, for the boots take most of the time.
LAB_SMOKE := tests/lab/test_factory.py tests/lab/test_scenarios.py -k "test_factory or test_1_"
LAB_RECORD ?= docs/lab-record.txt
# All examples that need no switch, but for the ring of four that the other tests have.
LAB_FABRICS := pair triangle line4 ring4-alternating ring6 ring8
LAB_FABRICS_RECORD ?= docs/lab-record-fabrics.txt

.PHONY: lab lab-down test-lab test-lab-all test-lab-fabrics

lab: $(STAMP)  ## build and boot the staging lab (Debian or Ubuntu; installs the packages that it needs)
	$(LAB_PYTHON) -m lab up -i $(LAB_INVENTORY)
	mkdir -p build && ln -sfn "$$($(LAB_PYTHON) -c 'from lab.host import run_dir; print(run_dir())')" build/lab

lab-down: $(STAMP)  ## end it
	$(LAB_PYTHON) -m lab down

test-lab: $(STAMP)  ## the lab's smoke tier: factory nodes, then the rendered files booted and RDMA through relays
	FABRIC_PLAN_LAB_INVENTORY=$(LAB_INVENTORY) $(LAB_PYTHON) -m pytest -m lab -s -v --durations=8 $(LAB_SMOKE)

test-lab-all: $(STAMP)  ## every test in the lab, with a record
	mkdir -p build; set -o pipefail; $(LAB_PYTHON) -m pytest -m lab -s -v --durations=0 tests/lab 2>&1 | tee build/lab-record.txt
	cp build/lab-record.txt $(LAB_RECORD)
test-lab-all: SHELL := bash

test-lab-fabrics: $(STAMP)  ## the smoke tier for each other example fabric, two to eight nodes, with a record
	mkdir -p build; set -eo pipefail; for fabric in $(LAB_FABRICS); do \
	  FABRIC_PLAN_LAB_INVENTORY=inventories/$$fabric.yaml $(LAB_PYTHON) -m pytest -m lab -s -v --durations=4 $(LAB_SMOKE); \
	done 2>&1 | tee build/lab-record-fabrics.txt
	cp build/lab-record-fabrics.txt $(LAB_FABRICS_RECORD)
test-lab-fabrics: SHELL := bash
