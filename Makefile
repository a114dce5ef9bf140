# Spillway. `make help` lists the targets.

GOLANGCI_LINT_VERSION := v2.15.0

BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the service into bin/
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/spillway ./cmd/spillway

# The process takes the place of the shell, and so of make's child: a signal
# reaches it directly.
.PHONY: run
run: build ## build and start the service on ./data, 127.0.0.1:8080 and 127.0.0.1:6060
	@exec $(BIN)/spillway

.PHONY: test
test: ## every test that needs nothing but Go and gcc, with the race detector
	go test -race -shuffle=on ./...
	go test -run Alloc ./internal/executor ./internal/server # which the race detector would spoil

.PHONY: integration
integration: ## the tests of the built binary; installs wrk if it is missing
	@command -v wrk >/dev/null || { \
		echo 'wrk is missing: installing the distribution package'; \
		apt-get update -qq && apt-get install -y -qq wrk; }
	@mkdir -p reports/integration
	go test -race -tags integration -count=1 -timeout 20m -artifacts -outputdir=reports/integration ./integration/

.PHONY: bench
bench: ## benchmarks of the strategies, the dispatcher and the executor, for benchstat
	go test -run '^$$' -bench . -benchmem ./strategies/... ./internal/executor/
	cd loadtest/peers && go test -run '^$$' -bench . -benchmem ./...

.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## vet, format and import rules
	$< run ./...

.PHONY: fmt
fmt: $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format the code
	$< fmt ./...

$(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@echo 'building golangci-lint $(GOLANGCI_LINT_VERSION), once'
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(BIN)/golangci-lint $@

FUZZ_TIME ?= 5m
CYCLES    ?= 200

.PHONY: torture
torture: ## the long forms of the fuzz, crash and linearizability tests
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target for $(FUZZ_TIME)"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_TIME) $$package; \
		done; \
	done
	@mkdir -p reports/integration
	SPILLWAY_TORTURE_CYCLES=$(CYCLES) go test -race -tags integration -count=1 -timeout 4h -artifacts -outputdir=reports/integration ./integration/

# Named so that nobody looks for them in vain: their parts are not built yet.
.PHONY: study peers pgo docker compose-up
study peers pgo docker compose-up:
	@echo 'make $@ is not there yet: see "What is not there yet" in the README' >&2; exit 1
