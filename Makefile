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
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0
NFPM        = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.1
FOR         = test
CERTS       = /etc/ssl/certs/ca-certificates.crt

# say tells what comes next, and about how long it takes.
say = @printf '\n== %s\n'

# retry runs tests whose machines are simulated. On a busy or stolen-from processor
# such a machine may be late by seconds, and the best of tests then fails once in a
# long while. So up to five tests that failed are run a second time, whole. Nothing
# is hidden: the summary at the end shows both results ("2 runs, 1 failures"), and a
# test that fails twice, as every real fault does, fails the run.
retry = WEIR_LAB=require go run $(GOTESTSUM) --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test

.PHONY: all build package demo test conformance bench drill vet lint install clean

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
test: install vet ## all tests, those on real kernels included
	$(say) 'unit tests with the race detector: 3 minutes, 8 where nothing is built yet'
	CGO_ENABLED=1 go test -race ./lb/... ./bgp/... ./cluster/... ./l2/... ./k8ssync/... ./cmd/weir/... ./configs/... ./packaging/...
	go test -run TestGracefulRestartKeepsTheRoutes ./bgp # GoBGP's own races keep it from the detector
	$(say) 'tests of the lab itself and the demo, which boot machines: 4 minutes'
	$(retry) --format standard-quiet --packages='./lb/linux/... ./cmd/weirlab ./cmd/weirlab/lab/... ./cmd/weirlab/internal/...' -- -timeout 15m
	$(say) 'weir on real kernels, story by story: 35 to 50 minutes'
	$(retry) --format standard-verbose --packages=./cmd/weirlab/e2e -- -timeout 70m

conformance: FOR = test
conformance: install ## what Kubernetes means by a Service, 90 checks: weir in both modes, and kube-proxy
	$(say) 'conformance: a line a check, the table at the end; 15 minutes'
	WEIR_LAB=require WEIR_CONFORMANCE=kube-proxy go test -C cmd/weirlab/e2e -run TestConformance -v -count=1 -timeout 60m

bench: FOR = bench
bench: install ## figures beside ipvsadm's and kube-proxy's, from one boot of a real kernel
	$(say) 'weir beside ipvsadm and kube-proxy: 12 minutes'
	go run ./cmd/weirlab bench
	go test -run xxx -bench . ./lb/ ./lb/health/

drill: FOR = drill
drill: install ## things go wrong in a fleet, and what clients notice of it, beside keepalived
	$(say) 'power cuts, cables, restarts, partitions; a table at the end: 25 minutes'
	go run ./cmd/weirlab drill

install: | $(CERTS) ## what a lab needs for demo, bench, drill or test: make install FOR=demo
	$(say) 'what a lab needs; the first time Go fetches and builds weir and Kubernetes: 8 minutes'
	go run ./cmd/weirlab install --for $(FOR)

# Go fetches what weir is made of over https.
$(CERTS):
	$(say) 'certificates, for Go to fetch modules'
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates

vet: | $(CERTS)
	$(say) 'gofmt, go vet, staticcheck: half a minute, 3 where nothing is built yet'
	@test -z "$$(gofmt -l .)" || { echo "gofmt -w these:"; gofmt -l .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

lint: vet ## and a few more linters; builds them first
	$(say) 'golangci-lint: 2 minutes, 5 where nothing is built yet'
	go run $(GOLANGCI) run ./...

clean:
	rm -rf bin dist artifacts
