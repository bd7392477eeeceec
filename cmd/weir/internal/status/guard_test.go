package status

import (
	"testing"
	"time"
)

func TestGuardReadsAsATable(t *testing.T) {
	for _, tt := range []struct {
		name string
		doc  Guard
		want string
	}{
		{"nothing", Guard{}, "no source is guarded\n"},
		{"two", Guard{Guarded: []GuardedSource{
			{Source: "prod", Since: ago(2 * time.Minute), Until: now.Add(8 * time.Minute), Services: 12, Frontends: 24, Backends: 300,
				First: []string{"prod/shop/a", "prod/shop/b"}},
			{Source: "stage", Since: ago(3 * time.Hour), Services: 1, Frontends: 1, First: []string{"stage/x/y"}},
		}}, `SOURCE  GUARDED  UNTIL     SERVICES  FRONTENDS  BACKENDS  FIRST
prod    2m       in 8m     12        24         300       prod/shop/a prod/shop/b
stage   3h       released  1         1          0         stage/x/y

To accept the deletions: weir guard release prod
`},
	} {
		t.Run(tt.name, func(t *testing.T) { checkTable(t, tt.doc, tt.want) })
	}
}
