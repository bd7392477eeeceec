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

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// words are a command line: what is no flag, and the flags.
type words struct {
	args  []string
	flags map[string]string
}

// long are the flags that take a value, by each way to write them.
var long = map[string]string{
	"-n": "namespace", "--namespace": "namespace", "-f": "filename", "--filename": "filename",
	"-o": "output", "--output": "output", "--duration": "duration", "--kubeconfig": "kubeconfig",
}

// understand reads a command line; a flag that it does not know is an error.
func understand(args []string) (words, error) {
	w := words{flags: map[string]string{}}
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		switch flag := long[name]; {
		case flag != "" && joined:
			w.set(flag, value)
		case flag != "" && i+1 < len(args):
			i++
			w.set(flag, args[i])
		case name == "--raw" || name == "--minify" || name == "--flatten":
		case strings.HasPrefix(name, "-") && name != "-":
			return w, fmt.Errorf("unknown flag: %s", args[i])
		default:
			w.args = append(w.args, args[i])
		}
	}
	return w, nil
}

// set sets a flag. -f may occur several times, and takes names with commas between them.
func (w words) set(flag, value string) {
	if before := w.flags[flag]; flag == "filename" && before != "" {
		value = before + "," + value
	}
	w.flags[flag] = value
}

func run(args []string, in io.Reader, out io.Writer) error {
	w, err := understand(args)
	if err != nil {
		return err
	}
	config, err := readConfig(w.flags["kubeconfig"])
	if err != nil {
		return err
	}
	verb, rest := "", []string(nil)
	if len(w.args) > 0 {
		verb, rest = w.args[0], w.args[1:]
	}
	if verb == "config" {
		return show(out, config.document, w.flags["output"])
	}
	c, err := connect(config, w.flags["namespace"])
	if err != nil {
		return err
	}
	switch {
	case verb == "apply":
		return c.applyAll(strings.Split(w.flags["filename"], ","), in, out)
	case verb == "get" && len(rest) > 0:
		return c.get(rest[0], rest[1:], w.flags["output"], out)
	case verb == "delete" && len(rest) == 2:
		return c.remove(rest[0], rest[1], out)
	case verb == "create" && len(rest) == 2 && rest[0] == "token":
		return c.token(rest[1], w.flags["duration"], out)
	}
	return fmt.Errorf("unknown command %q: this one knows apply, get, delete, create token and config view", strings.Join(w.args, " "))
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
