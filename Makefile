# Every target sets up what it needs by itself: .venv, and Java 17 (tools/setup.sh).
PYTHON := .venv/bin/python
TEST_PROCESSES ?= 3
PYTEST_ARGS ?=
# Each file in one process, in the order of tests/conftest.py.
IN_PROCESSES = -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
# Of the soak and of fuzz: how long; the first has the seed SEED, 1 without one.
MINUTES ?= 30
# Of the simulation: how many seeds from which one on; SEED is one of them alone.
SEEDS ?= 10000
# Of the differential machine in test-all: how many programs.
PROGRAMS ?= 200
# Of the questions in test-all: about how many tables, fifty about each.
TABLES ?= 40
# Of test-all: which eighth of the broad tests' files, with one of the other PySparks, 1/8 to 8/8; all without.
SHARE ?=
# Of interrupts: how many.
COUNT ?= 10000
FROM ?= 1
SIM_ARGS = $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM))
# Of the disasters: how many processes are killed, how many frozen, how often a catalog is put back.
KILLS ?= 300
FREEZES ?= 30
RESTORES ?= 10
CATALOG ?= sqlite
# The releases that the tests know beside the one in requirements.lock, and that one's client; with
# the locked pandas or another one.
SPARK_RELEASES := 4.0.5 4.1.4 4.3.0 4.3.0-pandas-3.1.1
SPARK_OTHERS = $(if $(SHARE),$(word $(firstword $(subst /, ,$(SHARE))),$(SPARK_RELEASES) $(SPARK_RELEASES)),$(SPARK_RELEASES))
SPARK_CLIENT := 4.2.0
# The older ones leave sockets for the garbage collector to close.
OTHERS_WARN := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
# Tests marked `everywhere`; those of Connect alone; the short suite; what differs by PySpark and pandas.
EVERYWHERE := tests/where tests/lake/test_buckets.py
ON_CONNECT := tests/lake/streaming/test_killed.py
SHORT := tests/where
BY_VERSION := $(SHORT) tests/local/test_caller_rows.py tests/spark/test_many_vectors.py \
	tests/spark/test_spark_settings.py
# Tests without Spark, those of the catalog on SQLite (a few start a PostgreSQL of their own), and not
# those that switch a rule off and look for what is lost.
QUICK := tests/conflict tests/log tests/protocol tests/catalog tests/storage/test_local.py
QUICK_ARGS := --ignore tests/log/test_predicates_in_spark.py --ignore tests/catalog/test_interrupts.py \
	-k "not postgresql and not server and not without_a_rule"

# .venv is installed without compiled modules: each is compiled when it is first imported, and kept.
unexport PYTHONDONTWRITEBYTECODE
# Spark's Python workers are of the same environment as its driver.
export PYSPARK_PYTHON := $(CURDIR)/$(PYTHON)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-connect test-cluster test-versions check bench format clean \
	setup setup-python

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 15

demo: setup ## an order system: transactions over three tables, on real data
	@$(PYTHON) examples/demo.py

.PHONY: demo-bucket
demo-bucket: setup-python ## its orders in a bucket, taken by processes of two hosts, one of which is killed
	@$(PYTHON) examples/two_hosts.py

test: core-peers ## the tests' core, on a local Spark in parallel processes: 25 minutes on two idle cores
	@$(PYTHON) -m pytest $(IN_PROCESSES) --part core $(PYTEST_ARGS)

.PHONY: test-quick
test-quick: setup-python ## those without Spark, and fifty seeds of the simulation: two minutes
	@$(PYTHON) -m pytest $(IN_PROCESSES) $(QUICK) $(QUICK_ARGS) $(PYTEST_ARGS)
	@PYTHONPATH=src:. $(PYTHON) -m tests.simulation --seeds 50

# The differential machine is given as many programs as PROGRAMS says, the questions as many tables as TABLES.
test-all: test-rest ## the rest: broad tests, SEEDS of the simulation, Connect, a cluster, other PySparks, PROGRAMS, TABLES
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target sim test-connect test-cluster test-versions
	@$(MAKE) --no-print-directory diff SEEDS=$(PROGRAMS)
	@$(MAKE) --no-print-directory ask SEEDS=$(TABLES)
	@$(MAKE) --no-print-directory spark-sql

.PHONY: test-rest
test-rest: core-peers peers ## the tests that are marked broad or peer
	@$(PYTHON) -m pytest $(IN_PROCESSES) --part rest $(if $(SHARE),--share $(SHARE)) $(PYTEST_ARGS)

test-connect: setup ## those for every Spark, on a Spark Connect server; the client without Java too
	@$(PYTHON) -m pytest --spark=connect $(EVERYWHERE) $(ON_CONNECT)
	@tools/pyspark_venv.sh pyspark-client $(SPARK_CLIENT)
	@.cache/pyspark-client-$(SPARK_CLIENT)/bin/python -m pytest --spark=connect $(SHORT) \
		-k "kinds or change or merge or users"

