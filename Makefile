# Everything a developer or CI runs. `make` alone lists the targets.
# Tools are installed under .tools/ at the versions named here.

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .tools/golangci-lint
# A busy machine may take ten times as long as one that has nothing else to do.
TIMEOUT := 40m
GO_TEST := go test -race -timeout $(TIMEOUT)
# The tests of the whole system measure time: they run after the others, alone.
UNIT := $(shell go list ./... 2>/dev/null | grep -v /test)

.DEFAULT_GOAL := help
.PHONY: help demo run build test unit system race fuzz bench lint redis parsers ci

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## bursts in, an even stream out, in under 20 s; needs nothing but Go
	@go run ./cmd/dispatcher demo

run: build ## the whole thing with the embedded store, as config.toml says
	bin/dispatcher run

build: ## both programs into bin/
	@go build -trimpath -o bin/ ./cmd/...

test: redis parsers ## all tests: units with the race detector, then the whole system
	@$(GO_TEST) $(UNIT)
	@go test -timeout $(TIMEOUT) -count=1 ./test

unit: redis parsers ## tests but those of the whole system
	@$(GO_TEST) $(UNIT)

system: redis ## tests of the whole system, with their figures
	@go test -timeout $(TIMEOUT) -count=1 -v ./test

race: redis parsers ## the unit tests five times over with the race detector
	@$(GO_TEST) -count=5 $(UNIT)

fuzz: ## every fuzz target for 20 s
	@scripts/fuzz 20s

bench: redis ## against asynq on the same Redis, in one run; prints ratios, fails below the bars
	@go run ./test/bench

lint: $(GOLANGCI) ## gofmt, go vet, golangci-lint, luacheck, go.mod tidy
	@scripts/lint $(GOLANGCI)

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION) into .tools (about a minute, once)"
	@GOBIN=$(CURDIR)/.tools scripts/retry go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

redis:
	@scripts/need redis-server redis-server

parsers:
	@scripts/parsers

ci: lint test ## what CI runs: lint, tests, the commands of the README
	@scripts/readme-commands
