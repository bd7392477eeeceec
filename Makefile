# Two commands do everything: make demo shows weir at work on this machine, make
# test installs what is missing and passes all tests. Both want Debian 12 (or
# later), root, and Go.

export CGO_ENABLED = 0

VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: all build demo test bench lint install clean

all: build

build: ## bin/weir and bin/weirlab
	go build -trimpath -ldflags '-X main.buildVersion=$(VERSION)' -o bin/ ./cmd/weir ./cmd/weirlab

install: ## what the lab needs: packages, and a kernel for qemu
	go run ./cmd/weirlab install

demo: install ## a site with one box, shown at work
	go run ./cmd/weirlab demo

test: install vet ## all tests, those on real kernels included
	CGO_ENABLED=1 go test -race ./lb/... ./cmd/weir/... ./configs/...
	WEIR_LAB=require go test -timeout 40m ./lb/linux/... ./cmd/weirlab/...

bench: install ## figures beside ipvsadm's, from one boot of a real kernel
	go run ./cmd/weirlab bench
	go test -run xxx -bench . ./lb/ ./lb/health/

vet:
	@test -z "$$(gofmt -l .)" || { echo "gofmt -w these:"; gofmt -l .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

lint: vet ## and a few more linters; builds them first
	go run $(GOLANGCI) run ./...

clean:
	rm -rf bin artifacts
