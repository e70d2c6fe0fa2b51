# The menu: `make` prints it. Logic lives in xtask/; xtask/cargo.sh is cargo with RocksDB and the target folder set.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help deps compiler check fix test sim sim-sweep sim-membership sim-rules sim-pairs sim-pairs-rules faults-check activation-check cases acceptance chaos run cluster build bench fuzz doc image image-base docker-test clean

cargo := xtask/cargo.sh
package := $(if $(CRATE),-p $(CRATE),--workspace)
# The end-to-end tests need the broker's binary and a python3 with pika.
e2e := $(if $(filter-out e2e,$(CRATE)),,yes)
ARGS ?=

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | column -t -s '|'

deps: ## install what is missing (Debian packages, cargo-nextest) and compile RocksDB once per machine
	@xtask/deps.sh test

# The part of it that a build needs: who only runs a node shall not wait for the tools of the tests.
compiler:
	@xtask/deps.sh build

check: compiler ## static checks, never writes: format, lints, documentation
	$(cargo) fmt --all --check
	$(cargo) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(cargo) doc --workspace --no-deps --locked --quiet

fix: deps ## rewrite what may be rewritten: lints, format, config/leveret.toml
	$(cargo) clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(cargo) fmt --all
	UPDATE=1 $(cargo) nextest run -p broker config::tests::the_documented_file

test: deps ## all tests, or those of one crate: make test CRATE=queue
	$(if $(e2e),$(cargo) build --locked --bins)
	$(if $(e2e),export E2E_PYTHON=$$(xtask/python.sh);) $(cargo) nextest run --locked $(package) $(ARGS)

sim: compiler ## a few seeds of the simulated cluster, or one: make sim (SIM_SEED=17 SIM_TRACE=1 in front)
	$(cargo) test --locked -p broker --lib replicated::sim -- --nocapture

sim-sweep: compiler ## many seeds of it: make sim-sweep N=1000
	SIM_SEEDS=$(or $(N),1000) $(cargo) test --release --locked -p broker --lib replicated::sim::nothing -- --nocapture

sim-membership: compiler ## members of queues through wipes, joins, forgets, drains and faults: make sim-membership N=1000
	SIM_SEEDS=$(or $(N),200) $(cargo) test --locked -p broker --lib cluster::changer::sim::whatever -- --nocapture

sim-rules: compiler ## breaks each rule that the simulations guard, and sees that it notices
	$(cargo) test --locked -p broker --lib sim::a_broken -- --ignored --nocapture

sim-pairs: compiler ## journals on two nodes, simulated: make sim-pairs N=2000, or one: SIM_SEED=17 SIM_TRACE=1 in front
	$(if $(N),SIM_SEEDS=$(N)) $(cargo) test --locked -p broker --lib pair::sim::tests::nothing -- --nocapture

sim-pairs-rules: compiler ## breaks each rule that it guards, and sees that it notices
	$(cargo) test --locked -p broker --lib pair::sim::tests::a_broken -- --ignored --nocapture

faults-check: compiler ## puts faults of docs/reconciliation-faults.md and docs/journal-pairs-faults.md back, and sees that tests notice
	xtask/faults.sh

activation-check: compiler ## every state of a journal's pair, with more of everything than the tests try
	$(cargo) test --release --locked -p activation --lib check -- --include-ignored --nocapture --test-threads 1

cases: deps build ## the black-box cases at full counts against the release build
	CASES=full E2E_PYTHON=$$(xtask/python.sh) LEVERET_BIN=$$($(cargo) target)/release/leveret $(cargo) nextest run --locked -p e2e --profile cases $(ARGS)

acceptance: build ## one acceptance line with its figure: make acceptance LINE=A5
	LEVERET_BIN=$$($(cargo) target)/release/leveret $(cargo) run --release --locked -p e2e --bin acceptance -- $(LINE) $(ARGS)

chaos: build ## three nodes killed, stopped and cut off under load: make chaos MINUTES=30 SEED=1
	LEVERET_BIN=$$($(cargo) target)/release/leveret $(cargo) run --release --locked -p e2e --bin acceptance -- B2 $(or $(MINUTES),30) $(or $(SEED),1)

run: compiler ## one node, data in ./data: make run ARGS='--set listeners.amqp=127.0.0.1:5673'
	$(cargo) build --release --locked -p broker --bin leveret
	exec $$($(cargo) target)/release/leveret --set data_dir=data $(ARGS)

cluster: compiler ## three nodes in the foreground, data in ./data/{a,b,c}
	$(cargo) build --release --locked -p broker --bin leveret
	exec xtask/cluster.sh $$($(cargo) target)/release/leveret $(ARGS)

build: compiler ## release binaries leveret, leveretctl, leveret-perf in the target folder
	$(cargo) build --release --locked --bin leveret --bin leveretctl --bin leveret-perf
	@ls -lh $$($(cargo) target)/release/leveret{,ctl,-perf}

bench: build ## compare with another broker in the same run: make bench PEER_URI=amqp://… PEER_PID=… (NODES=3: quorum queues)
	PEER_URI='$(PEER_URI)' PEER_PID='$(PEER_PID)' ONLY='$(ONLY)' NODES='$(NODES)' QUORUM='$(QUORUM)' xtask/bench.sh

fuzz: compiler ## ten minutes for each fuzzer: make fuzz TARGET=frames SECONDS_EACH=60
	TARGET='$(TARGET)' SECONDS_EACH='$(SECONDS_EACH)' xtask/fuzz.sh

doc: compiler ## API documentation of the workspace
	$(cargo) doc --workspace --no-deps --locked

image: ## container image leveret:latest (BUILD_IMAGE=… BASE_IMAGE=…: what it begins with)
	docker build -f docker/Dockerfile $(if $(BUILD_IMAGE),--build-arg BUILD_IMAGE=$(BUILD_IMAGE)) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) -t leveret:latest .

image-base: ## what the image begins with, made here, where nothing can be pulled (as root)
	xtask/docker-base.sh $(or $(BASE_IMAGE),debian:bookworm-slim) $(or $(BUILD_IMAGE),rust:1.95-bookworm)

docker-test: ## three nodes in containers: one is killed, all are restarted (TAKE_AS_IS=1: with the image that is there)
	TAKE_AS_IS='$(TAKE_AS_IS)' xtask/docker-test.sh

clean: ## remove the target folder and ./data; the compiled RocksDB stays
	rm -rf "$$($(cargo) target)" data
