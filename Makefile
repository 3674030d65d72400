# Everything happens in .venv; PYTHON chooses the interpreter it is made from: make test PYTHON=python3.13.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/*)

.PHONY: help demo quick test test-slow coverage test-oldest test-oldest-all test-torch test-forecasts test-browser test-plain test-gpu sanitize fuzz tuned lint format bench bench-gpu bench-growth bench-large docs wheel-check clean
.DEFAULT_GOAL := help

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/demo ## Build, install and explain five held-out patients; ends with a page for the browser
	@echo "axil: explaining five patients"
	@$(BIN)/python examples/diabetes.py

# The hash of a case's name decides whether it is in the tenth (tests/subsets.py).
quick: lint ## In two minutes: lint, the kernels, the explainer, a tenth of the contract tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow" tests/kernels tests/test_core_variants.py tests/test_import.py \
		tests/test_explainer.py
	$(BIN)/python -m pytest -q -m "not slow" --one-in 10 tests/test_contract.py

# By file, the largest first: tests of one file share fitted models, which two workers would both fit.
test: .venv/test ## The test suite, without slow tests, and the examples in docstrings
	@echo "axil: running the test suite on two cores: some six minutes"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" --doctest-modules tests src/axil --ignore=src/axil/kernels/cuda  # needs CuPy

test-slow: .venv/test ## The slow tests: experiments, the gallery, the long grids
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

coverage: .venv/test ## The test suite with the lines and branches of src/axil that it runs
	$(BIN)/python -m pip install --quiet 'pytest-cov>=5'
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" --cov=axil --cov-branch --cov-report=term:skip-covered

# The lower bounds of pyproject.toml, all together, on the oldest Python of this machine. LightGBM 4.1 cannot train quantised
# trees, and before scikit-learn 1.8 trees may send missing values one way in training and the other way in prediction, which
# is refused.
test-oldest: .venv-oldest/test ## The contract tests with the oldest versions of Python and of all libraries
	.venv-oldest/bin/python -m pytest -n 2 tests/test_contract.py \
		-k "weights_times and not quantized and not (sklearn and nan)"
	.venv-oldest/bin/python -m pytest -q tests/cli -k "skops and not unpickled"  # what it trusts differs

test-oldest-all: .venv-oldest/test ## The whole test suite and the fuzzer with the oldest versions
	.venv-oldest/bin/python -m pytest -n 2 --dist loadfile -m "not slow" -k "not quantized" tests
	.venv-oldest/bin/python -m tests.fuzz --n 5000 --jobs 2

.venv-oldest/test: tests/oldest.txt $(SOURCES)
	test -x .venv-oldest/bin/python || "$$(scripts/find_python.sh oldest)" -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint tests/oldest.txt --editable '.[test]'
	touch $@

# Derivatives of torch modules, in an environment of their own: torch is large. A build without CUDA will do.
test-torch: .venv-torch/torch ## Derivatives of torch modules
	.venv-torch/bin/python -m pytest tests/implicit --ignore=tests/implicit/test_mean.py  # which needs XGBoost, and no torch

# Forecasters of mlforecast and skforecast, and the recipes for MLflow and FastAPI, in an environment of their own: they bring numba.
test-forecasts: .venv-forecasts/forecasts ## Forecasts of mlforecast and skforecast; the recipes for MLflow and FastAPI
	.venv-forecasts/bin/python -m pytest tests/forecasts tests/test_production.py

# The page in a real Chromium, which is installed where apt-get can; here a missing browser is an error, not a skip.
test-browser: .venv/test .venv/browser ## The page and the report in a real Chromium
	scripts/install_chromium.sh
	AXIL_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/output/page tests/report tests/test_comparison_browser.py

# The core as compilers without GNU's extensions build it: the same tests, and the same bits.
test-plain: .venv/test ## The kernels built as plain C++17: the same tests
	rm -rf build/plain
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/plain/dist . \
		--config-settings build-dir=build/plain --config-settings cmake.define.AXIL_PLAIN=ON
	AXIL_CORE=$$(echo $(CURDIR)/build/plain/_core*.so) $(BIN)/python -m pytest -q -m "not slow" \
		tests/kernels tests/test_core_variants.py tests/test_hostile_calls.py

