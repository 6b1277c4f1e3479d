# Cairn. A new machine needs Python 3.11 or newer, a JDK 17 and make; every verb installs everything else, once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BUILD := .build
STAMPS := $(BUILD)/stamps
VENV := .venv
PY := $(VENV)/bin/python
# The minor version of Spark that .venv has, and the others that the wheel has jars for.
MINOR := $(shell sed -n 's/^pyspark==\([0-9]*\.[0-9]*\)\..*/\1/p' python/constraints.txt)
OTHER_MINORS := $(patsubst python/minors/%.txt,%,$(wildcard python/minors/*.txt))
JAR := jvm-shim/build/$(MINOR)/libs/cairn-shim-$(MINOR).jar
PACKAGED_JAR := python/src/cairn/jars/cairn-shim-$(MINOR).jar
SHIM_SOURCES := $(shell find jvm-shim/src -not -path '*/test/*' -type f) \
  python/src/cairn/settings.json python/src/cairn/VERSION build.gradle settings.gradle

# Options of the verbs: make demo STORAGE=minio PROVIDER=rocksdb; make test PYTEST_ARGS='-k retention'
STORAGE ?= disk
PROVIDER ?= cairn
PYTEST_ARGS ?=
ARGS ?=
INPUTS ?= 100000

MINIO_MODULE := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
TOXIPROXY_MODULE := github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
GCS_MODULE := github.com/fsouza/fake-gcs-server@v1.56.1
VERSITYGW_MODULE := github.com/versity/versitygw/cmd/versitygw@v1.8.0
S3_SERVER_PACKAGES := 'moto[server]==5.2.5' 'proxy.py==2.4.10'

FLINK_PACKAGE := 'apache-flink==2.3.0'

# The virtual environment comes first, so that Spark, pytest and the engine use the same Python.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)
export PYTHON

PYTHON_FOLDERS := python integration-tests examples benchmarks scripts spec
# No daemon: it would keep half a gigabyte for hours after the verb has ended. A call without one takes some seconds more.
GRADLE := gradle --no-daemon --console=plain -q -PsparkJars="$$(cat $(STAMPS)/spark-jars)" -Ppython=$(CURDIR)/$(PY)

##@ Use

.PHONY: help
help: ## List the verbs
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nOptions: STORAGE=disk|minio|hdfs, PROVIDER=rocksdb|hdfs|cairn (demo); PYTEST_ARGS=... (test, test-tools, test-all); ARGS=... (demo, cluster, bench, spark-suites, spark-matrix, release); PYTHON=python3.x\n'

.PHONY: demo
demo: $(STAMPS)/venv $(STAMPS)/flights $(if $(filter minio,$(STORAGE)),minio s3a-jars) $(if $(filter hdfs,$(STORAGE)),shim hdfs-jars) $(if $(filter cairn,$(PROVIDER)),shim) ## Run a streaming job on real flights: killed, resumed, compared (STORAGE=minio or hdfs: checkpoints there)
	@$(PY) examples/flights/run.py --provider $(PROVIDER) --storage $(STORAGE) $(ARGS)

.PHONY: cluster
cluster: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/flights ## Run the demo on a cluster in containers and kill a worker; ARGS=--hold keeps it up
	@$(call BUILD_WHEEL,$(IMAGE_WHEEL))
	@scripts/cluster.sh $(ARGS)

##@ Develop

PYTEST = $(PY) -m pytest -c python/pyproject.toml --rootdir .
INTEGRATION = $(PYTEST) integration-tests
# The tests with recorded results of Spark's provider.
WITH_CONTROL = $(shell grep -rl --include='test_*.py' '^from harness.control import\|^from harness.moves import.*run_unmoved' integration-tests)
PARITY = integration-tests/parity
RECOVERY = integration-tests/faults integration-tests/recovery
OFFLINE = integration-tests/reader integration-tests/moves
# Of the Python package: state that no engine serves, and the commands.
OFFLINE_PYTHON = tests/unit/cli tests/unit/doctor tests/unit/offline tests/unit/reader tests/property/offline tests/property/reader
PYTHON_STATE = integration-tests/python_state
# What `make test` leaves out.
QUICK = -m "not slow and not abfs and not tools"

.PHONY: test
test: $(STAMPS)/venv shim s3a-jars hdfs-jars minio toxiproxy $(STAMPS)/flights $(STAMPS)/class-archive ## Run the tests of both languages, but for the slow ones
# Three beside each other, also on two cores: each of them often waits. The longest first, so that the last ones end
# at about the same time.
	@echo "Six parts, three beside each other; the output of each comes at its end, after some minutes"
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target recovery-tests engine-tests parity-tests java-tests unit-tests repository-tests

.PHONY: test-all
test-all: test test-tools test-offline test-python-state test-storage test-s3 azurite ## Run all tests: also more forms of operators and faults, more random histories, row encodings, other S3 servers, abfs, gs, and the cluster in containers
	cd python && ../$(PY) -m pytest tests -m "abfs or (slow and not s3)" $(PYTEST_ARGS)
	cd python && ../$(PY) -m pytest tests/property --hypothesis-profile thorough $(PYTEST_ARGS)
	$(GRADLE) -Ptests='.*ModelTest' -Phistories=20 test
	$(INTEGRATION) --junitxml $(BUILD)/slow-tests.xml -m "slow or abfs" $(PYTEST_ARGS)
	CAIRN_TEST_CONTROL=live $(PYTEST) $(WITH_CONTROL) $(QUICK) $(PYTEST_ARGS)

.PHONY: test-tools
test-tools: $(STAMPS)/venv shim s3a-jars minio toxiproxy $(STAMPS)/class-archive ## Run a short chaos run, a quick part of Spark's suites, and the tests of the tools: chaos run, Spark's suites, benchmarks, checks
	$(INTEGRATION) --junitxml $(BUILD)/tool-tests.xml -m "tools and not slow" $(PYTEST_ARGS)

.PHONY: record-control
record-control: $(STAMPS)/venv shim s3a-jars hdfs-jars minio ## Run Spark's provider and record the results that tests expect of Cairn: after a change of these tests
	$(if $(PYTEST_ARGS),,rm -rf integration-tests/recorded/$(MINOR))
	CAIRN_TEST_CONTROL=record $(PYTEST) $(WITH_CONTROL) $(QUICK) $(PYTEST_ARGS)

# Exit code 5: PYTEST_ARGS selects none of these.
.PHONY: test-python-state
test-python-state: $(STAMPS)/venv shim s3a-jars $(STAMPS)/class-archive ## Run the tests of state that Python functions read and write in bulk, or by chunks of keys
	$(PYTEST) $(PYTHON_STATE) --junitxml $(BUILD)/python-state-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

# Exit code 5: PYTEST_ARGS selects none of these.
.PHONY: test-offline
test-offline: $(STAMPS)/venv shim s3a-jars hdfs-jars golden minio $(STAMPS)/class-archive ## Run the tests of whole queries whose state is read, moved, cloned, repartitioned, corrected, and of the packages and commands that do it
	cd python && { ../$(PY) -m pytest $(OFFLINE_PYTHON) $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]; }
	$(PYTEST) $(OFFLINE) --junitxml $(BUILD)/offline-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

# All folders that no other verb has. Exit code 5: PYTEST_ARGS selects none of these.
.PHONY: test-storage
test-storage: $(STAMPS)/venv shim s3a-jars hdfs-jars minio toxiproxy $(STAMPS)/class-archive ## Run the tests of whole queries on HDFS, on S3 that fails, is slow or is counted, and of Spark's metadata by Cairn
	$(INTEGRATION) $(addprefix --ignore ,integration-tests/repository $(PARITY) $(RECOVERY) $(OFFLINE) $(PYTHON_STATE)) --junitxml $(BUILD)/storage-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

.PHONY: test-s3
test-s3: $(STAMPS)/venv minio versitygw s3-servers gcs ## Run the contract of an object store on versitygw and moto, on MinIO with encryption, a role and a proxy, and on gs
	cd python && ../$(PY) -m pytest tests/contract -m slow $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: $(STAMPS)/venv ## Read INPUTS (100000) mutated objects, frames and calls; SEED=n repeats a run
	$(PY) python/tests/property/hostile/fuzz.py --inputs $(INPUTS) $(if $(SEED),--seed $(SEED))

.PHONY: python-tests
python-tests: unit-tests engine-tests ## Run the tests of the Python package alone, but for the slow ones

# Exit code 5: PYTEST_ARGS selects none of these.
.PHONY: unit-tests
unit-tests: $(STAMPS)/venv shim minio
	cd python && { ../$(PY) -m pytest tests/unit $(addprefix --ignore ,$(OFFLINE_PYTHON)) $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]; }

.PHONY: engine-tests
engine-tests: $(STAMPS)/venv shim hdfs-jars minio
	cd python && { ../$(PY) -m pytest tests $(addprefix --ignore ,tests/unit $(OFFLINE_PYTHON)) $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]; }

.PHONY: java-tests
java-tests: $(STAMPS)/venv $(STAMPS)/gradle $(STAMPS)/spark-jars ## Run the tests of the shim alone
	$(GRADLE) test

.PHONY: repository-tests
repository-tests: $(STAMPS)/venv shim s3a-jars $(STAMPS)/flights ## Run the tests of README and documents
# Exit code 5: PYTEST_ARGS selects none of these.
	$(INTEGRATION)/repository --junitxml $(BUILD)/repository-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

# Exit code 5: PYTEST_ARGS selects none of these.
.PHONY: parity-tests
parity-tests: $(STAMPS)/venv shim s3a-jars $(STAMPS)/class-archive ## Run the tests that compare Cairn with Spark's own provider
	$(PYTEST) $(PARITY) --junitxml $(BUILD)/parity-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

.PHONY: recovery-tests
recovery-tests: $(STAMPS)/venv shim s3a-jars hdfs-jars minio toxiproxy $(STAMPS)/flights $(STAMPS)/class-archive ## Run the tests of faults and of recovery after them
	$(PYTEST) $(RECOVERY) --junitxml $(BUILD)/recovery-tests.xml $(QUICK) $(PYTEST_ARGS) || [ $$? = 5 -a -n "$(PYTEST_ARGS)" ]

.PHONY: check
check: $(STAMPS)/venv $(STAMPS)/google-java-format $(STAMPS)/spark-jars ## Check format, lint, types, layers, sizes and documents, as the CI does
	@scripts/check.sh

.PHONY: fmt
fmt: $(STAMPS)/venv $(STAMPS)/google-java-format ## Format Python and Java in place
	$(PY) -m ruff format $(PYTHON_FOLDERS)
	$(PY) -m ruff check --fix-only --quiet $(PYTHON_FOLDERS)
	scripts/java_format.sh --replace

.PHONY: lint
lint: check ## Same as check

.PHONY: bench
bench: $(STAMPS)/venv shim ## Compare Cairn with Spark's own providers: about an hour; ARGS='--list' lists more groups
	$(PY) benchmarks/run.py $(ARGS)

.PHONY: bench-s3
bench-s3: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/bench-jars ## Compare batches on MinIO behind 20 ms
	$(PY) benchmarks/run.py --group s3 $(ARGS)

.PHONY: bench-all
bench-all: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/bench-jars ## Run all groups of the benchmark: some hours
	$(PY) benchmarks/run.py --group all $(ARGS)

.PHONY: bench-transform
bench-transform: $(STAMPS)/venv shim ## Compare transformWithState of PySpark on Cairn, on Spark's RocksDB and over a dictionary
	$(PY) benchmarks/transform.py $(ARGS)

.PHONY: bench-nexmark
bench-nexmark: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/bench-jars ## Run Nexmark under three providers, with a small and a large state, on S3, and after a kill: some hours
	$(PY) benchmarks/run.py --group nexmark nexmark_adapted nexmark_large nexmark_s3 nexmark_recovery $(ARGS)

.PHONY: bench-shufflebench
bench-shufflebench: $(STAMPS)/venv shim ## Run a workload like ShuffleBench's: 1 M consumers of 32 and 1,024 bytes
	$(PY) benchmarks/run.py --group shufflebench $(ARGS)

.PHONY: bench-flink
bench-flink: $(STAMPS)/venv shim $(STAMPS)/flink ## Run the same queries in Spark and in Flink, which is installed into .build/flink
	$(PY) benchmarks/run.py --group engines engines_join engines_latency $(ARGS)

.PHONY: bench-requests
bench-requests: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/bench-jars ## Count the S3 requests per batch of Cairn and of Spark's providers
	$(PY) benchmarks/s3_requests.py $(ARGS)

.PHONY: bench-idle
bench-idle: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/bench-jars ## Count the S3 requests of Cairn with 200 partitions, 190 of them idle
	$(PY) benchmarks/s3_requests.py --providers cairn --format 2 --partitions 200 --busy-partitions 10 --batches 20 --result $(BUILD)/bench/s3-requests-idle.json $(ARGS)

.PHONY: chaos
chaos: $(STAMPS)/venv shim s3a-jars minio toxiproxy ## Run queries while everything around them fails, and check rows, state and what is left: SEED=7 MINUTES=10
	$(PY) integration-tests/chaos/run.py $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

.PHONY: spark-suites
spark-suites: $(STAMPS)/venv gradle shim s3a-jars minio ## Run Spark's own test suites under Cairn; compare with Spark's provider
	$(PY) integration-tests/spark_suites/run.py $(ARGS)

.PHONY: spark-matrix
spark-matrix: $(STAMPS)/venv shim s3a-jars minio ## Test Cairn on the other minor versions of Spark; ARGS='--minors 4.2' selects some
	@$(PY) integration-tests/minors/run.py $(ARGS)

##@ Build

.PHONY: shim
shim: $(PACKAGED_JAR) ## Build the shim (Java) for the Spark in .venv: jvm-shim/build/<minor>/libs/cairn-shim-<minor>.jar

$(JAR): $(SHIM_SOURCES) $(STAMPS)/gradle $(STAMPS)/spark-jars
	@echo "Building $@"
	@$(GRADLE) jar
	@touch $@

$(PACKAGED_JAR): $(JAR)
	@mkdir -p $(@D)
	@cp $< $@.new && mv $@.new $@

.PHONY: shims
shims: shim ## Build the shim for every minor version of Spark (the first time it installs each, 400 MB)
	@for minor in $(OTHER_MINORS); do scripts/minor_shim.sh $$minor; done

# The same sources give the same bytes, so that an image is built anew only if something has changed.
# That of the image has the jars that were built so far: it needs one only.
BUILD_WHEEL = rm -rf $(1) && (cd python && HATCH_QUIET=1 ../$(PY) -m hatchling build --directory $(CURDIR)/$(1))
IMAGE_WHEEL := $(BUILD)/image/own-wheel
WHEEL := $(BUILD)/wheel
JARS_OF_WHEEL := $(foreach minor,$(sort $(MINOR) $(OTHER_MINORS)),cairn-shim-$(minor).jar)

.PHONY: wheel
wheel: $(STAMPS)/venv shims ## Build the Python package, wheel and sdist, with the jars inside: .build/wheel/cairn_state-*
	@$(call BUILD_WHEEL,$(WHEEL))
	@jars=$$($(PY) -m zipfile -l $(WHEEL)/*.whl | grep -o 'cairn-shim-[0-9.]*\.jar' | sort | xargs); \
	[ "$$jars" = "$(JARS_OF_WHEEL)" ] || \
	  { echo "error: the wheel has the jars: $$jars. Next: make clean wheel" >&2; exit 1; }
	@ls $(WHEEL)

.PHONY: release
release: $(STAMPS)/venv ## Check, build, and date the changelog; print the commands of tag and upload (ARGS=--dry-run: change nothing)
	@$(PY) scripts/release.py $(ARGS)

.PHONY: image
image: $(STAMPS)/venv shim s3a-jars minio $(STAMPS)/flights ## Build the images of the cluster: cairn-spark:local, with Spark and Cairn
	@$(call BUILD_WHEEL,$(IMAGE_WHEEL))
	@$(PY) scripts/docker_images.py

.PHONY: docs
docs: $(STAMPS)/docs-venv $(STAMPS)/venv ## Build the site from the documents: .build/site/index.html
	@$(PY) scripts/site_pages.py pages
	@$(BUILD)/docs-venv/bin/zensical build --strict --clean
	@$(PY) scripts/site_pages.py check

$(STAMPS)/docs-venv: docs/requirements.txt
	@$(PYTHON) -m venv --clear $(BUILD)/docs-venv
	@$(BUILD)/docs-venv/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@mkdir -p $(@D) && touch $@

##@ Set up (the verbs above run these when they need them)

.PHONY: venv
venv: $(STAMPS)/venv ## Create the virtual environment .venv

$(STAMPS)/venv: python/pyproject.toml python/constraints.txt scripts/make_venv.sh
	@scripts/make_venv.sh $(VENV)
	@mkdir -p $(@D) && touch $@

$(STAMPS)/spark-jars: $(STAMPS)/venv
	@$(PY) -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")' > $@

.PHONY: gradle
gradle: $(STAMPS)/gradle ## Find Gradle on PATH or install it by apt-get

$(STAMPS)/gradle: scripts/install_gradle.sh
	@scripts/install_gradle.sh
	@mkdir -p $(@D) && touch $@

.PHONY: s3a-jars
s3a-jars: $(STAMPS)/s3a-jars ## Fetch the jars for s3a:// from Maven Central into .build/s3a-jars

$(STAMPS)/s3a-jars: build.gradle settings.gradle $(STAMPS)/gradle $(STAMPS)/spark-jars
	@echo "Fetching the s3a:// jars"
	@$(GRADLE) s3aJars
	@touch $@

# Drivers of tests start in half the CPU time with it; they do without it, too.
$(STAMPS)/class-archive: $(PACKAGED_JAR) $(STAMPS)/s3a-jars $(wildcard integration-tests/harness/scala/*.scala)
	@echo "Storing the classes of the tests' Spark drivers"
	@$(PY) integration-tests/harness/class_archive.py
	@touch $@

.PHONY: hdfs-jars
hdfs-jars: $(STAMPS)/hdfs-jars ## Fetch an HDFS, and the jars for abfs://, from Maven Central into .build

$(STAMPS)/hdfs-jars: build.gradle settings.gradle $(STAMPS)/gradle $(STAMPS)/spark-jars
	@echo "Fetching HDFS and the abfs:// jars"
	@$(GRADLE) hdfsJars
	@touch $@

.PHONY: golden
golden: $(STAMPS)/golden-checkpoints ## Fetch the checkpoints of Spark's own tests from Maven Central into .build/golden-checkpoints

$(STAMPS)/golden-checkpoints: build.gradle settings.gradle $(STAMPS)/gradle $(STAMPS)/spark-jars
	@echo "Fetching the checkpoints of Spark's own tests"
	@$(GRADLE) goldenCheckpoints
	@touch $@

.PHONY: bench-jars
bench-jars: $(STAMPS)/bench-jars ## Fetch the jar of Spark's file manager for s3a:// into .build/bench-jars

$(STAMPS)/bench-jars: build.gradle $(STAMPS)/gradle $(STAMPS)/spark-jars
	@$(GRADLE) benchJars
	@touch $@

.PHONY: flink
flink: $(STAMPS)/flink ## Install Flink for the benchmarks into .build/flink: 600 MB

$(STAMPS)/flink:
	@$(PYTHON) -m venv --clear $(BUILD)/flink
	@$(BUILD)/flink/bin/pip install --quiet --disable-pip-version-check $(FLINK_PACKAGE)
	@mkdir -p $(@D) && touch $@

.PHONY: minio
minio: $(BUILD)/tools/minio ## Build MinIO, the S3 server of the tests and the demo, once

$(BUILD)/tools/minio:
	@scripts/build_go_tool.sh $(MINIO_MODULE) $@ 1.26

.PHONY: toxiproxy
toxiproxy: $(BUILD)/tools/toxiproxy ## Build Toxiproxy, which makes connections of the tests slow or broken, once

$(BUILD)/tools/toxiproxy:
	@scripts/build_go_tool.sh $(TOXIPROXY_MODULE) $@ 1.17

.PHONY: gcs
gcs: $(BUILD)/tools/fake-gcs-server $(STAMPS)/gcs-jars ## Build fake-gcs-server, an emulator of Google's storage, and fetch the jar for gs://

$(BUILD)/tools/fake-gcs-server:
	@scripts/build_go_tool.sh $(GCS_MODULE) $@ 1.26

$(STAMPS)/gcs-jars: build.gradle settings.gradle $(STAMPS)/gradle $(STAMPS)/spark-jars
	@echo "Fetching the gs:// jar"
	@$(GRADLE) gcsJars
	@touch $@

.PHONY: versitygw
versitygw: $(BUILD)/tools/versitygw ## Build versitygw, another S3 server for the tests, once: ten minutes

$(BUILD)/tools/versitygw:
	@scripts/build_go_tool.sh $(VERSITYGW_MODULE) $@ 1.26

.PHONY: s3-servers
s3-servers: $(STAMPS)/s3-servers ## Install moto, another S3 server, and an HTTP proxy for the tests, into .build/s3-servers

$(STAMPS)/s3-servers:
	@$(PYTHON) -m venv $(BUILD)/s3-servers
	@$(BUILD)/s3-servers/bin/pip install --quiet --disable-pip-version-check $(S3_SERVER_PACKAGES)
	@mkdir -p $(@D) && touch $@

.PHONY: azurite
azurite: $(STAMPS)/azurite ## Install Azurite, the emulator of Azure's storage, from npm; it needs Node

$(STAMPS)/azurite:
	@npm install --silent --no-audit --no-fund --prefix $(BUILD)/azurite azurite@3.37.0
	@mkdir -p $(@D) && touch $@

.PHONY: flights
flights: $(STAMPS)/flights ## Fetch the flights of 2013 from New York into .build/flights

$(STAMPS)/flights: scripts/fetch_flights.py $(STAMPS)/venv
	@$(PY) scripts/fetch_flights.py $(BUILD)/flights
	@touch $@

$(STAMPS)/google-java-format: scripts/java_format.sh
	@scripts/java_format.sh --install
	@mkdir -p $(@D) && if [ -d $(BUILD)/google-java-format ]; then touch $@; fi

.PHONY: clean
clean: ## Remove build results; keep the virtual environment and the fetched tools
	rm -rf jvm-shim/build python/src/cairn/jars $(BUILD)/wheel .gradle

.PHONY: distclean
distclean: clean ## Remove everything that make has created
	rm -rf $(BUILD) $(VENV)
