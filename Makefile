# Two commands do everything: make demo shows weir at work on this machine, make
# test installs what is missing and passes all tests. Both want Debian 12 (or
# later), root, and Go.

export CGO_ENABLED = 0

# Whoever types make trusts these sources; git, which tells their version, does not if
# they are another user's, as root's who makes what somebody else has cloned.
export GIT_CONFIG_COUNT = 1
export GIT_CONFIG_KEY_0 = safe.directory
export GIT_CONFIG_VALUE_0 = $(CURDIR)

VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOLANGCI    = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
NFPM        = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.1
FOR         = test
CERTS       = /etc/ssl/certs/ca-certificates.crt

# say tells what comes next, and about how long it takes.
say = @printf '\n== %s\n'

.PHONY: all build package demo test conformance bench drill soak prove vet lint install clean

all: build

build: | $(CERTS) ## bin/weir and bin/weirlab
	go build -trimpath -ldflags '-X main.buildVersion=$(VERSION)' -o bin/ ./cmd/weir ./cmd/weirlab

# Which packages, where, and what version they have if not that of the tag or commit.
PACKAGES        = amd64.deb arm64.deb amd64.rpm arm64.rpm
DIST            = dist
PACKAGE_VERSION =

package: | $(CERTS) ## deb and rpm for amd64 and arm64, in dist/; make package PACKAGES=amd64.deb
	$(say) 'packages: 2 minutes, 8 where nothing is built yet'
	go run ./packaging/pack -nfpm $(NFPM) -out $(DIST) -version '$(PACKAGE_VERSION)' $(PACKAGES)

demo: FOR = demo
demo: install ## a site with one box, shown at work
	go run ./cmd/weirlab demo

test: FOR = test
test: install ## all tests, those on real kernels included, in stages with a budget each
	go run ./cmd/weirlab test $(ARGS)

# The following take arguments: make soak ARGS="--stage drill"
ARGS =

conformance: FOR = conformance
conformance: install ## what Kubernetes means by a Service, 90 checks: weir in both modes, and kube-proxy
	go run ./cmd/weirlab conformance $(ARGS)

bench: FOR = bench
bench: install ## figures beside ipvsadm's and kube-proxy's, from one boot of a real kernel
	$(say) 'weir beside ipvsadm and kube-proxy: 12 minutes'
	WEIR_LAB_KERNEL=uml-new go run ./cmd/weirlab bench $(ARGS)
	go test -run xxx -bench . ./lb/ ./lb/health/

drill: FOR = drill
drill: install ## things go wrong in a fleet, and what clients notice of it, beside keepalived
	$(say) 'power cuts, cables, restarts, partitions; a table at the end: 25 minutes'
	WEIR_LAB_KERNEL=uml-new go run ./cmd/weirlab drill $(ARGS)

soak: FOR = test
soak: install ## what is slow by nature: hours; ARGS="--stage drill --hours 8"
	go run ./cmd/weirlab soak $(ARGS)

prove: FOR = test
prove: install ## a red test means a fault: all tests five times in a row, some of them 30 times; goes on where it was stopped
	go run ./cmd/weirlab prove $(ARGS)

install: | $(CERTS) ## what a lab needs for demo, bench, drill or test: make install FOR=demo
	$(say) 'what a lab needs for $(FOR); where nothing is there yet: demo 2 minutes, all others 20, of which a kernel takes 7 and Kubernetes 6'
	go run ./cmd/weirlab install --for $(FOR)

# Go fetches what weir is made of over https.
$(CERTS):
	$(say) 'certificates, for Go to fetch modules'
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates

vet: | $(CERTS) ## gofmt, go vet and staticcheck, as make test runs them
	go run ./cmd/weirlab test --stage lint

lint: vet ## and a few more linters; builds them first
	$(say) 'golangci-lint: 2 minutes, 5 where nothing is built yet'
	go run $(GOLANGCI) run ./...

clean:
	rm -rf bin dist artifacts