# The tests of the kernels, with AddressSanitizer and UndefinedBehaviorSanitizer in the core: the first report ends the run.
# They must be loaded before Python is, what they print must not be captured, and Python's own memory at its end is no leak.
KERNEL_TESTS := tests/kernels tests/test_core_variants.py tests/test_hostile_calls.py tests/structure tests/weights tests/replay/test_recover.py tests/test_files.py
sanitize: .venv/test ## The kernels' tests under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/sanitize
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/sanitize/dist . \
		--config-settings build-dir=build/sanitize --config-settings cmake.define.AXIL_SANITIZE=ON
	AXIL_CORE=$$(echo $(CURDIR)/build/sanitize/_core*.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest -q --capture=sys $(KERNEL_TESTS)

.venv-torch/torch: $(SOURCES)
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --editable '.[lightgbm,pandas,torch,scikit-learn]' torch==2.13.0 'pytest>=8'
	touch $@

.venv-forecasts/forecasts: $(SOURCES)
	test -x .venv-forecasts/bin/python || $(PYTHON) -m venv .venv-forecasts
	.venv-forecasts/bin/python -m pip install --quiet --editable '.[lightgbm,pandas,plots,scikit-learn]' \
		'mlforecast>=1.0' 'skforecast>=0.20' 'mlflow-skinny>=3' fastapi httpx2 statsmodels 'pytest>=8'
	touch $@

fuzz: .venv/test ## 5,000 random models of every library: exact or refused; answers against replays in NumPy; some five minutes of one core
	$(BIN)/python -m tests.fuzz --n 5000 --jobs 2

# DATA: a folder with the paper's data sets as CSV files; without it scikit-learn's own are taken.
tuned: .venv/test ## 200 models as tuners set them: how many are exact, and what refuses the others
	$(BIN)/python experiments/tuned.py --jobs 2 $(if $(DATA),--data $(DATA))

lint: .venv/lint ## Style, types and layers: ruff, the budgets of style, mypy, import-linter, what type checkers make of user code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/style_budgets.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/typing

format: .venv/lint ## Format code, and Python in Markdown, as make lint wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/test ## Speed and memory of the kernels, and every method, as ratios
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/ways.py
	$(BIN)/python benchmarks/questions.py

# On a machine with an NVIDIA GPU, with a CuPy that fits its driver: make test-gpu CUDA=cuda12. Elsewhere these tests are skipped or not collected.
CUDA ?= cuda13
test-gpu: .venv/test ## The kernels and explainers on a GPU
	$(BIN)/python -m pip install --quiet '.[$(CUDA)]'
	$(BIN)/python -m pytest -q -rs tests/kernels tests/weights/test_boosting.py tests/adapters/test_routes.py tests/test_devices.py tests/contributions/test_contribution_devices.py -k "cuda or gpu or device"

bench-gpu: .venv/test ## Speed on a GPU, beside the cores of the same machine
	$(BIN)/python -m pip install --quiet '.[$(CUDA)]'
	$(BIN)/python benchmarks/gpu.py --out benchmarks/results/gpu.json

bench-growth: .venv/bench ## Time against rows, trees, leaves and queries, up to ten million rows
	$(BIN)/python benchmarks/growth.py --large

bench-large: .venv/bench ## A county's model of 364,000 sales and 2,460 trees of 235 leaves: sweeps, top, estimates and memory
	$(BIN)/python benchmarks/large.py

docs: .venv/docs ## The manual, in build/manual; every warning is an error
	$(BIN)/zensical build --clean --strict --config-file mkdocs.yml

wheel-check: ## A wheel, installed and run where there is no compiler
	scripts/check_wheel.sh

clean: ## Remove environments and builds
	rm -rf .venv .venv-oldest .venv-torch .venv-forecasts .cache build dist

# Each stamp is one set of extras, installed again when the build or the core changes; Python sources are live.
.venv/demo .venv/test .venv/lint .venv/bench .venv/browser .venv/docs: .venv/%: $(SOURCES)
	@test -x $(BIN)/python || { echo "axil: making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "axil: compiling the core and installing axil[$*] in .venv: one to three minutes, without output"
	@$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
