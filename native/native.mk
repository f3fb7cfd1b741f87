# SPDX-License-Identifier: Apache-2.0
# The marker's targets, for the Makefile of the project to include. Debian and Ubuntu packages: gcc libc6-dev make
# libibverbs-dev to build it, strace util-linux for all of its tests, cppcheck for the second analyser.
NATIVE := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
NATIVE_PYTHON ?= $(if $(BIN),$(BIN)/python,python3)

.PHONY: marker test-marker lint-marker

marker:  ## the sender-side marker, in native/build
	$(MAKE) -C $(NATIVE)

test-marker: $(STAMP)  ## its tests on recording stand-ins, plain and under the sanitizers (as root)
	$(NATIVE_PYTHON) -m pytest tests/native
	MARKER_SANITIZE=1 $(NATIVE_PYTHON) -m pytest tests/native

lint-marker:  ## gcc -fanalyzer and cppcheck over the marker
	$(MAKE) -C $(NATIVE) lint
