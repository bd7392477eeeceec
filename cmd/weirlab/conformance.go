package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weirlab/internal/conformance"
)

// The tests of one engine each, with the rules of either program. They run side by side.
var (
	nftablesColumns  = []string{"TestConformanceNFTables", "TestConformanceNetfilter"}
	iptablesColumns  = []string{"TestConformanceIPVS", "TestConformanceIptables", "TestConformanceKubeProxy"}
	conformanceTests = slices.Concat(nftablesColumns, iptablesColumns)
)

// conformanceCommand puts the 90 checks to weir in both modes and to kube-proxy.
func conformanceCommand() *cobra.Command {
	var write string
	var short bool
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "put 90 checks of what Kubernetes means by a Service to weir, in both modes, and to kube-proxy",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&write, "write", "", "a folder; the table is written to conformance.md there")
	cmd.Flags().BoolVar(&short, "short", false, "put a few checks to kube-proxy only")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		folder, err := os.MkdirTemp("", "weirlab-conformance-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		tests, checks := conformanceTests, "all"
		if short {
			tests, checks = iptablesColumns[2:], "sample"
		}
		s := newStages(ctx, out, short)
		env := []string{"WEIR_CONFORMANCE=" + checks, "WEIR_CONFORMANCE_COLUMNS=" + folder}
		s.do(ctx, stage{"conformance, five columns", 15 * time.Minute, boxStage("uml-new", exactly(tests), "", env, "weir/cmd/weirlab/e2e")})
		if !short {
			s.do(ctx, stage{"differential, 5 seeds beside kube-proxy in iptables and nftables modes", 15 * time.Minute,
				boxStage("uml-new", "^TestDifferential$", "", []string{"WEIR_DIFFERENTIAL=1-5"}, "weir/cmd/weirlab/e2e")})
		}
		columns, err := conformance.Load(folder)
		if err != nil {
			return err
		}
		conformance.Print(out, columns)
		if write != "" {
			err = writeConformance(ctx, columns, write)
		}
		if ended := s.end(); ended != nil {
			return ended
		}
		return err
	}
	return cmd
}

// writeConformance writes the page of the manual, if every check was put to every engine.
func writeConformance(ctx context.Context, columns []conformance.Column, folder string) error {
	file := filepath.Join(folder, "conformance.md")
	if err := conformance.Complete(columns); err != nil {
		return fmt.Errorf("%s is not written: %w", file, err)
	}
	return os.WriteFile(file, []byte(conformance.Page(columns, time.Now(), processor(), comparedVersions(ctx))), 0o644) //nolint:gosec // a page of the manual
}

// comparedVersions names the versions of weir and of the Kubernetes of the lab's peers.
func comparedVersions(ctx context.Context) string {
	text, _ := os.ReadFile("cmd/weirlab/peers/go.mod")
	kubernetes := "unknown"
	if found := regexp.MustCompile(`k8s.io/kubernetes (v\S+)`).FindSubmatch(text); found != nil {
		kubernetes = string(found[1])
	}
	weir := "devel"
	if out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		weir = strings.TrimSpace(string(out))
	}
	return "weir " + weir + ", kube-apiserver and kube-proxy " + kubernetes
}
