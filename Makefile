# The tasks of this repository; CI runs the same targets. `make` alone lists them.
# Everything is installed into $(VENV); tools that the tests fetch lie in a cache outside the repository.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# What is installed: the program alone, what `make test` needs, and what the other suites need.
PROGRAM = $(VENV)/.program
READY   = $(VENV)/.ready
SUITES  = $(VENV)/.suites
# For the command line alone: some systems have an environment variable NAME.
NAME    =
ARGS    =
# For `make test-all`: suites by name, with commas between them, and a part of their files, such as 1/3.
SUITE   =
SKIP    =
SHARD   =
# COMPLETE=1: a test that is skipped fails the run.
COMPLETE =
RUNNER  = $(BIN)/python -m tests.runner $(if $(COMPLETE),--complete)
CLUSTER = $(BIN)/python -m tests.e2e.cluster $(if $(NAME),--name $(NAME))

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# A cold `gpushare` without bytecode takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Debian keeps venv in a package of its own.
VENV_PACKAGE = { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get -q update && apt-get -q install -y python3-venv; \
	else echo "$(PYTHON) has no venv: install the package python3-venv" >&2; exit 1; fi; }

# What building and running the image takes besides Python. Debian 12 and later have all of it.
TOOLS    = buildah podman runc mmdebstrap skopeo gcc openssl
PACKAGES = buildah podman runc mmdebstrap skopeo gcc libc6-dev openssl

.DEFAULT_GOAL = help
.PHONY: help demo test unit test-all test-deps coverage cluster-up cluster-down kubectl lint lint-ruff lint-mypy lint-yaml golden upstream bench docs screenshots site image packages release publish clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(PROGRAM): pyproject.toml node-runtime/pyproject.toml
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(VENV_PACKAGE)
	@echo "installing gpushare into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --editable .
	@touch $@

$(READY): $(PROGRAM)
	@echo "installing what the tests need into $(VENV): a minute"
	@$(BIN)/pip install --quiet --editable '.[test]' --editable node-runtime
	@touch $@

$(SUITES): $(READY)
	@echo "installing what the other suites need into $(VENV)"
	@$(BIN)/pip install --quiet --editable '.[suites]'
	@touch $@

demo: $(PROGRAM)  ## a mixed cluster from its intent to rendered objects, a change and a refusal; half a minute
	@PATH="$(abspath $(BIN)):$$PATH" sh examples/demo.sh

test: lint unit  ## lint and every test that needs Python, a C compiler and Helm from its wheel; under five minutes

unit: $(READY)  ## the tests of `make test` without lint
	$(RUNNER) unit

test-all: $(SUITES)  ## every other suite; SUITE=cluster for one, SKIP=gitops,pages without some, SHARD=1/3, ARGS='-k quota'
	$(RUNNER) all --suite '$(SUITE)' --skip '$(SKIP)' --shard '$(SHARD)' --args '$(ARGS)'

test-deps:  ## install the Debian packages that `make test-all` needs; as root
	$(PYTHON) -m tests.runner.debian

coverage: $(SUITES)  ## which lines and branches of both projects `make test` runs, programs that they start included
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal tests --ignore=tests/e2e --ignore=tests/long
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: lint-ruff lint-mypy lint-yaml  ## ruff, mypy, yamllint

lint-ruff: $(READY)
	$(BIN)/ruff check compiler node-runtime tests docs .ci

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

docs: $(READY)  ## write the generated pages and the picture of a session under docs/, and profiles/facts.jsonl
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

packages:  ## install the programs that the image and its tests take, where that is possible
	@missing=; for tool in $(TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get -q update && apt-get -q install -y --no-install-recommends $(PACKAGES); \
	else echo "missing here:$$missing; on Debian: apt-get install $(PACKAGES)" >&2; exit 1; fi

release: $(SUITES)  ## what a release of this commit consists of, into dist/; ARGS=--without-image without root; BASE as for the image
	$(BIN)/python .ci/release.py $(if $(BASE),--base $(BASE)) $(ARGS)

publish: $(SUITES)  ## push dist/ to REGISTRY=registry.example.org/gpushare, sign it with KEY=cosign.key; needs cosign, helm, skopeo
	$(BIN)/python .ci/publish.py $(REGISTRY) --key $(KEY) $(ARGS)

clean:  ## forget what was built here
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
