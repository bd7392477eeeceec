package conformance

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func example() []Column {
	column := func(engine string, first, second Row) Column {
		first.Number, first.Name, second.Number, second.Name = 1, "one", 2, "two"
		return Column{Engine: engine, Kernel: "7.3", Probes: 10, Locations: 6, Rows: []Row{first, second}}
	}
	return []Column{
		column(IPVS, Row{Run: true, Took: time.Second}, Row{Run: true, Faults: []string{"refused"}, Known: true}),
		column(NFTables, Row{Run: true}, Row{Run: true}),
		column(Netfilter, Row{Run: true}, Row{Run: true}),
		column(Iptables, Row{Run: true}, Row{Run: true, Note: " (200 Services)"}),
		column(KubeProxy, Row{Run: true, Faults: []string{"R1 keep at first and then refused (visit 6 of 10)"}}, Row{Lacks: "it has none"}),
	}
}

func TestTheTableHasACellForEachEngine(t *testing.T) {
	page := Page(example(), time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), "a processor", "weir v1")
	var table strings.Builder
	Print(&table, example())
	for _, c := range []struct{ in, want string }{
		{page, "- Date: 2026-11-22\n"},
		{page, "- Kernel: Linux 7.3,"},
		{page, "- Processor: a processor\n"},
		{page, "- Versions: weir v1\n"},
		{page, "| No. | Check | weir, IPVS | weir, IPVS, nftables | weir, netfilter, nftables | weir, netfilter, iptables | kube-proxy, IPVS |\n"},
		{page, "| 1 | one | pass | pass | pass | pass | fail |\n"},
		{page, "| 2 | two | known failure | pass | pass | pass (200 Services) | not applicable: it has none |\n"},
		{page, "| | passed | 1 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 0 of 1 |\n"},
		{page, "\n## Failures of weir, IPVS\n\nThe first one of each check. The backend sees the client's address (`keep`) or the box's (`masq`).\n\n```text\n 2  refused\n```\n"},
		{page, "chain KUBE-IPVS-FILTER rejects new connections.\n\n```text\n 1  R1 keep at first and then refused (visit 6 of 10)\n```\n"},
		{table.String(), "1 kube-proxy: R1 keep at first"},
		{table.String(), "1 of 2 in 1 s"},
	} {
		if !strings.Contains(c.in, c.want) {
			t.Errorf("no %q in\n%s", c.want, c.in)
		}
	}
}

func TestColumnsAreSavedAndLoaded(t *testing.T) {
	folder, all := t.TempDir(), example()
	for _, c := range []Column{all[2], all[0]} {
		if err := c.Save(folder); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(folder)
	if err != nil || !reflect.DeepEqual(got, []Column{all[0], all[2]}) {
		t.Errorf("loaded %+v, %v", got, err)
	}
	if err := Complete(got); err == nil {
		t.Error("a table of two columns counts as complete")
	}
}

func TestATableWithoutAResultIsIncomplete(t *testing.T) {
	all := example()
	if err := Complete(all); err != nil {
		t.Error(err)
	}
	all[3].Rows[0] = Row{Number: 1, Name: "one"}
	if err := Complete(all); err == nil || !strings.Contains(err.Error(), "check 1 was not put to iptables") {
		t.Errorf("an error %v", err)
	}
}
