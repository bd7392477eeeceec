// Command kubectl has the commands of kubectl that the quick starts use: apply, get, delete, create
// token and config view, with the same flags and output. It never interprets an object beyond that.
// The tests of the quick starts install it on their machines, as the real one takes minutes to build.
// Its requests go to a real API server, which also formats the tables.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	file := flags.String("kubeconfig", "", "")
	namespace := flags.StringP("namespace", "n", "default", "")
	files := flags.StringSliceP("filename", "f", nil, "")
	format := flags.StringP("output", "o", "", "")
	lasts := flags.Duration("duration", time.Hour, "")
	for _, always := range []string{"raw", "minify", "flatten"} {
		flags.Bool(always, true, "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := readConfig(*file)
	if err != nil {
		return err
	}
	verb, rest := flags.Arg(0), flags.Args()[min(1, flags.NArg()):]
	if verb == "config" {
		return show(out, config.document, *format)
	}
	c, err := connect(config, *namespace)
	if err != nil {
		return err
	}
	switch {
	case verb == "apply":
		return c.applyAll(*files, in, out)
	case verb == "get" && len(rest) > 0:
		return c.get(strings.Split(rest[0], ","), strings.Join(rest[1:], ""), *format, out)
	case verb == "delete" && len(rest) == 2:
		return c.remove(rest[0], rest[1], out)
	case verb == "create" && len(rest) == 2 && rest[0] == "token":
		return c.token(rest[1], *lasts, out)
	}
	return fmt.Errorf("unknown command %q: this one knows apply, get, delete, create token and config view", strings.Join(flags.Args(), " "))
}

// show writes a document in the format of -o: json, yaml, or the value at a jsonpath of names.
func show(out io.Writer, document any, format string) error {
	path, isPath := strings.CutPrefix(format, "jsonpath=")
	switch {
	case isPath:
		v, err := at(document, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(out, v)
		return err
	case format == "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "    ")
		return enc.Encode(document)
	case format == "yaml":
		text, err := yaml.Marshal(document)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	return fmt.Errorf("unable to match a printer suitable for the output format %q", format)
}

// at follows a jsonpath such as {.clusters[0].cluster.server} or {.data.config\.conf}.
func at(v any, path string) (any, error) {
	inner, ok := strings.CutPrefix(path, "{.")
	inner, closed := strings.CutSuffix(inner, "}")
	if !ok || !closed {
		return nil, fmt.Errorf("jsonpath %q is not {.name.name}", path)
	}
	const dot = "\x00" // stands for a dot that is part of a name
	for name := range strings.SplitSeq(strings.ReplaceAll(inner, `\.`, dot), ".") {
		name, index, indexed := strings.Cut(strings.ReplaceAll(name, dot, "."), "[")
		object, _ := v.(map[string]any) // nil has no names
		in, ok := object[name]
		if !ok {
			return nil, fmt.Errorf("%s is not found", name)
		}
		v = in
		if indexed {
			list, ok := v.([]any)
			var i int
			if _, err := fmt.Sscanf(index, "%d]", &i); err != nil || !ok || i < 0 || i >= len(list) {
				return nil, errors.New("array index out of bounds: " + index)
			}
			v = list[i]
		}
	}
	return v, nil
}
