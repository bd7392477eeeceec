# Two commands set up everything: make demo shows weir at work on this machine, and make
# test runs all tests. Both install missing packages, and need Debian 12 or later, root,
# and Go.

export CGO_ENABLED = 0

# Without the path of the clone, what one has compiled serves the next: a fresh clone compiles
# for 14 seconds instead of minutes, if the cache has the rest.
export GOFLAGS := -trimpath $(GOFLAGS)

# git reports the version of these sources also if another user owns them, such as root in
# a clone of a normal user.
export GIT_CONFIG_COUNT = 1
export GIT_CONFIG_KEY_0 = safe.directory
export GIT_CONFIG_VALUE_0 = $(CURDIR)

VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOLANGCI    = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
NFPM        = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.1
FOR         = test
CERTS       = /etc/ssl/certs/ca-certificates.crt

# say prints the next step and its duration.
say = @printf '\n== %s\n'

.PHONY: all build package demo test conformance bench compare drill soak prove vet lint install clean

all: build

build: | $(CERTS) ## bin/weir and bin/weirlab
	go build -trimpath -ldflags '-X main.buildVersion=$(VERSION)' -o bin/ ./cmd/weir ./cmd/weirlab

# The packages, their folder, a version other than that of the tag or commit, and a compression of debs other
# than xz: tests install debs with none, which take 20 seconds less to make. SIGN is the file of a secret
# OpenPGP key, and a file has its passphrase: packaging/doc/releases.md.
PACKAGES        = amd64.deb arm64.deb amd64.rpm arm64.rpm
DIST            = dist
PACKAGE_VERSION =
DEB_COMPRESSION =
SIGN            =
SIGN_PASSPHRASE_FILE =

package: | $(CERTS) ## deb and rpm for amd64 and arm64, in dist/; make package PACKAGES=amd64.deb SIGN=key.asc
	$(say) 'packages: 2 minutes, 8 on first use'
	go run ./packaging/pack -nfpm $(NFPM) -out $(DIST) -version '$(PACKAGE_VERSION)' -deb-compression '$(DEB_COMPRESSION)' \
		-sign '$(SIGN)' -passphrase-file '$(SIGN_PASSPHRASE_FILE)' $(PACKAGES)

demo: FOR = demo
demo: install ## one box at work
	go run ./cmd/weirlab demo

test: FOR = test
test: install ## all tests, including those on real kernels, in stages with budgets
	go run ./cmd/weirlab test $(ARGS)

# The following take arguments: make conformance ARGS="--write packaging/doc"
ARGS =

conformance: FOR = conformance
conformance: install ## 90 checks of Kubernetes Services and random ones: weir in both modes, and kube-proxy
	go run ./cmd/weirlab conformance $(ARGS)

bench: FOR = bench
bench: install ## measurements beside ipvsadm and kube-proxy, in one boot of a real kernel
	$(say) 'weir beside ipvsadm and kube-proxy: 20 minutes'
	WEIR_LAB_KERNEL=uml-new go run ./cmd/weirlab bench $(ARGS); failed=$$?; \
	go test -run xxx -bench . ./lb/ ./lb/health/ ./bgp/ ./cmd/weir/internal/fleet/message/ ./cmd/weir/internal/metrics/ && exit $$failed

# A commit to compare with. HEAD shows changes that are not committed.
BASE = HEAD

compare: | $(CERTS) ## Go's benchmarks here and at a commit, by benchstat; make compare BASE=HEAD^ ARGS="./lb --bench Reconciler"
	go run ./cmd/weirlab compare '$(BASE)' $(ARGS)

drill: FOR = drill
drill: install ## failures in a fleet and their effect on clients, beside keepalived
	$(say) 'power cuts, cables, restarts, partitions: 25 minutes'
	WEIR_LAB_KERNEL=uml-new go run ./cmd/weirlab drill $(ARGS)

soak: FOR = test
soak: install ## long-running tests, for hours; make soak STAGE=churn HOURS=8
	go run ./cmd/weirlab soak $(if $(STAGE),--stage $(STAGE)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

prove: FOR = test
prove: install ## all tests five times in a row, some 30 times; resumable
	go run ./cmd/weirlab prove $(ARGS)

install: | $(CERTS) ## requirements of demo, bench, drill or test: make install FOR=demo
	$(say) 'requirements of $(FOR); on first use 2 minutes for demo, 20 for others (kernel 7, Kubernetes 6)'
	go run ./cmd/weirlab install --for $(FOR)

# Go fetches modules via https.
$(CERTS):
	$(say) 'certificates for Go modules'
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates

vet: | $(CERTS) ## gofmt, go vet and staticcheck, as in make test
	go run ./cmd/weirlab test --stage lint

lint: vet ## the same, and golangci-lint
	$(say) 'golangci-lint: 2 minutes, 5 on first use'
	go run $(GOLANGCI) run ./...

clean:
	rm -rf bin dist artifacts
