# Every target sets up what it needs: a fresh clone with Python 3.11 and make is enough.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JOBS ?= 2
export OMP_NUM_THREADS ?= 1

# tests of numbers, run under a second kernel of OpenBLAS too: Prescott runs on every x86, others ignore the variable
NUMERICAL := tests/core tests/spectral tests/geometric tests/kernel tests/probabilistic tests/eval \
	tests/test_bridges.py tests/test_gradients.py
AVX2 := $(shell grep -qsw avx2 /proc/cpuinfo && echo yes)
PYTHONS ?= python3.11 python3.12 python3.13 python3.14

.PHONY: help demo test test-all test-matrix lint bench bench-quick accuracy tables docs dist clean

help:
	@echo "make demo         compare metrics on an embedded data set and write a report"
	@echo "make test         lint, types and tests; those of numbers under a second BLAS kernel too"
	@echo "make test-all     the slow exams too, and everything under the kernels Haswell and Prescott"
	@echo "make test-matrix  oldest and newest dependencies under every Python of PYTHONS that is there"
	@echo "make lint         ruff, mypy and numpydoc"
	@echo "make bench        side by side with other libraries, in environments of their own"
	@echo "make accuracy     every classical method on real data sets"
	@echo "make tables       method table and errata in docs/, stubs of the packages"
	@echo "make docs         the same, then the site in site/index.html: offline, with search"
	@echo "make dist         wheel and sdist in dist/, checked, installed into an empty environment and tried there"

# torch comes first and alone: its pinned version has a build without CUDA
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt hatchling editables
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable ".[cli,deep,test]"
	@touch $@

demo: $(VENV)/.ready
	$(BIN)/isometry compare digits --sample 600 --scoring map@r --folds 3 --jobs $(JOBS) --report isometry-report \
		--methods RCA,DCA,FisherML,TraceRatioML,GMML,DRML,IGML,LMNN,ITML,MCML,NCA,FastNCA,PCCA,LDML

lint: $(VENV)/.ready
	$(BIN)/ruff check isometry tests benchmarks examples docs
	$(BIN)/ruff format --check isometry tests benchmarks examples docs
	$(BIN)/mypy isometry
	$(BIN)/numpydoc lint $$(find isometry -name "*.py")

test: lint
	$(BIN)/python -m pytest -n $(JOBS)
	OPENBLAS_CORETYPE=Prescott $(BIN)/python -m pytest -n $(JOBS) $(NUMERICAL)

# exams of pages: they also need chromium and chromedriver, and the site of `make docs`, and are skipped without
$(VENV)/.browser: $(VENV)/.ready
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable ".[browser]"
	@touch $@

test-all: lint $(VENV)/.browser
	$(BIN)/python -m pytest -n $(JOBS) -m "slow or not slow"
	OPENBLAS_CORETYPE=Prescott ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n $(JOBS)
ifeq ($(AVX2),yes)
	OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2 $(BIN)/python -m pytest -n $(JOBS)
else
	@echo "not run under the kernel Haswell: it needs a CPU with AVX2"
endif

test-matrix: $(VENV)/.ready
	$(BIN)/python -m tests.matrix --jobs $(JOBS) $(PYTHONS)

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.shared_learners

bench-quick: $(VENV)/.ready
	$(BIN)/python -m benchmarks.run --quick

accuracy: $(VENV)/.ready
	$(BIN)/python -m benchmarks.accuracy

# the quick part: tables and stubs in the repository, which a test holds up to date
tables: $(VENV)/.ready
	$(BIN)/python -m docs.build

$(VENV)/.docs: $(VENV)/.ready
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable ".[cli,deep,docs]"
	@touch $@

# matplotlib's list of fonts is of this environment: one in the home folder may name files of another that is gone
docs: export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
docs: tables $(VENV)/.docs
	$(BIN)/python -m docs.site --jobs $(JOBS)

$(VENV)/.publish: $(VENV)/.ready
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable ".[publish]"
	@touch $@

dist: $(VENV)/.publish
	$(BIN)/python -m tests.distribution

clean:
	rm -rf $(VENV) .venv-matrix .pytest_cache .mypy_cache .ruff_cache .hypothesis isometry-report build dist site
