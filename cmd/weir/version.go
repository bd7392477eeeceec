package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// What the linker sets for packages: -X main.buildVersion=1.2.3.
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
		Long: `Print the version of this program, the commit it was built from, if that is known, and
for what it was built. The daemon's own is in weir status.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			from := ""
			if buildCommit != "" {
				from = fmt.Sprintf("commit %s of %s, ", buildCommit, buildDate)
			}
			_, err := fmt.Fprintf(e.stdout, "weir %s (%s%s, %s/%s)\n", version(), from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