test-cluster: setup ## those for every Spark, on a cluster; executors that die, second attempts
	@$(PYTHON) -m pytest --spark=cluster $(EVERYWHERE)

test-versions: setup ## a short suite on the other releases of PySpark, the newest with pandas 3 too
	@for version in $(SPARK_OTHERS); do \
		tools/pyspark_venv.sh pyspark $$version || exit 1; \
		python=$$PWD/.cache/pyspark-$$version/bin/python; \
		PYSPARK_PYTHON=$$python $$python -m pytest $(OTHERS_WARN) $(BY_VERSION) || exit 1; \
	done

check: setup-python ## format, lint, types, and the layers
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --cache-dir .cache/import-linter

bench: setup ## txlake beside the other engines, and docs/benchmarks.md's table: two hours
	@tools/delta_jars.sh
	@tools/python_peer.sh ducklake
	@$(PYTHON) -m bench --page $(BENCH_ARGS)

.PHONY: docs
docs: setup-python ## the documents as a site, in .cache/site
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(PYTHON) -m mkdocs build --strict --quiet
	@echo "$(CURDIR)/.cache/site/index.html"

.PHONY: sim
sim: setup ## the engine on a simulated machine: SEEDS=10000 FROM=1, or one of them again by SEED=n
	@PYTHONPATH=src:. $(PYTHON) -m tests.simulation $(SIM_ARGS) $(if $(IN_STORE),--in-store)

.PHONY: sim-show
sim-show: setup-python ## a seed of the simulation step by step, in a browser: SEED=1 PORT=0
	@PYTHONPATH=src:. $(PYTHON) -m tests.simulation show --seed $(or $(SEED),1) --port $(or $(PORT),0)

.PHONY: diff
diff: SEEDS = 200
diff: setup ## Delta Spark and txlake side by side: programs from SEEDS=200 FROM=1, and where they differ
	@tools/delta_jars.sh
	@PYTHONPATH=src:. $(PYTHON) -m tests.differential --seeds $(SEEDS) --from $(FROM)

.PHONY: ask
ask: SEEDS = 200
ask: setup ## questions in many ways, fifty about each of SEEDS=200 tables FROM=1, or one table's by SEED=n
	@tools/delta_jars.sh
	@PYTHONPATH=src:. $(PYTHON) -m tests.ask $(if $(SEED),--seeds 1 --from $(SEED),--seeds $(SEEDS) --from $(FROM))

.PHONY: spark-sql
spark-sql: setup ## Spark's own SQL tests, by lake.sql and in an enabled session: SHARE=1/8 ONLY=join
	@tools/spark_sql_tests.sh
	@PYTHONPATH=src:. $(PYTHON) -m tests.spark_sql --processes 2 $(if $(SHARE),--share $(SHARE)) \
		$(if $(ONLY),--only '$(ONLY)')

.PHONY: delta-tests
delta-tests: setup ## Delta Spark's own Python tests and examples, of a checkout, on txlake: CHECKOUT=/path/to/delta
	@test -n "$(CHECKOUT)" || { echo "make delta-tests CHECKOUT=/path/to/delta"; exit 2; }
	@tools/delta_jars.sh
	@PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(PYTHON) -m tests.delta_python $(CHECKOUT)
	@PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(PYTHON) -m tests.delta_python $(CHECKOUT) --connect
	@PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(PYTHON) -m tests.delta_python.examples $(CHECKOUT)

.PHONY: uc-suites
uc-suites: setup ## Delta's own suites of Unity Catalog on txlake's server: UNITYCATALOG=/path DELTA=/path, half an hour
	@test -n "$(UNITYCATALOG)" -a -n "$(DELTA)" || { \
		echo "make uc-suites UNITYCATALOG=/path/to/unitycatalog DELTA=/path/to/delta"; exit 2; }
	@tools/uc_suites.sh "$(UNITYCATALOG)" "$(DELTA)"

.PHONY: test-dbt
test-dbt: setup ## dbt projects on a lake, by dbt-txlake and by dbt-spark's session method
	@tools/python_peer.sh dbt-spark
	@$(PYTHON) -m pytest tests/dbt

.PHONY: dbt-suite
dbt-suite: setup ## all of dbt's own tests of adapters, on dbt-txlake
	@tools/python_peer.sh dbt-spark
	@TXLAKE_TEST_DBT_SUITE=1 $(PYTHON) -m pytest --timeout 1800 tests/dbt/test_suite.py

