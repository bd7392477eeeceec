package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// The programs of others that a lab runs beside weir. Their versions are pinned by the module in
// peersFolder, which has them as tools in its go.mod.
const (
	Etcd          = "etcd"
	KubeAPIServer = "kube-apiserver"
	KubeProxy     = "kube-proxy"
)

var peers = []string{Etcd, KubeAPIServer, KubeProxy}

const (
	peersFolder = "cmd/weirlab/peers" // the module that they are built from
	peersPrefix = "peers-"

	// peersRemembered is how long programs of other versions stay in the cache after their last use.
	peersRemembered = 7 * 24 * time.Hour

	// peersTold is the interval of BuildPeers' progress lines.
	peersTold = 20 * time.Second
)

// Peer returns the path of one of the peers, at which every host and box of a lab sees it too. They are
// built once, which takes minutes; the progress goes to standard error.
func Peer(name string) (string, error) {
	if !slices.Contains(peers, name) {
		return "", fmt.Errorf("peer %q: want one of %s", name, strings.Join(peers, ", "))
	}
	dir, err := buildPeers(context.Background(), os.Stderr)
	if err != nil {
		return "", err
	}
	now := time.Now()
	return filepath.Join(dir, name), os.Chtimes(dir, now, now) // it is in use
}

// BuildPeers builds all peers, if they are not in the cache, and reports to Progress.
func BuildPeers(ctx context.Context, progress io.Writer) error {
	_, err := buildPeers(ctx, progress)
	return err
}

// CheckPeers returns the reason why there are no peers yet, and the command that helps; nil when there are.
func CheckPeers() error {
	source, err := findPeersSource()
	if err != nil {
		return err
	}
	if _, err := cacheWith(source.cached, Etcd); err != nil {
		return fmt.Errorf("%s are not built: go run weir/cmd/weirlab install", strings.Join(peers, ", "))
	}
	return nil
}

func buildPeers(ctx context.Context, progress io.Writer) (string, error) {
	source, err := findPeersSource()
	if err != nil {
		return "", err
	}
	return cached(source.cached, func(dir string) error {
		forgetUnused(filepath.Join(filepath.Dir(dir), peersPrefix+"*"), peersRemembered)
		if err := compilePeers(ctx, source, dir, progress); err != nil {
			return err
		}
		// etcd's main package is called after the folder it is in.
		return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, Etcd))
	})
}

// peersSource is what the peers are built from.
type peersSource struct {
	folder  string
	version string // of Kubernetes
	cached  string // the folder in the cache, called after all that makes a difference to the programs
}

func findPeersSource() (peersSource, error) {
	s := peersSource{folder: filepath.Join(moduleRoot(), peersFolder)}
	goVersion, err := exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		return s, fmt.Errorf("ask go for its version: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s\n", goVersion, runtime.GOARCH)
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(s.folder, file))
		if err != nil {
			return s, fmt.Errorf("the peers are built from %s: run this in a folder of weir's source: %w", peersFolder, err)
		}
		if required := kubernetesVersion.FindSubmatch(content); required != nil {
			s.version = string(required[1])
		}
		fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
	}
	if s.version == "" {
		return s, fmt.Errorf("%s/go.mod requires no version of k8s.io/kubernetes", peersFolder)
	}
	fmt.Fprintln(sum, s.version)
	s.cached = fmt.Sprintf("%s%x", peersPrefix, sum.Sum(nil)[:6])
	return s, nil
}

// kubernetesVersion is in a line of go.mod, but not of go.sum.
var kubernetesVersion = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v\S+)`)

// compilePeers runs one go build for all of them, and reports its progress.
func compilePeers(ctx context.Context, source peersSource, dir string, progress io.Writer) error {
	fmt.Fprintf(progress, "building %s %s from source, once: about 5 minutes on two processors, and 2 GB of Go's caches\n",
		strings.Join(peers, ", "), source.version)
	// What they call themselves: kube-apiserver at /version.
	version := "-X k8s.io/component-base/version.gitVersion=" + source.version
	cmd := gentle(exec.CommandContext(ctx, "go", "build", "-C", source.folder, "-v", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w "+version, "-o", dir+string(filepath.Separator), "tool"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	said := &buildTalk{}
	cmd.Stdout, cmd.Stderr = said, said
	begin := time.Now()
	stop := every(peersTold, func() {
		fmt.Fprintf(progress, "  %3.0f s: %s\n", time.Since(begin).Seconds(), said.state())
	})
	err := cmd.Run()
	stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("build %s: %w\n%s", strings.Join(peers, ", "), err, said.tail()))
	}
	fmt.Fprintf(progress, "built within %.0f s\n", time.Since(begin).Seconds())
	return nil
}

// every calls do repeatedly until stop is called.
func every(d time.Duration, do func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do()
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// buildTalk is the output of go build -v: a line for each module that it fetches and for each package that
// it compiles.
type buildTalk struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buildTalk) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buildTalk) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := bytes.Count(b.text.Bytes(), []byte("\n"))
	fetched := bytes.Count(b.text.Bytes(), []byte("go: downloading "))
	return fmt.Sprintf("%d modules fetched, %d of about 2,000 packages compiled; linking comes last", fetched, lines-fetched)
}

func (b *buildTalk) tail() string {
	const enough = 2000
	b.mu.Lock()
	defer b.mu.Unlock()
	text := bytes.TrimSpace(b.text.Bytes())
	return string(text[max(0, len(text)-enough):])
}
