# Everything happens in .venv; PYTHON chooses the interpreter it is made from.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard cpp/*)

.PHONY: demo test test-slow test-oldest test-torch test-browser test-plain sanitize fuzz lint bench bench-growth docs wheel-check clean

demo: .venv/demo
	$(BIN)/python examples/diabetes.py

test: .venv/test
	$(BIN)/python -m pytest -n 2 -m "not slow"
	$(BIN)/python -m pytest --doctest-modules src/axil -q

test-slow: .venv/test
	$(BIN)/python -m pytest -m slow

# The lower bounds of pyproject.toml, all together. LightGBM 4.1 cannot train quantised trees, and before scikit-learn 1.8
# trees may part training rows with missing values otherwise than they predict them, which is refused.
test-oldest:
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint tests/oldest.txt '.[test]'
	.venv-oldest/bin/python -m pytest -n 2 -q tests/test_contract.py \
		-k "weights_times and not quantized and not (sklearn and nan)"
	.venv-oldest/bin/python -m pytest -q tests/test_cli.py -k "skops and not unpickled"  # what it trusts differs

# Derivatives of torch modules, in an environment of their own: torch is large. A build without CUDA will do.
test-torch: .venv-torch/torch
	.venv-torch/bin/python -m pytest -q tests/jacobian/test_torch.py tests/jacobian/test_implicit_page.py

# The page in a real Chromium, which is installed where apt-get can; here a missing browser is an error, not a skip.
test-browser: .venv/test .venv/browser
	scripts/install_chromium.sh
	AXIL_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -q tests/output/page

# The core as compilers without GNU's extensions build it: the same tests, and the same bits.
test-plain: .venv/test
	rm -rf build/plain
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/plain/dist . \
		--config-settings build-dir=build/plain --config-settings cmake.define.AXIL_PLAIN=ON
	AXIL_CORE=$$(echo $(CURDIR)/build/plain/_core*.so) $(BIN)/python -m pytest -q -m "not slow" \
		tests/test_core.py tests/test_core_variants.py tests/test_hostile_calls.py

# The tests of the kernels, with AddressSanitizer and UndefinedBehaviorSanitizer in the core: the first report ends the run.
# They must be loaded before Python is, what they print must not be captured, and Python's own memory at its end is no leak.
KERNEL_TESTS := tests/test_core.py tests/test_core_variants.py tests/test_hostile_calls.py tests/test_structure.py tests/weights tests/replay/test_recover.py tests/output/test_save.py
sanitize: .venv/test
	rm -rf build/sanitize
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/sanitize/dist . \
		--config-settings build-dir=build/sanitize --config-settings cmake.define.AXIL_SANITIZE=ON
	AXIL_CORE=$$(echo $(CURDIR)/build/sanitize/_core*.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest -q --capture=sys $(KERNEL_TESTS)

.venv-torch/torch: $(SOURCES)
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --editable '.[torch,scikit-learn]' torch==2.13.0 'pytest>=8'
	touch $@

fuzz: .venv/test
	PYTHONPATH=tests $(BIN)/python -m fuzz --n 2000 --jobs 2

lint: .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/test
	$(BIN)/python benchmarks/run.py

bench-growth: .venv/bench
	$(BIN)/python benchmarks/growth.py --large

# The manual, in build/manual; every warning is an error.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

wheel-check:
	scripts/check_wheel.sh

clean:
	rm -rf .venv .venv-oldest .venv-torch build dist

# Each stamp is one set of extras, installed anew when the build or the core changes; Python sources are live.
.venv/demo .venv/test .venv/lint .venv/bench .venv/browser .venv/docs: .venv/%: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
