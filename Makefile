.DEFAULT_GOAL := help
.PHONY: help setup demo kafka-demo test test-all lint types imports kafka s3 format bench bench-flink clean

bin := .venv/bin
# Spark finds Java by JAVA_HOME; a Java off the PATH is as good as any.
with_java := JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME &&

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## install everything: Python packages, Java where it is missing, compiled kernels
	@:

.venv/.ready: requirements.lock pyproject.toml
	@scripts/venv.sh
	@echo "Installing Python packages (some minutes the first time) ..."
	@$(bin)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(bin)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@scripts/java.sh >/dev/null
	@if [ -f src/panewise/kernel/warm.py ]; then echo "Compiling kernels ..." && $(bin)/python -m panewise.kernel.warm; fi
	@touch $@

demo: setup ## a first look: find segments in generated data
	@$(with_java) $(bin)/panewise demo

kafka-demo: setup ## a stream through a real Kafka broker, which restarts in the middle; about two minutes
	@scripts/kafka.sh >/dev/null
	@$(with_java) $(bin)/python demos/kafka/demo.py

test: lint types imports kafka s3 ## everything that must pass before a commit; CI runs this
	@$(with_java) SLOW="not slow" scripts/test.sh

test-all: lint types imports kafka s3 ## the same with the slow tests (HYPOTHESIS_PROFILE=thorough tries harder)
	@$(with_java) scripts/test.sh

lint: setup ## style and formatting
	@$(bin)/ruff check --quiet
	@$(bin)/ruff format --quiet --check

types: setup ## static types
	@$(bin)/mypy --no-error-summary

imports: setup ## who may import whom
	@$(bin)/lint-imports --no-logo

kafka: setup ## a Kafka broker and Spark's connectors for its tests; without them those are skipped
	@scripts/kafka.sh >/dev/null || echo "The tests that need Kafka will be skipped." >&2

s3: setup ## Hadoop's reader of S3 for its tests; without it those are skipped
	@scripts/s3.sh >/dev/null || echo "The tests that need S3 will be skipped." >&2

format: setup ## fix style and formatting where a machine can
	@$(bin)/ruff check --quiet --fix
	@$(bin)/ruff format --quiet

bench: setup ## measure, peers included, and write BENCHMARKS.md; two hours or three
	@$(with_java) $(bin)/python benchmarks/run.py

bench-flink: setup ## the same jobs in Flink, which it fetches (some minutes, 1 GB); adds a table to BENCHMARKS.md
	@flink="$$(scripts/flink.sh)" && $(with_java) $(bin)/python benchmarks/flink.py --python "$$flink" \
		--note out/bench/figures.jsonl && $(bin)/python benchmarks/run.py --report

clean: ## remove everything that the other commands made
	@rm -rf .venv build dist out src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .numba_cache
	@rm -rf .pytest_cache .ruff_cache derby.log metastore_db spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
