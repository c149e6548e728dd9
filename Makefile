# Everything here sets itself up: a machine with python3, its venv module and make is enough.
PYTHON ?= python3
# Another Python has a venv of its own: make test PYTHON=python3.13
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests wait for disks more than for anything else, so their files are in memory where that has 4 GB to spare.
IN_MEMORY = $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')

# What runs over PostgreSQL.
SUITE = tests/store tests/bus tests/app tests/web
# What needs SkyPilot's laboratory; the second that of Kubernetes as well.
SKY = tests/sky_lab tests/hybrid

SITE ?= dist/site

.PHONY: help demo site man test volume compiled pythons browser postgres ray gangs image kube sky sky-longer soak day rounds memory storm takeover fuzz lint types check bench wheel release audit lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.runtime  ## forty real jobs on an embedded cluster and cloud, in under 90 seconds
	$(BIN)/python -m starburst demo --json demo-out/summary.json

# Each of the workers would compile all tests, and the array engine, in its first run: that is done before, once.
$(VENV)/.compiled: $(VENV)/.dev
	@$(BIN)/python -m pytest tests/sim/test_array_engine.py -k long_queue >/dev/null & find tests -name 'test_*.py' | xargs -P 2 -n 270 env PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only >/dev/null; wait
	@touch $@

# Tests start hundreds of processes: what they import is compiled once.
test: $(VENV)/.compiled  ## all tests
	$(IN_MEMORY) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

volume: $(VENV)/.dev  ## more of some of them: the scheduler killed at 50 moments, crashed at every point; whole traces
	$(IN_MEMORY) $(BIN)/python -m pytest -n 2 --dist worksteal -m "volume and not postgres" tests/app tests/sim tests/store $(ARGS)

compiled: $(VENV)/.dev  ## the core compiled by mypyc: does it simulate alike under every policy? four minutes of a C compiler, once
	$(BIN)/python -m pytest -n 2 -m compiled tests/sim/test_compiled_engine.py $(ARGS)

pythons: $(VENV)/.dev  ## the fast part of the tests on the oldest and the newest Python of this machine; ARGS=--all for each
	$(BIN)/python -m tests.pythons $(ARGS)

browser: $(VENV)/.dev  ## the tests that drive the dashboard in a real browser (Debian's Chromium)
	$(BIN)/python -m pytest -m browser tests/web tests/security $(ARGS)

postgres: $(VENV)/.dev  ## the store, and what stands on it, over PostgreSQL (Debian's; it starts one)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m postgres tests/store tests/cli tests/app $(ARGS)
	$(BIN)/python -m pytest -n 2 --dist worksteal --postgres $(SUITE) $(ARGS)

ray: $(VENV)/.ray  ## the tests that need Ray, of which they start two nodes
	$(BIN)/python -m pytest -m ray tests/sim tests/storm $(ARGS)

gangs: $(VENV)/.dev  ## torchrun, JobSets, Ray and a batch script on kubelets and rented machines, with PyTorch and Ray from PyPI
	$(BIN)/python -m pytest -m gangs -s tests/gangs $(ARGS)

image: wheel  ## the image of deploy/Dockerfile in a container engine (Debian's; it starts one), started as the chart says
	$(BIN)/python -m pytest -m image tests/image $(ARGS)

kube: $(VENV)/.dev  ## the tests that need a real Kubernetes (they start one)
	$(BIN)/python -m pytest -m kube tests/kube tests/security $(ARGS)

sky: $(VENV)/.dev  ## the tests that need a real SkyPilot (they start one, with a cloud of its own)
	$(BIN)/python tests/translator/skypilot/check_schema.py
	$(BIN)/python -m pytest -m sky tests/clouds/sky/test_private_api.py
	$(BIN)/python -m pytest -m sky $(SKY) --ignore tests/sky_lab/longer $(ARGS)

sky-longer: $(VENV)/.dev  ## on that cloud: machines that nobody looks after in each state, a full disk, a gang without its worker; twenty minutes
	$(BIN)/python -m pytest -m sky tests/sky_lab/longer $(ARGS)

fuzz: $(VENV)/.dev  ## manifests run as a kubelet would and by each way out; then bent ones, for five minutes of processor time; ARGS="--minutes 60" for longer
	$(BIN)/python -m tests.translator.executed.test_executed
	STARBURST_ONE_FIELD_OF=1 $(BIN)/python -m pytest tests/translator/kinds/test_no_silent_loss.py
	$(BIN)/python -m tests.translator.fuzz $(ARGS)

soak: $(VENV)/.dev  ## three days in small on that cloud, each of 100 jobs and 36 faults of a seed; three hours; ARGS="--seed 4"
	SKYLAB_DOCKER=1 $(BIN)/python -m tests.sky_lab.day --jobs 100 --minutes 30 --faults 36 --machines 8 --patience 2 --times 3 $(ARGS)

