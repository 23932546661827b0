# Two commands do everything: `make demo` runs the main job, `make test` the tests.
# Both install what is missing (Debian packages, when allowed to).
SHELL := /bin/bash
RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# What was just built, in whatever folder cargo is told to build.
MILLSTREAM := cargo run --locked --quiet --release -p millstream-cli --
FUZZ_SECONDS ?= 60
FUZZ_HOURS ?=
SCHEDULES ?= 3000000
SCHEDULE_SECONDS ?= 900
SCHEDULE_SEED ?= 1
DEMO_FLAGS ?=
COMPARE_FLAGS ?=
SOAK_SECONDS ?= 600
SOAK_FLAGS ?=
TRUTH_FLAGS ?=
RIGS_FLAGS ?=
CRATES_FLAGS ?=
MATRIX_FLAGS ?=
# What has the feature `clogs`; the command alone switches it on below.
CLOGGED := -p millstream-packet -p millstream-route -p millstream-lab \
  --features millstream-packet/clogs,millstream-route/clogs,millstream-lab/clogs
# All but those that move gigabytes against the kernel: `make judge` has them.
STACK_TESTS := $(filter-out kernel_judge,$(patsubst crates/stack/tests/%/main.rs,%,$(sort $(wildcard crates/stack/tests/*/main.rs))))

.PHONY: bpf clogs package demo compare compare-crates compare-hyper soak truth rigs test lint audit unit trials schedules judge matrix loom miri fuzz mutants bench packages semver peers build help

help:            ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build:           ## the millstream command, in release
	@scripts/need cargo:cargo:$(RUST) cc:gcc
	cargo build --locked --release -p millstream-cli

clogs:           ## the millstream command with the five historical clogs to be switched on (docs/clogs)
	@scripts/need cargo:cargo:$(RUST) cc:gcc
	cargo build --locked --release -p millstream-cli --features clogs

package:         ## static commands and Debian packages for x86_64 and aarch64, installed and run in an empty root (docs/package.md)
	scripts/package
	scripts/package_test

demo:            ## the built-in investigation erratic: why equal runs differ on this machine, forced and judged; a minute after the build
	@scripts/need cargo:cargo:$(RUST) cc:gcc
	cargo run --locked --profile demo -p millstream-cli --no-default-features -- investigate erratic --out out $(DEMO_FLAGS)

compare: build   ## the built-in experiment first-look: kernel beside Millstream; prints a table and names the page
	$(MILLSTREAM) run first-look --out out $(COMPARE_FLAGS)

soak: build      ## every byte checked for SOAK_SECONDS (600) on each stack, beside a busy disk; an hour: SOAK_SECONDS=3600 (docs/soak.md)
	$(MILLSTREAM) run soak --duration $(SOAK_SECONDS) --out out $(SOAK_FLAGS)

# Each target for less than alone, unless one says otherwise: 8 s each to the fuzz targets, 256 MiB to the judge.
test: FUZZ_SECONDS := $(if $(filter environment,$(origin FUZZ_SECONDS)),$(FUZZ_SECONDS),5)
test: export MILLSTREAM_JUDGE_BYTES ?= 268435456
test: lint unit trials judge fuzz   ## all tests

lint:            ## rustfmt, clippy and rustdoc, no warnings; the floors of the house, other machines, the oldest Rust, licences
	@scripts/need cargo:cargo:$(RUST) cc:gcc
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path peers/Cargo.toml
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	cargo clippy --locked $(CLOGGED),millstream-cli/clogs,millstream-cli/manual -p millstream-cli --all-targets --quiet -- -D warnings
	cargo clippy --locked -p millstream-tokio --features resolver --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	cargo clippy --locked --manifest-path peers/Cargo.toml -p peer-kernel -p peer-millstream -p peers-common --quiet -- -D warnings
	scripts/builds
	@scripts/need python3:python3
	scripts/house
	scripts/audit

audit:           ## licences and sources of all dependencies; with cargo-deny bans and advisories, too
	@scripts/need python3:python3
	scripts/audit

unit:            ## tests beside the code, the stack's behaviour, the lab's runs
	@SOFT=1 scripts/need pg_ctlcluster:postgresql
	cargo test --locked --workspace --exclude millstream --exclude millstream-tcp --quiet
	cargo test --locked $(CLOGGED) --lib --quiet -- clog
	cargo test --locked -p millstream --doc --quiet
	cargo test --locked -p millstream-tokio --features resolver --test tasks --quiet -- examples
	@scripts/need python3:python3
	python3 scripts/need_test.py --quiet
	python3 scripts/attack_cost_test.py --quiet
	python3 scripts/audit_test.py --quiet
	python3 scripts/house_test.py --quiet
	python3 scripts/mutants_test.py --quiet
	python3 scripts/truth_test.py --quiet
	python3 scripts/gate_rates_test.py --quiet
	cargo build --locked -p millstream-cli --features clogs --quiet
	python3 scripts/walks_test.py --quiet
	python3 scripts/pages_test.py --quiet
	cd peers && python3 -m unittest --quiet orchestrator.tests
	cargo test --locked --manifest-path peers/Cargo.toml -p peer-kernel -p peers-common --quiet
	cargo test --locked --profile simulated -p millstream-tcp --quiet
	cargo test --locked --profile simulated -p millstream-tcp --features tracing --lib --quiet -- tests::tracing
	cargo test --locked --profile simulated -p millstream --lib --examples $(STACK_TESTS:%=--test %) --quiet

judge:           ## whole paths with the kernel as the other side (release: gigabytes are moved)
	@SOFT=1 scripts/need ping:iputils-ping nc:netcat-openbsd curl:curl tshark:tshark ip:iproute2
	cargo test --locked --release -p millstream --test kernel_judge

matrix:          ## the kernel as judge: every control, loss, delay and reordering; four hours
	@scripts/need cargo:cargo:$(RUST) cc:gcc
	cargo build --locked --release -p millstream-cli
	$(MILLSTREAM) run judge --out out $(MATRIX_FLAGS)

schedules:       ## SCHEDULES random schedules of two connections (3 million) from SCHEDULE_SEED on, for at most SCHEDULE_SECONDS (900)
	MILLSTREAM_SCHEDULES=$(SCHEDULES) MILLSTREAM_SCHEDULE_SECONDS=$(SCHEDULE_SECONDS) MILLSTREAM_SEED=$(SCHEDULE_SEED) \
	  cargo test --locked --profile schedules -p millstream-tcp --lib schedule::schedules -- --nocapture

trials:          ## the part of loom and miri that there is always time for: a few minutes
	scripts/trials quick

loom:            ## every interleaving of what is lock-free
	scripts/trials loom

miri:            ## undefined behaviour in packet and link, which alone have unsafe code; needs nightly Rust with the miri component
	scripts/trials miri

fuzz:            ## every fuzz target for FUZZ_SECONDS (60), or for FUZZ_HOURS; first, that the corpus reaches every state
	@scripts/need g++:g++
	CARGO_TARGET_DIR=fuzz/target cargo test --locked --manifest-path fuzz/Cargo.toml --test states --quiet -- --nocapture
	fuzz/run $(if $(FUZZ_HOURS),$$(($(FUZZ_HOURS) * 3600)),$(FUZZ_SECONDS))

mutants:         ## whether tests notice MUTANTS_SAMPLE (200) changes to the stack's crates, drawn by MUTANTS_SEED; fails below MUTANTS_LEAST (90) percent; hours
	@scripts/need cargo:cargo:$(RUST) cc:gcc python3:python3
	scripts/mutants

packages:        ## every crate as it would be published (docs/release.md)
	cargo package --locked --workspace --no-verify --allow-dirty --quiet

semver:          ## the public surface of the library's crates beside that of 0.1.0 (docs/release.md)
	cargo semver-checks --baseline-rev $$(sed -n 's/^`\([0-9a-f]*\)`:.*/\1/p' docs/release.md) \
	  -p millstream -p millstream-link -p millstream-packet -p millstream-route -p millstream-tcp -p millstream-tokio -p millstream-wire

bpf:             ## the BPF programs that count in the kernel, from C; users need no compiler
	@scripts/need clang:clang llvm-strip:llvm
	crates/observe/bpf/build

bench:           ## the packet layer and the route table beside their peers
	cargo bench --locked -p millstream-packet
	cargo bench --locked -p millstream-route

peers:           ## the stack beside its peers (QUICK=1, ONLY=smoltcp, WORKLOAD=rr, ROUNDS=n, WINDOW=s, NO_BUILD=1)
	@scripts/need python3:python3
	peers/peers.py $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)") $(if $(WORKLOAD),--workload "$(WORKLOAD)") \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WINDOW),--window $(WINDOW)) $(if $(NO_BUILD),--no-build)

compare-crates:  ## forwarders of a TUN device over Millstream, netstack-smoltcp and ipstack; needs root (CRATES_FLAGS, docs/peers.md)
	@scripts/need cargo:cargo:$(RUST) cc:gcc ip:iproute2 python3:python3
	cargo build --locked --release --manifest-path peers/Cargo.toml --target-dir peers/target -p peer-forward
	peers/forward/compare.py $(CRATES_FLAGS)

compare-hyper:   ## hyper over Millstream beside hyper over the kernel's sockets; needs root (HYPER_FLAGS, docs/peers.md)
	@scripts/need cargo:cargo:$(RUST) cc:gcc ip:iproute2 python3:python3 wrk:wrk
	cargo build --locked --release -p millstream-tokio --example serve
	scripts/compare-hyper $(HYPER_FLAGS)

truth: build     ## whether investigate names causes that are made on purpose (TRUTH_FLAGS: --quick, --cases NAMES, --minutes N, --seed N)
	@SOFT=1 scripts/need ip:iproute2 iperf3:iperf3 nft:nftables ethtool:ethtool strace:strace
	@scripts/need python3:python3 cc:gcc
	scripts/truth $(TRUTH_FLAGS)

rigs: build      ## whether it names causes in programs that outsiders wrote (RIGS_FLAGS: NAME, --both, --list)
	@SOFT=1 scripts/need ip:iproute2 iperf3:iperf3 nft:nftables go:golang node:nodejs haproxy:haproxy nginx:nginx memcached:memcached redis-server:redis-server psql:postgresql strace:strace
	@scripts/need python3:python3 cc:gcc
	scripts/rigs/run $(RIGS_FLAGS)
