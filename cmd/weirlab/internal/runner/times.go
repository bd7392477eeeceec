package runner

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"
)

// times is the table of what is known about tests, by their keys. It is kept from run to run: a wrong
// or missing entry costs time, nothing else.
type times map[string]known

type known struct {
	Seconds float64 `json:"seconds"`
	Used    float64 `json:"used,omitempty"` // seconds of a processor, with those of its machines
	Cores   int     `json:"cores"`
}

// slower limits the known time of a test to that of the run before, times this, as long as its use of a
// processor is about the same.
const slower = 1.1

// after is what is known after one more run. Beside others a test takes longer than by itself, so
// a longer time counts in small steps: otherwise a busy machine would make the test seem less busy. A test that
// does more than before is a new one.
func (k known) after(r Result) known {
	now := known{Seconds: tenths(r.Took), Used: tenths(r.Used), Cores: r.Cores}
	if k.Seconds > 0 && k.Used > 0 && now.Used < 1.5*k.Used {
		now.Seconds = min(now.Seconds, slower*k.Seconds)
	}
	return now
}

// ReadJSON reads a file, if it is there, into a map or a struct.
func ReadJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// WriteJSON writes such a file, and makes its folder.
func WriteJSON(path string, from any) error {
	text, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// tenths returns seconds, with one digit after the point. It rounds up: 0 means unknown.
func tenths(d time.Duration) float64 { return math.Ceil(d.Seconds()*10) / 10 }