.PHONY: test-duckdb
test-duckdb: setup ## test and test-rest, while delta-rs reads all versions of its tables, and DuckDB the newest
	@tools/delta_jars.sh
	@tools/python_peer.sh duckdb-delta
	@$(PYTHON) -m pytest $(IN_PROCESSES) --every-version \
		--duckdb .cache/duckdb-delta/bin/python $(PYTEST_ARGS)

.PHONY: soak
soak: setup ## processes and engines write paths and lakes, killed now and then, for MINUTES=30
	@tools/delta_jars.sh
	@$(PYTHON) -m tests.soak --minutes $(MINUTES) --seed $(or $(SEED),1)

.PHONY: interrupts
interrupts: setup ## Ctrl-C at COUNT=10000 random instants of work on a lake, a fiftieth of them on Spark
	@PYTHONPATH=src:. $(PYTHON) -m tests.catalog.interrupted --count $(COUNT) --seed $(or $(SEED),1)
	@PYTHONPATH=src:. $(PYTHON) -m tests.lake.interrupted --count $$(( $(COUNT) / 50 )) \
		--seed $(or $(SEED),1)

.PHONY: disasters
disasters: setup-python ## processes are killed and frozen, catalogs put back: KILLS=300 CATALOG=store
	@PYTHONPATH=src:. $(PYTHON) -m tests.disasters --kills $(KILLS) --freezes $(FREEZES) \
		--restores $(RESTORES) --catalog $(CATALOG) --seed $(or $(SEED),1)

.PHONY: streams
streams: setup ## processes of streams are killed: KILLS=300, a tenth of that on Spark, and on Spark Connect
	@PYTHONPATH=src:. $(PYTHON) -m tests.lake.streaming.killed --rows --kills $(KILLS) --seed $(or $(SEED),1)
	@for on in "" --connect; do \
		PYTHONPATH=src:. $(PYTHON) -m tests.lake.streaming.killed $$on --kills $$(( $(KILLS) / 10 )) \
			--seed $(or $(SEED),1) || exit 1; \
	done

.PHONY: guards
guards: setup-python ## the list of guards as the code is now, and tests for those that are new
	@PYTHONPATH=src:. $(PYTHON) -m tests.mutation search

.PHONY: mutants
mutants: setup-python ## mutmut's mutants of conflict/ that no test notices: an hour
	@tools/mutants.sh conflict

.PHONY: console-pictures
console-pictures: setup-python ## the console's pictures in docs/, taken in Debian's Chromium
	@PYTHONPATH=src:. $(PYTHON) -m tests.console.pictures

.PHONY: hermitage
hermitage: setup ## Hermitage's anomalies at every level, and docs/hermitage.md of it: two minutes
	@$(PYTHON) -m tests.hermitage.page

.PHONY: fuzz
fuzz: setup-python ## logs made hostile by chance are read, for MINUTES=30 from SEED=1
	@PYTHONPATH=src:. $(PYTHON) -m tests.security.fuzz --minutes $(MINUTES) --seed $(or $(SEED),1)

.PHONY: bench-quick
bench-quick: setup ## the same on less data, the short suites alone: ten minutes
	@tools/delta_jars.sh
	@$(PYTHON) -m bench --quick $(BENCH_ARGS)

.PHONY: bench-branches
bench-branches: setup ## what branches cost, beside transactions and a lake without them: five minutes
	@$(PYTHON) -m bench.branches --page $(BENCH_ARGS)

.PHONY: bench-far
bench-far: setup ## statements on a store that takes 30 ms a request, and the other engines: BENCH_ARGS='--latency 5 30 100'
	@tools/delta_jars.sh
	@tools/s3a_jars.sh
	@tools/python_peer.sh ducklake
	@tools/servers.sh
	@$(PYTHON) -m bench.far --page $(BENCH_ARGS)

format: setup-python ## puts the code into its format
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

clean: ## removes what the other targets made
	rm -rf .venv .cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@tools/setup.sh

setup-python:
	@tools/setup.sh --no-java

# What the tests' core compares with, and the classes of the tests' JVMs.
.PHONY: core-peers
core-peers: setup
	@PYTHONPATH=src:. $(PYTHON) -m tests.class_archive >.cache/class-archive.log 2>&1 || \
		cat .cache/class-archive.log
	@tools/delta_jars.sh

# The programs of tests/peers.py, for the tests that `make test` leaves out: a script each.
PEERS := peer-servers peer-judge peer-rust_kernel peer-flight_jdbc peer-iceberg_spark
PYTHON_PEERS := python-duckdb-delta python-dbt-spark python-gx python-dbapi-compliance python-sqlalchemy-2.0 python-airflow python-dagster
.PHONY: peers $(PEERS) $(PYTHON_PEERS)
peers: $(PEERS) $(PYTHON_PEERS)
$(PEERS): peer-%: setup
	@tools/$*.sh
$(PYTHON_PEERS): python-%: setup
	@tools/python_peer.sh $*
