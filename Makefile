# muster's own commands. `make help` lists them.

VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS   := -s -w -X github.com/muster-dev/muster/launcher/version.release=$(VERSION)
# Leaves out what nobody calls: gRPC's web page of traces, which alone is a fifth of the
# agent, and the writer of manual pages.
TAGS      := grpcnotrace,urfave_cli_no_docs
NATIVE    := linux/$(shell go env GOARCH)
PLATFORMS ?= $(NATIVE)
export CGO_ENABLED ?= 0
# Only what asks NVML needs cgo. go-nvml wraps deprecated functions too, and functions that
# a driver lacks must not matter before they are called (-z lazy).
CGO_PACKAGES := ./plugins/nvml/... ./cmd/muster-plugin-nvml ./launcher/testbed/gpus
export CGO_CFLAGS  ?= -O2 -g -Wno-deprecated-declarations
export CGO_LDFLAGS ?= -O2 -g -Wl,-z,lazy

.PHONY: help build release run test chaos race check fresh size bench gpu-check gpu-check-programs proto hosts deps clean

help:
	@sed -n 's/^## //p' Makefile

## make run      start examples/local.hcl: four ranks on this machine
run: build
	bin/muster run examples/local.hcl

## make build    bin/muster, with the agent for this machine's kind of host inside
build:
	@go run ./cmd/carry -into cmd/muster/carried -tags "$(TAGS)" -ldflags "$(LDFLAGS)" $(PLATFORMS)
	@go build -trimpath -tags carry,$(TAGS) -ldflags "$(LDFLAGS)" -o bin/muster ./cmd/muster

## make release  the same, with agents for linux/amd64 and linux/arm64
release:
	@$(MAKE) build PLATFORMS="linux/amd64 linux/arm64"

## make test     all tests, and first what they need (as root: Debian packages)
# One package after the other where tests wait for real processes and count seconds; those
# that mostly wait go two at a time.
COUNTING := /launcher/(endtoend|faulttest|testbed|remote)$$
test: deps build
	@go build -o bin/tools/ ./cmd/gotest
	@CGO_ENABLED=1 bin/tools/gotest -count=1 $(filter ./plugins/% ./cmd/%,$(CGO_PACKAGES))
	@MUSTER_BINARY=$(CURDIR)/bin/muster bin/tools/gotest -count=1 -p 2 -timeout 10m $$(go list ./... | grep -vE '$(COUNTING)')
	@MUSTER_BINARY=$(CURDIR)/bin/muster bin/tools/gotest -count=1 -p 1 -timeout 15m $$(go list ./... | grep -E '$(COUNTING)')

## make chaos    500 seeds of faults for gangs and 100 for tasks (root; half an hour)
SEEDS      ?= 500
TASK_SEEDS ?= 100
chaos: deps build
	@MUSTER_BINARY=$(CURDIR)/bin/muster MUSTER_FAULT_SEEDS=$(SEEDS) go test -count=1 -timeout 90m -run 'TestFaults$$' ./launcher/faulttest
	@MUSTER_BINARY=$(CURDIR)/bin/muster MUSTER_FAULT_SEEDS=$(TASK_SEEDS) go test -count=1 -timeout 90m -run 'TestSweepFaults$$' ./launcher/faulttest

## make race     the tests that stay within one process, by the race detector
SEPARATE := /(cmd|boundaries|bench|endtoend|faulttest|gpucheck|testbed|torchtest|examples)(/|$$)
race:
	@go build -o bin/tools/ ./cmd/gotest
	@CGO_ENABLED=1 bin/tools/gotest -race -count=1 -timeout 10m $$(go list ./... | grep -vE '$(SEPARATE)')

## make check    vet, staticcheck, import rules, format, generated code, go.mod, cross-builds
GO_FOLDERS := $(wildcard cmd launcher rendezvous plugins examples)
check: fresh size
	@unformatted=$$(gofmt -l $(GO_FOLDERS)); [ -z "$$unformatted" ] || { echo "not as gofmt has it:" $$unformatted; exit 1; }
	@go mod tidy -diff
	@go vet ./...
	@GOOS=darwin go vet ./cmd/muster
	@go tool staticcheck ./...
	@CGO_ENABLED=1 go vet $(CGO_PACKAGES)
	@CGO_ENABLED=1 $$(go tool -n staticcheck) $(CGO_PACKAGES)
	@go run ./cmd/gotest -count=1 ./launcher/boundaries ./examples
	@GOOS=darwin GOARCH=arm64 go build -tags $(TAGS) -o /dev/null ./cmd/muster
	@echo "check: all is well"

