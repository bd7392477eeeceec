package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
)

// What has a colour: the state in a status' first line, and cells of tables that are one
// of these words and nothing else. Colours repeat what the words say, and say nothing by
// themselves.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

var tints = map[string]string{
	"ok": green, "up": green, "Established": green, "serving": green, "standby": green,
	"degraded": yellow, "starting": yellow, "unknown": yellow, "draining": yellow, "drained": yellow, "fresh": yellow, "away": yellow,
	"warn": yellow, "warning": yellow, "waiting": yellow, "suspect": yellow,
	"failed": red, "down": red, "dead": red, "unfit": red, "error": red,
}

var (
	stateLine = regexp.MustCompile(`^(weir is )([a-z]+)\b`)
	cell      = regexp.MustCompile(`(^|  )([^ ]+(?: [^ ]+)*)`)
)

// tint colours a line.
func tint(line string) string {
	if m := stateLine.FindStringSubmatch(line); m != nil && tints[m[2]] != "" {
		return m[1] + tints[m[2]] + m[2] + reset + line[len(m[0]):]
	}
	return cell.ReplaceAllStringFunc(line, func(s string) string {
		word := strings.TrimLeft(s, " ")
		if c := tints[word]; c != "" {
			return s[:len(s)-len(word)] + c + word + reset
		}
		return s
	})
}

// tinter colours what is written to it line by line.
type tinter struct {
	to   io.Writer
	rest []byte // of a line that has not ended
}

// Write implements io.Writer.
func (t *tinter) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	end := bytes.LastIndexByte(t.rest, '\n') + 1
	var out strings.Builder
	for line := range strings.Lines(string(t.rest[:end])) {
		out.WriteString(tint(strings.TrimSuffix(line, "\n")) + "\n")
	}
	t.rest = append([]byte(nil), t.rest[end:]...)
	if _, err := io.WriteString(t.to, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes what has no end of line.
func (t *tinter) flush() {
	_, _ = io.WriteString(t.to, tint(string(t.rest))) // nobody to tell
	t.rest = nil
}
