# slowlight: `make demo` shows it, `make test` tests it, `make check` is what a change must pass.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON := interop/.venv/bin/python
PYTHON_FILES := interop bench python
FUZZ_SECONDS ?= 180
EXTRAS := dask,query,report
PROFILE := release
# Protocols of the sentences at the end of the demo.
DEMO_PROTOCOLS := norm/coded,norm,saratoga,cfdp,ltp,ftp/bbr,ftp/cubic
SLOWLIGHT = $(TARGET)/$(PROFILE)/slowlight

.PHONY: help setup demo build packages python notebook figures quick check test bench interop reference site fuzz nightly clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: ## install what is missing (packages, Python tools); quiet when nothing is
	@.ci/setup

build: ## the binary, target/release/slowlight; PROFILE=production optimises across crates
	@.ci/setup build
	@cargo build --profile $(PROFILE) --locked --package slowlight

packages: ## archive, .deb, OCI image, wheel, SBOM and sums, in dist/; then installs and runs each
	@.ci/setup packages
	@PROFILE=$(PROFILE) .ci/package all
	@.ci/package-test

python: ## the package in Python, in .venv, with what reports and clusters need
	@test -x .venv/bin/pip || python3 -m venv .venv
	@echo "building the package for .venv; the first time that takes minutes" >&2
	@.venv/bin/pip install --quiet --disable-pip-version-check '.[$(EXTRAS)]'

notebook: EXTRAS := dask,query,report,notebook
notebook: python ## the notebook of the guides in a browser, as a copy, notebook.ipynb
	@test -e notebook.ipynb || cp docs/guides/notebook.ipynb notebook.ipynb
	@.venv/bin/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebook.ipynb

# Builds only the commands that compute, without HTTP, TLS and Parquet; a whole program that exists
# is updated instead.
demo: ## a 10 MB file over a GEO link at three error levels, in the simulator
	@.ci/setup build
	@features="--no-default-features --features compute"; \
	if $(SLOWLIGHT) send --help >/dev/null 2>&1; then features=; fi; \
	.ci/build --profile $(PROFILE) --locked --package slowlight $$features
	@mkdir -p demo-out
	@test -e demo-out/file.bin || { head -c 10000000 /dev/urandom > demo-out/file.tmp; mv demo-out/file.tmp demo-out/file.bin; }
	@for per in 0 1e-3 1e-1; do \
	  compare="$(SLOWLIGHT) compare --link geo --file demo-out/file.bin --per $$per --runs 5 --seed 1"; \
	  echo; $$compare; \
	  $$compare --protocol $(DEMO_PROTOCOLS) --json > demo-out/$$per.json || test -s demo-out/$$per.json; \
	done
	@.ci/demo demo-out/0.json demo-out/1e-3.json demo-out/1e-1.json

quick: ## format and unit tests of what changed since BASE (HEAD)
	@.ci/quick

check: setup ## formatting, lints, documentation, house rules, Python types
	@.ci/check

test: setup ## every test; ends with "N passed, N failed"
	@.ci/test

bench: PROFILE := production
bench: setup build ## one table of speeds, in bench/results.json too; needs about 10 GB in /dev/shm
	@$(PYTHON) bench/run.py --slowlight $(SLOWLIGHT)

interop: setup build ## other implementations of CFDP (over UDP on loopback), of NORM (in namespaces) and of bundles
	@status=0; \
	$(PYTHON) interop/run.py --slowlight $(SLOWLIGHT) || status=1; \
	$(PYTHON) interop/run_norm.py --slowlight $(SLOWLIGHT) || status=1; \
	$(PYTHON) interop/run_bundles.py --slowlight $(SLOWLIGHT) || status=1; \
	exit $$status

reference: setup build ## the pages of docs/reference and README's picture, which are made from code
	@python3 .ci/settings.py
	@python3 .ci/pics.py
	@python3 .ci/reference.py $(SLOWLIGHT)
	@$(PYTHON) .ci/picture.py $(SLOWLIGHT)

figures: python build ## the figures of docs/reproduction, from results/ of the studies
	@SLOWLIGHT=$(abspath $(SLOWLIGHT)) .ci/figures .venv/bin/python

site: setup ## the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 interop/.venv/bin/mkdocs build

fuzz: ## every fuzz target for FUZZ_SECONDS (180), corpora minimised afterwards
	@FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run

nightly: setup build ## the long tests (see CONTRIBUTING.md)
	@.ci/wasm --debian
	@SLOWLIGHT_SCENARIOS=10000 SLOWLIGHT_KILLS=100 SLOWLIGHT_NODE_KILLS=200 SLOWLIGHT_ROW_KILLS=10000 SLOWLIGHT_BEDS=50 SLOWLIGHT_SOAK=1000000 SLOWLIGHT_SEEDS=30 SLOWLIGHT_DAYS=3653 SLOWLIGHT_SFTP=1 SLOWLIGHT_STARTS=2000 SLOWLIGHT_LINKS=200 SLOWLIGHT_LONG_LINKS=1 SLOWLIGHT_STUDIES=1 SLOWLIGHT_ADVICE= .ci/test

clean: ## remove everything that was built
	@cargo clean
	@rm -rf demo-out site .venv interop/.venv fuzz/target interop/*/target examples/*/target