# Generated code as the generators make it; protoc's own version, in a comment, may differ.
fresh:
	@rm -rf bin/fresh
	@$(MAKE) --no-print-directory proto INTO=bin/fresh
	@for f in $$(cd bin/fresh && find . -name '*.go'); do diff -u -I '^//.*protoc  *v' $$f bin/fresh/$$f || { echo "make proto makes other code"; exit 1; }; done

# What travels to hosts, for each kind of them.
size:
	@for arch in amd64 arm64; do for p in muster-agent muster; do \
	  GOOS=linux GOARCH=$$arch go build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o bin/size/$$p-$$arch ./cmd/$$p || exit 1; \
	  wc -c < bin/size/$$p-$$arch | awk -v p=$$p -v a=$$arch '{printf "%-18s linux/%s %5.1f MB\n", p, a, $$1/1e6}'; done; done
	@CGO_ENABLED=1 go build -trimpath -tags $(TAGS),netgo,osusergo -ldflags "$(LDFLAGS)" -o bin/size/ ./cmd/muster-plugin-nvml
	@wc -c < bin/size/muster-plugin-nvml | awk '{printf "%-18s $(NATIVE) %5.1f MB\n", "muster-plugin-nvml", $$1/1e6}'

## make bench    the start time of 1, 4, 8 and 16 hosts beside OpenSSH's, memory, sampling (root)
# PART=sampling measures the last only.
bench: build
	@go run ./launcher/bench -muster bin/muster $(addprefix -,$(PART))
ifndef PART
	@echo; echo "Placement of 1,024 hosts x 8 GPUs, and all their environments:"
	@go test -run '^$$' -bench ThousandHosts ./launcher/plan | grep ^Benchmark
endif

## make gpu-check  what only real NVIDIA GPUs prove, 4 minutes a part; no setting is changed
# PART=start or PART=watch makes one of the two. A machine without Go and compiler is given
# the folder: bin/gpu-check/gpucheck -help.
gpu-check: gpu-check-programs
	bin/gpu-check/gpucheck -out bin/gpu-check/out $(addprefix -part ,$(PART))

# The worker, like the plugin that muster carries, runs with older C libraries too.
GPU_WORKER := -std=c11 -O2 -Wall -Wextra -Werror -include cmd/carry/oldlibc.h launcher/gpucheck/worker/worker.c \
  -Wl,--wrap=__libc_start_main -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
gpu-check-programs: build
	@mkdir -p bin/gpu-check
	@cp -f bin/muster bin/gpu-check/
	@gzip -dc cmd/muster/carried/muster-plugin-nvml-$(subst /,-,$(NATIVE)).gz > bin/gpu-check/muster-plugin-nvml
	@chmod +x bin/gpu-check/muster-plugin-nvml
	@go build -trimpath -ldflags "-s -w" -o bin/gpu-check/gpucheck ./launcher/gpucheck
	@$(CC) $(GPU_WORKER) -o bin/gpu-check/cudaworker

## make hosts N=3    real hosts with sshd in network namespaces, to try muster on (root)
# KEEP="PATH ..." are folders below /root, /tmp and the like that the hosts see too.
# GPUS=dgx-h100 (or mig, busy, ...) has them look like such a machine, with nvidia-smi and MPS.
N ?= 3
hosts:
	go run ./launcher/testbed/cmd/hosts -n $(N) $(addprefix -keep ,$(KEEP)) $(addprefix -gpus ,$(GPUS))

## make proto    the generated code anew (needs protobuf-compiler)
PROTOS := rendezvous/link/linkpb/link.proto launcher/coordinator/controlpb/control.proto plugins/external/pluginpb/plugin.proto
INTO   ?= .
proto:
	@mkdir -p bin/tools
	@go build -o bin/tools/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	@for p in $(PROTOS); do d=$$(dirname $$p); mkdir -p $(INTO)/$$d; PATH="$(CURDIR)/bin/tools:$$PATH" protoc -I $$d \
	  --go_out=$(INTO)/$$d --go_opt=paths=source_relative \
	  --go-grpc_out=$(INTO)/$$d --go-grpc_opt=paths=source_relative $$p || exit 1; done

## make deps     what tests and checks need on this machine, as far as it is missing
deps:
	@.ci/deps

## make clean    without what was built here
clean:
	rm -rf bin cmd/muster/carried
