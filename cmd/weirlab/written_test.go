package main

import "testing"

func TestTablesAreReplacedBetweenTheirMarks(t *testing.T) {
	const text = "# Doc\n\nprose\n"
	begin, end := marks("make bench")
	once := withTable(text, "make bench", "| a |\n")
	if want := "# Doc\n\nprose\n\n" + begin + "| a |\n" + end; once != want {
		t.Errorf("added:\n%s\nwant:\n%s", once, want)
	}
	twice := withTable(once+"more\n", "make bench", "| b |")
	if want := "# Doc\n\nprose\n\n" + begin + "| b |\n" + end + "more\n"; twice != want {
		t.Errorf("replaced:\n%s\nwant:\n%s", twice, want)
	}
	if other := withTable(once, "make drill", "| c |"); withTable(other, "make bench", "| a |") != other {
		t.Errorf("another target's table is touched:\n%s", other)
	}
}
