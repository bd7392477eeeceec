package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The linker sets these for packages: -X main.buildVersion=1.2.3.
var (
	buildVersion string
	buildCommit  string
	buildDate    string // of the commit, in RFC 3339 and UTC
)

// version is the release, or the commit of an ordinary build.
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return revision + dirty
}

func versionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version, and the commit it was built from",
		Long: `Print the version of this program, its commit if that is known, and its platform.
weir status shows the version of the daemon.

Exit status: 0 printed.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(e.stdout, versionLine())
			return err
		},
	}
}

// versionLine returns the version with its commit and platform.
func versionLine() string {
	from := ""
	if buildCommit != "" {
		from = fmt.Sprintf("commit %s of %s, ", buildCommit, buildDate)
	}
	return fmt.Sprintf("weir %s (%s%s, %s/%s)\n", version(), from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
