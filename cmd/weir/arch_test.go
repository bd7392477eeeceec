package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayImport lists the packages of weir that each package may import.
// Imports point strictly down.
var mayImport = map[string][]string{
	"weir/lb":                                 {},
	"weir/lb/linux":                           {"weir/lb"},
	"weir/lb/health":                          {"weir/lb", "weir/lb/health/bfd"},
	"weir/lb/health/bfd":                      {},
	"weir/k8ssync":                            {"weir/lb", "weir/k8ssync/ipam"},
	"weir/k8ssync/ipam":                       {"weir/lb"},
	"weir/bgp":                                {"weir/bgp/advertise", "weir/lb/health/bfd"},
	"weir/bgp/advertise":                      {"weir/lb"},
	"weir/bgp/routerconfig":                   {"weir/bgp", "weir/bgp/advertise"},
	"weir/cluster":                            {},
	"weir/cluster/owner":                      {},
	"weir/cluster/l2":                         {},
	"weir/configs":                            {},
	"weir/cmd/weir/internal/config":           {"weir/cmd/weir/internal/config/source", "weir/lb", "weir/lb/health", "weir/k8ssync", "weir/bgp", "weir/bgp/advertise", "weir/bgp/routerconfig", "weir/cluster", "weir/cluster/owner", "weir/cmd/weir/internal/draft", "weir/k8ssync/ipam", "weir/configs"},
	"weir/cmd/weir/internal/config/source":    {},
	"weir/cmd/weir/internal/config/parse":     {"weir/cmd/weir/internal/config/source", "weir/lb", "weir/k8ssync/ipam"},
	"weir/cmd/weir/internal/config/schema":    {"weir/cmd/weir/internal/config/parse", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/draft"},
	"weir/cmd/weir/internal/config/serving":   {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/parse", "weir/cmd/weir/internal/config/schema", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/draft", "weir/lb", "weir/lb/health", "weir/k8ssync"},
	"weir/cmd/weir/internal/config/vips":      {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/parse", "weir/cmd/weir/internal/config/schema", "weir/cmd/weir/internal/config/serving", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/draft", "weir/lb", "weir/k8ssync", "weir/k8ssync/ipam", "weir/bgp", "weir/bgp/advertise", "weir/cluster", "weir/cluster/owner"},
	"weir/cmd/weir/internal/config/check":     {"weir/lb/health", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/parse", "weir/cmd/weir/internal/config/schema", "weir/cmd/weir/internal/config/serving", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/config/vips", "weir/lb", "weir/k8ssync/ipam", "weir/bgp/advertise", "weir/cluster", "weir/cluster/owner"},
	"weir/cmd/weir/internal/config/load":      {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/check", "weir/cmd/weir/internal/config/schema", "weir/cmd/weir/internal/config/serving", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/config/vips", "weir/cmd/weir/internal/draft", "weir/lb", "weir/k8ssync", "weir/bgp/advertise"},
	"weir/cmd/weir/internal/status":           {"weir/lb", "weir/cmd/weir/internal/status/text", "weir/cmd/weir/internal/status/traffic"},
	"weir/cmd/weir/internal/status/explain":   {"weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/routing", "weir/cmd/weir/internal/status/text", "weir/lb"},
	"weir/cmd/weir/internal/status/plan":      {"weir/cmd/weir/internal/status/text"},
	"weir/cmd/weir/internal/status/routing":   {"weir/cmd/weir/internal/status/text"},
	"weir/cmd/weir/internal/status/text":      {},
	"weir/cmd/weir/internal/status/traffic":   {"weir/cmd/weir/internal/status/text"},
	"weir/cmd/weir/internal/draft":            {},
	"weir/cmd/weir/internal/doctor/facts":     {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/routing", "weir/lb", "weir/lb/linux"},
	"weir/cmd/weir/internal/doctor/gather":    {"weir/bgp", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/doctor/facts", "weir/cmd/weir/internal/kernelmode", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/routing", "weir/k8ssync", "weir/lb", "weir/lb/linux"},
	"weir/cmd/weir/internal/doctor/walk":      {"weir/lb/linux"},
	"weir/cmd/weir/internal/doctor":           {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/doctor/facts", "weir/cmd/weir/internal/doctor/walk", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/routing", "weir/cmd/weir/internal/status/text", "weir/lb", "weir/lb/linux"},
	"weir/cmd/weir/internal/web":              {"weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/routing", "weir/cmd/weir/internal/status/text", "weir/cmd/weir/internal/status/traffic", "weir/packaging/doc"},
	"weir/packaging/doc":                      {},
	"weir/cmd/weir/internal/backendhost":      {},
	"weir/packaging/pack":                     {},
	"weir/cmd/weir/internal/manual":           {"weir/cmd/weir/internal/config/schema", "weir/cmd/weir/internal/draft"},
	"weir/cmd/weir/internal/kubeproxy":        {"weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/draft"},
	"weir/cmd/weir/internal/keepalived":       {"weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/draft", "weir/cmd/weir/internal/keepalived/lines"},
	"weir/cmd/weir/internal/keepalived/lines": {},
	"weir/cmd/weir/internal/metallb":          {"weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/draft"},
	"weir/cmd/weir/internal/cause":            {"weir/lb"},
	"weir/cmd/weir/internal/program":          {"weir/lb/health"},
	"weir/cmd/weir/internal/hooks":            {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/eventlog", "weir/cmd/weir/internal/program", "weir/cmd/weir/internal/status"},
	"weir/cmd/weir/internal/statefile":        {},
	"weir/cmd/weir/internal/connlimit":        {},
	"weir/cmd/weir/internal/supervise":        {"weir/lb"},
	"weir/cmd/weir/internal/kernelmode":       {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/statefile", "weir/lb", "weir/lb/linux"},
	"weir/cmd/weir/internal/daemon":           {"weir/cmd/weir/internal/hooks", "weir/cmd/weir/internal/program", "weir/cmd/weir/internal/cause", "weir/cmd/weir/internal/status/routing", "weir/cmd/weir/internal/kernelmode", "weir/cmd/weir/internal/statefile", "weir/cmd/weir/internal/supervise", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/cmd/weir/internal/status/plan", "weir/cmd/weir/internal/status/traffic", "weir/cmd/weir/internal/web", "weir/lb", "weir/lb/health", "weir/lb/linux", "weir/k8ssync", "weir/k8ssync/ipam", "weir/bgp", "weir/bgp/advertise", "weir/cluster", "weir/cluster/owner", "weir/cluster/l2", "weir/cmd/weir/internal/query", "weir/cmd/weir/internal/drain", "weir/cmd/weir/internal/api", "weir/cmd/weir/internal/kube", "weir/cmd/weir/internal/fleet", "weir/cmd/weir/internal/membership", "weir/cmd/weir/internal/eventlog", "weir/cmd/weir/internal/rollback", "weir/cmd/weir/internal/addresses", "weir/cmd/weir/internal/announce", "weir/cmd/weir/internal/metrics"},
	"weir/cmd/weir":                           {"weir/cmd/weir/internal/backendhost", "weir/cmd/weir/internal/program", "weir/cmd/weir/internal/kernelmode", "weir/cmd/weir/internal/doctor", "weir/cmd/weir/internal/doctor/gather", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/cmd/weir/internal/status/plan", "weir/cmd/weir/internal/status/routing", "weir/cmd/weir/internal/status/text", "weir/cmd/weir/internal/status/traffic", "weir/cmd/weir/internal/daemon", "weir/cmd/weir/internal/draft", "weir/cmd/weir/internal/kubeproxy", "weir/cmd/weir/internal/keepalived", "weir/cmd/weir/internal/manual", "weir/cmd/weir/internal/metallb", "weir/bgp", "weir/bgp/advertise", "weir/bgp/routerconfig", "weir/lb", "weir/lb/linux", "weir/cmd/weir/internal/query", "weir/cmd/weir/internal/drain", "weir/cmd/weir/internal/rollback", "weir/cmd/weir/internal/supervise"},
	"weir/cmd/weir/internal/eventlog":         {"weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/text"},
	"weir/cmd/weir/internal/rollback":         {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/config/load", "weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/statefile", "weir/cmd/weir/internal/status"},
	"weir/cmd/weir/internal/api":              {"weir/cmd/weir/internal/connlimit", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/eventlog", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/web"},
	"weir/cmd/weir/internal/query":            {"weir/cmd/weir/internal/config", "weir/cmd/weir/internal/kernelmode", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/cmd/weir/internal/status/plan", "weir/cmd/weir/internal/status/traffic", "weir/lb", "weir/lb/health", "weir/lb/linux", "weir/bgp/advertise"},
	"weir/cmd/weir/internal/drain":            {"weir/bgp/advertise", "weir/cmd/weir/internal/fleet", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/statefile", "weir/cmd/weir/internal/config", "weir/lb"},
	"weir/cmd/weir/internal/kube":             {"weir/cmd/weir/internal/connlimit", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/kernelmode", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/supervise", "weir/k8ssync", "weir/lb"},
	"weir/cmd/weir/internal/metrics":          {"weir/cmd/weir/internal/connlimit", "weir/bgp", "weir/cluster", "weir/cluster/l2", "weir/cluster/owner", "weir/cmd/weir/internal/fleet", "weir/cmd/weir/internal/kube", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/traffic", "weir/k8ssync", "weir/lb", "weir/lb/health", "weir/lb/linux"},

	"weir/cmd/weir/internal/fleet":         {"weir/bgp/advertise", "weir/cluster", "weir/cluster/l2", "weir/cluster/owner", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/fleet/message", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/lb", "weir/lb/health"},
	"weir/cmd/weir/internal/fleet/message": {"weir/cluster", "weir/lb"},
	"weir/cmd/weir/internal/membership":    {"weir/cluster", "weir/cluster/l2", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/fleet", "weir/cmd/weir/internal/statefile", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/supervise", "weir/lb"},

	"weir/cmd/weir/internal/addresses":      {"weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/cmd/weir/internal/supervise", "weir/k8ssync", "weir/k8ssync/ipam", "weir/lb"},
	"weir/cmd/weir/internal/announce":       {"weir/bgp", "weir/bgp/advertise", "weir/cmd/weir/internal/config", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/status/explain", "weir/cmd/weir/internal/status/routing", "weir/lb"},
	"weir/cmd/weirlab/internal/agent":       {},
	"weir/cmd/weirlab/internal/inside":      {"weir/cmd/weirlab/internal/agent"},
	"weir/cmd/weirlab/internal/first":       {"weir/cmd/weirlab/internal/inside"},
	"weir/cmd/weirlab/internal/kubectl":     {},
	"weir/cmd/weirlab/internal/reads":       {},
	"weir/cmd/weirlab/lab":                  {"weir/cmd/weirlab/internal/agent", "weir/cmd/weirlab/internal/inside"},
	"weir/cmd/weirlab/internal/props":       {},
	"weir/cmd/weirlab/internal/known":       {},
	"weir/cmd/weirlab/internal/conformance": {},
	"weir/cmd/weirlab/internal/traffic":     {"weir/cmd/weirlab/internal/props"},
	"weir/cmd/weirlab/internal/runner":      {"weir/cmd/weirlab/lab"},
	"weir/cmd/weirlab/internal/drill":       {"weir/cmd/weirlab/internal/known", "weir/cmd/weirlab/internal/traffic", "weir/cmd/weirlab/lab"},
	"weir/cmd/weirlab/mutate":               {},
	"weir/cmd/weirlab/prose":                {},
	"weir/cmd/weirlab/fuzzing":              {},
	"weir/cmd/weirlab/histories":            {},
	"weir/cmd/weirlab/goroutines":           {},
	"weir/cmd/weirlab/shards":               {},
	"weir/cmd/weirlab":                      {"weir/cmd/weirlab/internal/conformance", "weir/cmd/weirlab/internal/inside", "weir/cmd/weirlab/internal/known", "weir/cmd/weirlab/internal/props", "weir/cmd/weirlab/internal/traffic", "weir/cmd/weirlab/internal/runner", "weir/cmd/weirlab/internal/drill", "weir/cmd/weirlab/lab", "weir/configs"},
	"weir/cmd/weirlab/e2e":                  {"weir/cmd/weirlab/internal/props", "weir/cmd/weirlab/internal/drill", "weir/cmd/weirlab/lab"},
}

// onlyIn lists libraries that only some packages may import.
var onlyIn = map[string][]string{
	"github.com/pelletier/go-toml/v2":                {"weir/cmd/weir/internal/config/source", "weir/cmd/weir/internal/config/schema"},
	"github.com/pelletier/go-toml/v2/unstable":       {"weir/cmd/weir/internal/config/source"},
	"github.com/prometheus/client_golang/prometheus": {"weir/cmd/weir/internal/metrics"},
	"github.com/coreos/go-systemd/v22/daemon":        {"weir/cmd/weir/internal/supervise"},
	"github.com/hashicorp/memberlist":                {"weir/cluster"},
	"github.com/osrg/gobgp/v4/pkg/server":            {"weir/bgp"},
	"github.com/osrg/gobgp/v4/api":                   {"weir/bgp"},
	"github.com/osrg/gobgp/v4/pkg/apiutil":           {"weir/bgp"},
	"github.com/osrg/gobgp/v4/pkg/packet/bgp":        {"weir/bgp"},
	"k8s.io/client-go/rest":                          {"weir/k8ssync"},
	"k8s.io/client-go/rest/watch":                    {"weir/k8ssync"},
	"k8s.io/client-go/tools/cache":                   {"weir/k8ssync"},
	"k8s.io/client-go/tools/clientcmd":               {"weir/k8ssync"},
	"k8s.io/client-go/util/workqueue":                {"weir/k8ssync"},
	"sigs.k8s.io/yaml":                               {"weir/cmd/weirlab/internal/kubectl", "weir/cmd/weir/internal/status", "weir/cmd/weir/internal/draft"},
	"google.golang.org/grpc":                         {"weir/lb/health"},
	"golang.org/x/net/bpf":                           {"weir/lb/health/bfd", "weir/cluster/l2"},
}

type listed struct {
	ImportPath, Doc string
	Imports         []string
	GoFiles         []string
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range listPackages(t) {
		allowed, known := mayImport[p.ImportPath]
		if !known {
			t.Errorf("%s: a new package: add its imports to mayImport, and update the diagram of CONTRIBUTING.md (TestPackageDiagram)", p.ImportPath)
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, "weir/") && !slices.Contains(allowed, imp) {
				t.Errorf("%s imports %s: that is not below it", p.ImportPath, imp)
			}
			if owners, ok := onlyIn[imp]; ok && !slices.Contains(owners, p.ImportPath) {
				t.Errorf("%s imports %s: only %s may", p.ImportPath, imp, strings.Join(owners, " and "))
			}
			if p.ImportPath == "weir/lb" && strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				t.Errorf("lb imports %s: it is pure and imports only the standard library", imp)
			}
		}
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestLBReadsNoClockAndDoesNoIO(t *testing.T) {
	banned := []string{"os", "net", "net/http", "os/exec", "log", "log/slog", "math/rand", "math/rand/v2", "syscall"}
	for _, p := range listPackages(t) {
		if p.ImportPath != "weir/lb" {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(banned, imp) {
				t.Errorf("lb imports %s", imp)
			}
		}
	}
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles", "./...")
	cmd.Dir = path.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
