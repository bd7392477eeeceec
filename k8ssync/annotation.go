package k8ssync

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/lb"
)

// settings are the values of a Service's annotations; the zero value is none. They are
// typed: no text of a tenant leaves this file, except into Notes, quoted and cut.
type settings struct {
	scheduler string
	flags     *lb.SchedulerFlag
	weights   weights
	affinity  *time.Duration
	drain     *time.Duration
	source    string // keep, masquerade, or empty
	tunnel    bool   // forward is tunnel
	limits    limits
}

// limits are max-connections of each backend.
type limits struct {
	upper, lower uint32
}

// weights are those of backends by the names of their node and zone; the node takes
// precedence. Without either the weight is 1.
type weights struct {
	nodes, zones map[string]uint32
}

func (w weights) of(node, zone string) uint32 {
	if n, ok := w.nodes[node]; ok {
		return n
	}
	if n, ok := w.zones[zone]; ok {
		return n
	}
	return 1
}

func (w weights) any() bool { return len(w.nodes)+len(w.zones) > 0 }

// Limits of the values. Persistence templates and drained connections take memory of the
// box, so that they end within a day and an hour.
const (
	longestAffinity = 24 * time.Hour
	longestDrain    = time.Hour
	mostWeights     = 64
)

// annotations are the known ones, without the prefix, with the function that reads each.
// An error has the permitted values.
var annotations = map[string]func(*settings, string) error{
	"scheduler":        (*settings).readScheduler,
	"scheduler-flags":  (*settings).readFlags,
	"weights":          (*settings).readWeights,
	"affinity-timeout": (*settings).readAffinity,
	"drain-timeout":    (*settings).readDrain,
	"source-address":   (*settings).readSource,
	"max-connections":  (*settings).readLimits,
	"forward":          (*settings).readForward,
}

// addressAnnotations request addresses. They need no permission, as the pools limit them.
var addressAnnotations = []string{"addresses", "pool", "sharing-key"}

// Annotations returns the names of the annotations that can be allowed, without the
// prefix, sorted.
func Annotations() []string { return slices.Sorted(maps.Keys(annotations)) }

// readAnnotations reads those of a Service that cfg permits, and notes the others.
func readAnnotations(cfg *Config, texts map[string]string, note func(string, ...any)) settings {
	var w settings
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		full := cfg.prefix() + name
		read, known := annotations[name]
		switch {
		case slices.Contains(addressAnnotations, name): // the Provider reads it
		case !known:
			note("%.64q is no annotation of weir: there are %s", full, strings.Join(slices.Sorted(slices.Values(slices.Concat(Annotations(), addressAnnotations))), ", "))
		case !slices.Contains(cfg.Annotations, name):
			note("%s is not allowed: only the operator can, by %q in allow_annotations of cluster %s", full, name, cfg.Name)
		default:
			if err := read(&w, strings.TrimSpace(texts[name])); err != nil {
				note("%s %.64q: %v", full, texts[name], err)
			}
		}
	}
	return w
}

func (w *settings) readScheduler(text string) error {
	for name := range lb.Schedulers {
		if name == text {
			w.scheduler = name
			return nil
		}
	}
	return fmt.Errorf("write one of %s", strings.Join(slices.Sorted(maps.Keys(lb.Schedulers)), ", "))
}

func (w *settings) readFlags(text string) error {
	var flags lb.SchedulerFlag
	for _, word := range list(text) {
		switch word {
		case "fallback":
			flags |= lb.Fallback
		case "port":
			flags |= lb.WithPort
		default:
			return errors.New(`write "fallback", "port", "fallback,port", or "" for none`)
		}
	}
	w.flags = &flags
	return nil
}

func (w *settings) readWeights(text string) error {
	usage := errors.New(`write names and weights of 0 to 65535, as in "zone/a=3, zone/b=1, node/n7=0"`)
	out := weights{nodes: map[string]uint32{}, zones: map[string]uint32{}}
	words := list(text)
	if len(words) == 0 {
		return usage
	}
	if len(words) > mostWeights {
		return fmt.Errorf("write at most %d weights", mostWeights)
	}
	for _, word := range words {
		who, number, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(number, 10, 16)
		kind, name, _ := strings.Cut(who, "/")
		of := map[string]map[string]uint32{"node": out.nodes, "zone": out.zones}[kind]
		if err != nil || name == "" || of == nil {
			return usage
		}
		if _, twice := of[name]; twice {
			return fmt.Errorf("write %.64q once", who)
		}
		of[name] = uint32(n)
	}
	w.weights = out
	return nil
}

func (w *settings) readAffinity(text string) (err error) {
	w.affinity, err = within(text, longestAffinity)
	if err == nil && *w.affinity%time.Second != 0 {
		w.affinity, err = nil, errors.New("write whole seconds")
	}
	return err
}

func (w *settings) readDrain(text string) (err error) {
	w.drain, err = within(text, longestDrain)
	return err
}

// within reads a duration from 0 to most.
func within(text string, most time.Duration) (*time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return nil, fmt.Errorf(`write a duration from 0s to %.0fh, as in "90s" or "10m"`, most.Hours())
	}
	return &d, nil
}

func (w *settings) readSource(text string) error {
	if text != "keep" && text != "masquerade" {
		return errors.New("write keep or masquerade")
	}
	w.source = text
	return nil
}

func (w *settings) readForward(text string) error {
	if text != "nat" && text != "tunnel" {
		return errors.New("write nat or tunnel")
	}
	w.tunnel = text == "tunnel"
	return nil
}

func (w *settings) readLimits(text string) error {
	upper, lower, two := strings.Cut(text, "/")
	u, err := strconv.ParseUint(upper, 10, 32)
	l, lowerErr := uint64(0), error(nil)
	if two {
		l, lowerErr = strconv.ParseUint(lower, 10, 32)
	}
	// The kernel counts connections in a signed number (ip_vs_dest_totalconns).
	if err != nil || lowerErr != nil || u < 1 || u > math.MaxInt32 || l >= u {
		return errors.New(`write "1000", or "1000/800" for new connections again when fewer than 800 are open`)
	}
	w.limits = limits{uint32(u), uint32(l)}
	return nil
}

// list cuts a text at commas and spaces.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
