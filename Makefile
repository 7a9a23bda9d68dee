# muster's own commands. `make help` lists them.

VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS   := -s -w -X github.com/muster-dev/muster/launcher/version.release=$(VERSION)
NATIVE    := linux/$(shell go env GOARCH)
PLATFORMS ?= $(NATIVE)
export CGO_ENABLED ?= 0

.PHONY: help build release run test check bench proto hosts deps clean

help:
	@sed -n 's/^## //p' Makefile

## make run      start examples/local.hcl: four ranks on this machine
run: build
	bin/muster run examples/local.hcl

## make build    bin/muster, with the agent for this machine's kind of host inside
build:
	@go run ./cmd/carry -into cmd/muster/carried -ldflags "$(LDFLAGS)" $(PLATFORMS)
	@go build -trimpath -tags carry -ldflags "$(LDFLAGS)" -o bin/muster ./cmd/muster

## make release  the same, with agents for linux/amd64 and linux/arm64
release:
	@$(MAKE) build PLATFORMS="linux/amd64 linux/arm64"

## make hosts N=3    real hosts with sshd in network namespaces, to try muster on (root)
N ?= 3
hosts:
	go run ./launcher/testbed/cmd/hosts -n $(N)

## make proto    the generated code anew
PROTOS := rendezvous/rendezvouspb/rendezvous.proto launcher/coordinator/controlpb/control.proto
proto:
	@mkdir -p bin/tools
	@go build -o bin/tools/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
	@for p in $(PROTOS); do PATH="$(CURDIR)/bin/tools:$$PATH" protoc -I $$(dirname $$p) \
	  --go_out=$$(dirname $$p) --go_opt=paths=source_relative \
	  --go-grpc_out=$$(dirname $$p) --go-grpc_opt=paths=source_relative $$p || exit 1; done
