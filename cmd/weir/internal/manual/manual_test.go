package manual

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"weir/cmd/weir/internal/config/load"
	"weir/cmd/weir/internal/config/schema"
)

var edition = Edition{Version: "1.2.3", Date: time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)}

// tree is a program with one command that is seen and one that is not.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "weir", Short: "load balancer"}
	pour := &cobra.Command{
		Use:   "pour [--all] [JUG...]",
		Short: "fill jugs",
		Long: `Fill jugs to the brim. A back\slash, a
line that is told on.

.starts with a dot

  big    ten litres
  small  'one' litre

Exit status: 0 done, 1 some are broken, 4 the water
is out.`,
		Example: "  weir pour --all\n  weir pour big",
		Run:     func(*cobra.Command, []string) {},
	}
	pour.Flags().StringP("config", "c", "/etc/weir/weir.toml", "configuration `file`")
	pour.Flags().Bool("all", false, "every jug")
	root.AddCommand(pour, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	return root
}

func TestPageOfACommand(t *testing.T) {
	pages := Commands(tree(), edition)
	if len(pages) != 2 || pages[0].File != "weir.8" || pages[1].File != "weir-pour.8" {
		t.Fatalf("%d pages: %+v", len(pages), pages)
	}
	want := `.TH "WEIR\-POUR" 8 2026-01-31 "weir 1.2.3" weir
.SH "NAME"
weir\-pour \- fill jugs
.SH "SYNOPSIS"
\fBweir pour\fR [\fB\-\-all\fR] [\fIJUG\fR...] [\fIoptions\fR]
.SH "DESCRIPTION"
Fill jugs to the brim. A back\eslash, a line that is told on.
.PP
\&.starts with a dot
.PP
.RS "2"
.EX
big    ten litres
small  \(aqone\(aq litre
.EE
.RE
.SH "OPTIONS"
.TP
\fB\-\-all\fR
Every jug.
.TP
\fB\-c\fR, \fB\-\-config\fR \fIfile\fR
Configuration file. Default: /etc/weir/weir.toml.
.SH "EXIT STATUS"
.TP
\fB0\fR
Done.
.TP
\fB1\fR
Some are broken.
.TP
\fB4\fR
The water is out.
.SH "FILES"
.TP
\fI/etc/weir/weir.toml\fR
The configuration; weir.toml(5) describes every key.
.SH "EXAMPLES"
.RS "2"
.EX
weir pour \-\-all
weir pour big
.EE
.RE
.SH "SEE ALSO"
\fBweir\fR(8),
\fBweir.toml\fR(5)
`
	if d := cmp.Diff(want, pages[1].Text); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, want := range []string{"\\fBweir\\fR \\fIcommand\\fR ...\n", "\\fBweir\\-pour\\fR(8)\nFill jugs.\n", "\\fB3\\fR\nWeir is not running.\n"} {
		if !strings.Contains(pages[0].Text, want) {
			t.Errorf("weir(8) has no %q:\n%s", want, pages[0].Text)
		}
	}
}

func TestPageOfTheConfigurationHasEveryKey(t *testing.T) {
	page := Config(load.Schema().Keys(), edition)
	if page.File != "weir.toml.5" {
		t.Errorf("it is called %s", page.File)
	}
	for _, k := range load.Schema().Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		want := "\n" + bold(name)
		switch k.Type {
		case schema.Table:
			want = `.SS "[` + k.Path + `]"`
		case schema.Tables:
			want = `.SS "[[` + k.Path + `]]"`
		}
		if !strings.Contains(page.Text, want) {
			t.Errorf("%s is not in it: %q", k.Path, want)
		}
	}
	for _, want := range []string{`\fBsync_period\fR = "10s"`, "Duration from 1s to 24h.", "Required.", "A change needs a restart."} {
		if !strings.Contains(strings.Join(strings.Fields(page.Text), " "), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// A line of man(7) that begins with a dot or an apostrophe is a command: none may come
// from the text.
func TestTextIsNeverACommand(t *testing.T) {
	w := newWriter("x", 8, edition)
	begin := w.out.Len()
	w.fill(strings.Repeat(".x 'y \\z ", 50))
	for line := range strings.Lines(w.out.String()[begin:]) {
		if line[0] == '.' || line[0] == '\'' || len(line) > 120 || strings.Contains(line, `\z`) {
			t.Errorf("%q", line)
		}
	}
}
