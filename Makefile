# Two commands matter: `make demo` and `make test`. Each sets up what it needs and does that only once.
PY := .venv/bin/python
READY := .venv/.ready
PAGES := docs/metrics.md docs/settings.md docs/alerts.md docs/openapi.json
GENERATED := $(PAGES) alerts/lastgood_alerts/generated dashboards/lastgood_dashboards/generated

# What takes more than seconds; the rest is the fast part.
SLOW := slow or torchrun or browser or prometheus
# Tests wait for servers, browsers and ranks much of the time, so two workers fill two cores. A file is one worker's.
WORKERS ?= 2
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadfile

.PHONY: help demo test test-fast test-slow programs lint format bench generate generated screenshots clean

help:
	@echo "make demo       a real training run with a rank that lies, the verdict, the recovery, the console"
	@echo "make test       every test (test-fast: the part that takes two minutes)"
	@echo "make lint       ruff and mypy          make format     ruff's formatter"
	@echo "make generate   the generated files    make bench      every benchmark"
	@echo "make screenshots   the pictures in docs/images, from real runs"
	@echo "Options of the demo: make demo ARGS='--fault weight --no-console'"

demo: $(READY)
	$(PY) -m lastgood_console.cli demo $(ARGS)

test: generated test-fast test-slow

test-fast: $(READY)
	$(PYTEST) -m "not ($(SLOW))" $(ARGS)

test-slow: $(READY) programs
	$(PYTEST) -m "$(SLOW)" --durations=10 $(ARGS)

lint: $(READY)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy benchmarks scripts

format: $(READY)
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

bench: $(READY)
	@for file in benchmarks/*.py; do echo "== $$file"; $(PY) "$$file" || exit 1; done

generate: $(READY)
	$(PY) scripts/generate.py $(PAGES)
	$(PY) -m lastgood_alerts alerts/lastgood_alerts/generated
	$(PY) -m lastgood_dashboards dashboards/lastgood_dashboards/generated

generated: generate
	@test -z "$$(git status --porcelain -- $(GENERATED))" || \
		{ git diff -- $(GENERATED); git status --short -- $(GENERATED); echo "Generated files changed: commit them."; exit 1; }

screenshots: $(READY) programs
	$(PY) scripts/screenshots.py

programs: $(READY)
	@scripts/setup.sh programs

$(READY): constraints.txt pyproject.toml scripts/setup.sh
	@scripts/setup.sh python
	@touch $@

clean:
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
