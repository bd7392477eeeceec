package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"weir/cmd/weirlab/lab"
)

// The tables that a run writes into packaging/doc are between two comments. Nothing else of a file
// changes.
func marks(target string) (begin, end string) {
	return fmt.Sprintf("<!-- %s --write: begin -->\n", target), fmt.Sprintf("<!-- %s --write: end -->\n", target)
}

// writeTable replaces the text between a target's marks, or adds it at the end of the file.
func writeTable(folder, file, target, text string) error {
	path := filepath.Join(folder, file)
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table of %s: %w", target, err)
	}
	return os.WriteFile(path, []byte(withTable(string(old), target, text)), 0o644)
}

func withTable(old, target, text string) string {
	begin, end := marks(target)
	text = begin + strings.TrimRight(text, "\n") + "\n" + end
	before, rest, found := strings.Cut(old, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return strings.TrimRight(old, "\n") + "\n\n" + text
	}
	return before + text + after
}

// circumstances are those of figures: the date, the commit, the kernel and the processor, and the versions of
// programs, each of which is a script on the box.
func circumstances(ctx context.Context, box *lab.Machine, versions ...string) (string, error) {
	version, err := commit(ctx)
	if err != nil { // sources without their history
		version = "of an unknown commit"
	}
	words := []string{time.Now().Format("2006-01-02") + "; weir " + version}
	for _, script := range append([]string{`echo "kernel $(uname -r)"`}, versions...) {
		out, err := box.Run(ctx, "sh", "-c", script)
		if err != nil {
			return "", fmt.Errorf("ask for a version: %w", err)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(out.Stdout+out.Stderr), "\n")
		words = append(words, line)
		if len(words) == 2 {
			words = append(words, fmt.Sprintf("%s, %d processors", processor(), runtime.NumCPU()))
		}
	}
	return strings.Join(words, "; "), nil
}

// processor is the name of this machine's.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the architecture has to do
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
