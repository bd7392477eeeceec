package e2e

import (
	"os"
	"sync"
	"testing"

	table "weir/cmd/weirlab/internal/conformance"
)

// saving in the environment names a folder in which each engine's column is saved.
const saving = "WEIR_CONFORMANCE_COLUMNS"

// columns are those of this process. TestMain prints them.
var columns struct {
	sync.Mutex
	all []table.Column
}

// column is the one of the engine that runs.
type column struct{ table.Column }

func newColumn(engine, kernel string) *column {
	c := &column{table.Column{Engine: engine, Kernel: kernel, Probes: probes, Locations: len(everywhere)}}
	for _, ch := range claims {
		c.Rows = append(c.Rows, table.Row{Number: ch.number, Name: ch.name, Lacks: ch.lacks[engine]})
	}
	return c
}

// row is the one of a check.
func (c *column) row(ch claim) *table.Row {
	for i := range c.Rows {
		if c.Rows[i].Number == ch.number {
			return &c.Rows[i]
		}
	}
	panic("a check that is not in the list")
}

// keep keeps the column for TestMain, and saves it where that is requested.
func (c *column) keep(t *testing.T) {
	columns.Lock()
	defer columns.Unlock()
	columns.all = append(columns.all, c.Column)
	if folder := os.Getenv(saving); folder != "" {
		if err := c.Save(folder); err != nil {
			t.Error(err)
		}
	}
}
