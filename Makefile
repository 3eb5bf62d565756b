# Everything a developer or CI runs. `make` alone lists the targets.
# Tools are installed under .tools/ at the versions named here.

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .tools/golangci-lint
# The proxy of Go modules refuses a module of goreleaser 2.17. Versions above 2.17.1 need a newer Go.
GORELEASER_VERSION := v2.16.0
CYCLONEDX_VERSION := v1.10.0
ACTIONLINT_VERSION := v1.7.12
SHIP_TOOLS := .tools/goreleaser .tools/cyclonedx-gomod .tools/actionlint
HELM := .tools/helm-v4.3.1
HELM_TOOLS := $(HELM) .tools/helm-v3.22.0 .tools/kube-score
KUBE_SCORE_VERSION := v1.20.0
# One cache for all builds: those of tests, of programs and of go run.
export GOFLAGS := -trimpath $(GOFLAGS)

.DEFAULT_GOAL := help
.PHONY: help demo run build test unit soak slowpaths race embedded fuzz bench lint redis parsers examples image ship ship-check ship-test upgrade-test client-check browser ci

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## bursts in, an even stream out, in under 20 s; needs nothing but Go
	@go run ./internal/demo/main

run: build ## the whole thing with the embedded store, as config.toml says
	bin/dispatcher run

build: ## both programs into bin/
	@[ -x bin/dispatcher ] || echo "building both programs: the first time takes a minute or two" >&2
	@go build -o bin/ ./cmd/...

test: redis ## all units, then each promise once with real processes
	@scripts/test

unit: redis ## the units alone
	@scripts/test units

soak: redis ## the long measurements, with their figures
	@scripts/soak

slowpaths: redis ## the tests of the scripts with all fast paths off
	@scripts/slowpaths

race: redis ## the units of all packages with goroutines, with the race detector
	@scripts/race

embedded: ## all tests of the scripts on the embedded store
	@scripts/embedded

fuzz: ## every fuzz target for 20 s
	@scripts/fuzz 20s

bench: redis ## against asynq on the same Redis, in one run; prints ratios, fails below the bars
	@go run ./test/bench

lint: $(GOLANGCI) ## gofmt, golangci-lint with go vet, luacheck, go.mod tidy
	@scripts/lint $(GOLANGCI)

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION) into .tools (about a minute, once)"
	@GOBIN=$(CURDIR)/.tools scripts/retry go install -ldflags="-s -w" github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.tools/goreleaser:
	@echo "installing goreleaser $(GORELEASER_VERSION) into .tools (up to ten minutes, once)"
	@GOBIN=$(CURDIR)/.tools scripts/retry go install -ldflags="-s -w" github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)

.tools/cyclonedx-gomod:
	@GOBIN=$(CURDIR)/.tools scripts/retry go install -ldflags="-s -w" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

.tools/actionlint:
	@GOBIN=$(CURDIR)/.tools scripts/retry go install -ldflags="-s -w" github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

.tools/helm-v%:
	@echo "installing helm v$* into .tools (four minutes, once)"
	@major=$(firstword $(subst ., ,$*)); GOBIN=$(CURDIR)/$@.new scripts/retry go install -ldflags="-s -w" helm.sh/helm/v$$major/cmd/helm@v$*
	@mv $@.new/helm $@ && rmdir $@.new

.tools/kube-score:
	@GOBIN=$(CURDIR)/.tools scripts/retry go install -ldflags="-s -w" github.com/zegl/kube-score/cmd/kube-score@$(KUBE_SCORE_VERSION)

redis:
	@scripts/need redis-server redis-server

parsers:
	@scripts/parsers

examples: redis ## each example, started and shown
	@scripts/examples

browser: ## the console in Chromium, a minute or two; not part of make test
	@scripts/browser

image: ## the container image of this commit, for two architectures, into image/; needs no Docker
	@cd test/deploy && go run ./image -to $(CURDIR)/image

upgrade-test: redis ## programs of the last release and of this commit on one Redis, in every order; 5 minutes
	@scripts/upgrade-test

ship: $(SHIP_TOOLS) ## all that a release has into dist/: archives, deb, rpm, sums, SBOMs, images
	@scripts/ship $(release)

ship-check: ## what is in deploy/, checked by programs
	@scripts/ship-check

ship-test: redis $(SHIP_TOOLS) $(HELM_TOOLS) ## what ship-check leaves out as it takes minutes: a release built twice, packages in a chroot, arm64; needs root
	@scripts/ship-test

client-check: ## the TypeScript client: types not stale, strict compiler, units, size
	@scripts/client-check

ci: lint client-check test race embedded slowpaths examples ship-check browser ## what CI runs: lint, the TypeScript client, tests, races, the embedded store, examples, what is shipped, the console in a browser, the commands of README and docs
	@scripts/readme-commands
