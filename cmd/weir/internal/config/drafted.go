package config

import (
	"errors"
	"fmt"
	"strings"
)

// Drafted says what keeps a configuration from being run that was made of something
// else, for a machine which is not at hand: errors alone, each with the line that it is
// about, since nobody has that file yet.
func Drafted(text string) error {
	_, err := Parse("weir.toml", []byte(text), Elsewhere{})
	var problems *Errors
	if !errors.As(err, &problems) {
		return err
	}
	lines := strings.Split(text, "\n")
	var errs []error
	for _, p := range problems.Problems {
		switch {
		case p.Severity != Error:
		case p.Line > 0 && p.Line <= len(lines):
			errs = append(errs, fmt.Errorf("%s: %s (%s)", p.Key, p.Text, strings.TrimSpace(lines[p.Line-1])))
		default:
			errs = append(errs, fmt.Errorf("%s: %s", p.Key, p.Text))
		}
	}
	return fmt.Errorf("a value can't be taken over; change it in the file that is read:\n%w", errors.Join(errs...))
}