day: $(VENV)/.dev  ## one such day, or as ARGS say: "--jobs 12 --minutes 2 --faults 6 --seed 7"
	$(BIN)/python -m tests.sky_lab.day $(ARGS)

rounds: $(VENV)/.dev  ## 30 rounds of kills and cut networks on that cloud, for leaks; an hour
	$(BIN)/python -m tests.sky_lab.chaos --log docs/results/leaks.md $(ARGS)

memory: $(VENV)/.dev  ## 100,000 jobs through the live scheduler in virtual time: is its memory flat? half an hour
	$(BIN)/python -m bench.soak $(ARGS)

takeover: $(VENV)/.dev  ## two schedulers on one store, whose leader is killed fifty times; five minutes; ARGS="--kills 200 --seed 7"
	$(BIN)/python -m tests.app.takeovers $(ARGS)

storm: $(VENV)/.dev  ## the live scheduler in virtual time, against a cluster and a cloud that fail: 10,000 seeds, an hour; ARGS="--seeds 1..100", --planted
	$(BIN)/python -m tests.storm $(or $(ARGS),--seeds 1..10000 --jobs 8 --days 0.1 --table)

lint: $(VENV)/.dev  ## style and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

check: lint types test  ## what a change must pass

bench: $(VENV)/.dev  ## measure: 100,000 jobs in 1,000 queues; an array of 100,000 jobs; the store, and jobs a second, over both databases; 2,000 rented machines; the simulator over 10³ … 10⁶ jobs; packing up to 100,000 tasks; a watched loop; a scheduler beside a busy API; applied Jobs taken in; Chakra's decisions on 5,000 nodes; Chakra beside kube-scheduler
	$(BIN)/python -m bench.queue $(ARGS)
	$(BIN)/python -m bench.arrays $(ARGS)
	$(BIN)/python -m bench.store $(ARGS)
	$(BIN)/python -m bench.throughput $(ARGS)
	$(BIN)/python -m bench.machines $(ARGS)
	$(BIN)/python -m bench.simulate $(ARGS)
	$(BIN)/python -m bench.packing $(ARGS)
	$(BIN)/python -m bench.iterator $(ARGS)
	$(BIN)/python -m bench.http $(ARGS)
	$(BIN)/python -m bench.adoption $(ARGS)
	$(BIN)/python -m bench.planner $(ARGS)
	$(BIN)/python -m bench.chakra $(ARGS)

wheel: $(VENV)/.dev  ## build the wheel into dist/
	$(BIN)/python -m build --no-isolation --wheel

release: $(VENV)/.release  ## everything of a release into dist/: packages, image context, chart, man pages, SBOMs, checksums
	$(BIN)/python deploy/release.py $(ARGS)

site: $(VENV)/.docs  ## the documents as a site, into dist/site; fails on links that lead nowhere; SITE=DIRECTORY
	$(BIN)/python -m docsite.site $(SITE)

man: $(VENV)/.dev  ## the man pages of all commands, into dist/man
	$(BIN)/python -m docsite.man dist/man

audit: $(VENV)/.release  ## known vulnerabilities of the locked versions, where the advisory data can be had
	$(BIN)/python deploy/audit.py

lock: $(VENV)/.dev  ## make the lock files anew from pyproject.toml and requirements/dev.in
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --extra kubernetes --extra mqtt --extra otel --extra postgres --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/image.txt
	$(BIN)/uv pip compile pyproject.toml requirements/dev.in --all-extras --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/dev.txt
	$(BIN)/uv pip compile requirements/release.in -c requirements/dev.txt --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/release.txt
	$(BIN)/uv pip compile requirements/docs.in -c requirements/dev.txt --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/docs.txt
	$(BIN)/uv pip compile requirements/ray.in -c requirements/dev.txt --universal --python-version 3.10 --generate-hashes \
	  --upgrade --quiet --custom-compile-command "make lock" -o requirements/ray.txt

clean:  ## remove what was built here
	rm -rf .venv .venv-* dist demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: requirements/runtime.txt | $(VENV)/.made
	@echo "setting up $(VENV): locked packages, once"
	@$(PIP) install --quiet --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/.made
	@echo "setting up $(VENV): locked packages, once"
	@$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.runtime

$(VENV)/.release: requirements/release.txt $(VENV)/.dev
	@$(PIP) install --quiet --require-hashes -r requirements/release.txt
	@touch $@

$(VENV)/.ray: requirements/ray.txt $(VENV)/.dev
	@$(PIP) install --quiet --require-hashes -r requirements/ray.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.dev
	@$(PIP) install --quiet --require-hashes -r requirements/docs.txt
	@touch $@
