# The tasks of this repository; CI runs the same targets. `make` alone lists them.
# Everything is installed into $(VENV); tools that the tests fetch lie in a cache outside the repository.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready
DEMO    = examples/01-heterogeneous
# For the command line alone: some systems have an environment variable NAME.
NAME    =
ARGS    =
FAST    = -n 2 --dist worksteal -m 'not slow and not helm and not image and not cluster and not gitops and not gpu and not registry and not pipelines and not windows and not publishing'
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
.PHONY: help demo test test-fast coverage test-cluster test-gitops test-windows cluster-up cluster-down kubectl lint lint-ruff lint-mypy lint-yaml golden upstream bench docs screenshots site image packages release publish clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(READY): pyproject.toml node-runtime/pyproject.toml
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(VENV_PACKAGE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]' --editable node-runtime
	@touch $@

demo: $(READY)  ## install, compile a heterogeneous cluster, draw its GPUs, render the chart with Helm
	$(BIN)/gpushare compile $(DEMO)/intent.yaml -o build/demo
	GPUSHARE_PAGER= $(BIN)/gpushare show $(DEMO)/intent.yaml
	$(BIN)/python -m tests.support.helm template gpushare build/demo/chart --namespace gpu-system > build/demo-rendered.yaml
	@grep -c '^kind:' build/demo-rendered.yaml | sed 's/$$/ objects rendered by Helm in build\/demo-rendered.yaml/'

test: $(READY) lint  ## every suite that this machine can run, and what is left out and why
	$(BIN)/python -m tests.run

test-fast: $(READY)  ## the tests that answer in seconds, without Helm
	$(BIN)/python -m pytest $(FAST)

coverage: $(READY)  ## which lines and branches of both projects the fast tests run, programs that they start included
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(FAST)
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

upstream: $(READY)  ## what NVIDIA's charts make of their values, from NVIDIA=FOLDER with the charts, into profiles/upstream
	$(BIN)/python -m tests.nvidia.update

bench: $(READY)  ## timings, each against a peer in the same run; NVIDIA=FOLDER with NVIDIA's charts for the real one
	$(BIN)/python -m tests.bench

docs: $(READY)  ## write the generated pages and the picture of a session under docs/, and profiles/facts.jsonl
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/session.py

screenshots: $(READY)  ## the pictures of the pages for a browser, in docs/images; needs chromium
	$(BIN)/python -m docs.screenshots

site: $(READY)  ## the documentation as a site, in build/site/site
	$(BIN)/python docs/build_site.py

test-cluster: $(READY)  ## the scenarios on a real cluster alone; ARGS='-k tenants' for some, NVIDIA=FOLDER for NVIDIA's own plugin
	$(BIN)/python -m pytest -m cluster -rs $(ARGS)

test-gitops: $(READY)  ## Argo CD and Flux themselves on real clusters alone; ARGS='-k delet' for some
	$(BIN)/python -m pytest -m gitops -rs $(ARGS)

test-windows: $(READY)  ## what people look at: alert rules, dashboards, pages, the site; not the scrapes of a cluster (test-cluster) and the commands in docs (test); needs Go, promtool and chromium (Debian: prometheus, chromium)
	$(BIN)/python -m pytest -m windows -rs $(ARGS)

cluster-up: $(READY)  ## a real cluster of two nodes to work with by hand; NAME=x for another beside it
	$(CLUSTER) up

cluster-down: $(READY)  ## take it down
	$(CLUSTER) down

kubectl: $(READY)  ## kubectl on it: make kubectl ARGS='get nodes'
	@$(CLUSTER) kubectl $(ARGS)

image: packages  ## the node runtime's image; BASE=REFERENCE for another base, BASE=debian without a registry
	$(PYTHON) node-runtime/image/build.py $(if $(BASE),--base $(BASE)) --output build/image

packages:  ## install the programs that the image and its tests take, where that is possible
	@missing=; for tool in $(TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get -q update && apt-get -q install -y --no-install-recommends $(PACKAGES); \
	else echo "missing here:$$missing; on Debian: apt-get install $(PACKAGES)" >&2; exit 1; fi

release: $(READY)  ## what a release of this commit consists of, into dist/; ARGS=--without-image without root; BASE as for the image
	$(BIN)/python .ci/release.py $(if $(BASE),--base $(BASE)) $(ARGS)

publish: $(READY)  ## push dist/ to REGISTRY=registry.example.org/gpushare, sign it with KEY=cosign.key; needs cosign, helm, skopeo
	$(BIN)/python .ci/publish.py $(REGISTRY) --key $(KEY) $(ARGS)

clean:  ## forget what was built here
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
