package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// jsonFile describes every document of -o json. It is made of the comments of the types:
// go test ./cmd/weir -run TestJSONIsDocumented -update writes it.
const jsonFile = "../../packaging/doc/json.md"

// documents are the types that commands write, by package and name, and what writes them.
var documents = []struct{ pkg, name, commands string }{
	{"status", "Status", "`weir status`"},
	{"status", "Absent", "`weir status`, while no daemon runs"},
	{"status", "Services", "`weir services`"},
	{"status", "Conns", "`weir conns`"},
	{"explain", "Answer", "`weir explain`"},
	{"status", "Health", "`weir health`"},
	{"status", "Events", "`weir events`"},
	{"traffic", "Rates", "`weir top`"},
	{"traffic", "Totals", "Counters of the kernel: `/traffic` of the daemon's socket"},
	{"status", "Pools", "`weir pools`"},
	{"status", "PoolAddresses", "`weir pools POOL`"},
	{"routing", "Neighbors", "`weir bgp neighbors`"},
	{"routing", "Routes", "`weir bgp routes`"},
	{"status", "Members", "`weir members`"},
	{"status", "Guard", "`weir guard`"},
	{"plan", "Diff", "`weir plan`"},
	{"doctor", "Report", "`weir doctor`"},
	{"backendhost", "Report", "`weir backend check`"},
	{"config", "Effective", "`weir config show`"},
	{"config", "Manual", "`weir config explain`"},
	{"status", "Drained", "Drained objects, in `weir status`"},
}

// statusFolders have the documents of the daemon.
var statusFolders = []string{"internal/status", "internal/status/explain", "internal/status/plan", "internal/status/routing", "internal/status/traffic"}

// headings are the names in json.md of types with names that only their package makes clear.
var headings = map[string]string{
	"explain.Answer": "Explanation", "explain.Port": "ExplainedPort",
	"plan.Diff": "Plan", "plan.Routes": "PlannedRoutes", "plan.Route": "PlannedRoute", "plan.Path": "PlannedPath",
	"traffic.Totals": "Traffic", "traffic.Frontend": "FrontendTraffic", "traffic.Backend": "BackendTraffic",
}

// heading returns the name of a type in json.md.
func (x goType) heading() string { return cmp.Or(headings[x.pkg+"."+x.name], x.name) }

// commonFields mean the same wherever they are.
var commonFields = map[string]string{
	"name":                   "name in the configuration or the cluster",
	"service":                "the Service as `SOURCE/NAME` or `SOURCE/NAMESPACE/NAME`; SOURCE is static or a cluster",
	"services":               "Services: so many, or their names",
	"cluster":                "the name of a `[[kubernetes]]`",
	"peer":                   "the name of a `[[bgp.peer]]`",
	"pool":                   "the name of a `[[pool]]`",
	"frontend":               "`ADDRESS:PORT/PROTOCOL`",
	"frontends":              "virtual servers: so many, or one entry each",
	"backend":                "`ADDRESS:PORT`",
	"backends":               "backends: so many, or one entry each",
	"address":                "an IP address, or ADDRESS:PORT",
	"port":                   "1 to 65535",
	"protocol":               "tcp, udp or sctp",
	"scheduler":              "as in the configuration",
	"weight":                 "as in the configuration; 0 takes no new connections",
	"state":                  "state, in one word",
	"since":                  "start of the state",
	"text":                   "the same for people; its wording may change",
	"notes":                  "notes of the services",
	"error":                  "the error, for people; absent without one",
	"version":                "as in the output of `weir version`",
	"pid":                    "the daemon's process",
	"started":                "when the daemon started",
	"time":                   "time of the event",
	"asn":                    "the autonomous system",
	"prefix":                 "a prefix such as 192.0.2.0/24",
	"interface":              "a network interface",
	"key":                    "name of the attribute",
	"value":                  "value of the attribute",
	"mode":                   "as in the configuration",
	"families":               "ipv4, ipv6",
	"members":                "members of the fleet",
	"peers":                  "routers: their names, or one entry each",
	"active":                 "connections that are open",
	"inactive":               "connections that are closing, and flows of UDP",
	"mac":                    "the hardware address",
	"drained":                "drained objects",
	"namespace":              "that of the Service in its cluster",
	"reason":                 "a word of errors.md or notes.md, or a text",
	"deadline":               "when it ends at the latest",
	"client":                 "the client's address",
	"endpoints":              "backends that a cluster has",
	"neighbors":              "one entry a router",
	"addresses":              "one entry an address",
	"interfaces":             "one entry an interface",
	"events":                 "one entry an event",
	"findings":               "one entry each",
	"severity":               "severity of the finding",
	"file":                   "the path of a file",
	"files":                  "paths of files",
	"line":                   "of the file, from 1",
	"keys":                   "one entry a key",
	"tables":                 "one entry a table",
	"total":                  "all of them together",
	"connections_per_second": "new ones",
	"packets_in_per_second":  "from clients",
	"packets_out_per_second": "to clients",
	"bytes_in_per_second":    "from clients",
	"bytes_out_per_second":   "to clients",
	"source":                 "static, or the name of a cluster",
}

// goType is a struct of a document, as in its source.
type goType struct {
	pkg, name, doc string
	fields         *ast.FieldList
	words          []string // of a string that is one of a few
	is             string   // the type that it is made of, if that has a name
}

// goTypes reads the packages in which documents are made.
func goTypes(t *testing.T) map[string]goType {
	t.Helper()
	types := map[string]goType{}
	for _, dir := range append(statusFolders[:len(statusFolders):len(statusFolders)], "internal/doctor", "internal/backendhost", "internal/config", "internal/config/load", "internal/config/schema", "../../lb", "../../cluster", "../../k8ssync/ipam") {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			must(t, err)
			for _, decl := range f.Decls {
				if g, ok := decl.(*ast.GenDecl); ok {
					readSpecs(types, filepath.Base(dir), g)
				}
			}
		}
	}
	return types
}

// readSpecs reads a declaration of types, or of the words that a type may be.
func readSpecs(types map[string]goType, pkg string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			x := types[pkg+"."+s.Name.Name] // its words may have come first
			x.pkg, x.name, x.doc = pkg, s.Name.Name, g.Doc.Text()+s.Doc.Text()
			if st, ok := s.Type.(*ast.StructType); ok {
				x.fields = st.Fields
			} else if id, ok := s.Type.(*ast.Ident); ok {
				x.is = id.Name
			}
			types[pkg+"."+x.name] = x
		case *ast.ValueSpec:
			of, named := s.Type.(*ast.Ident)
			if !named || g.Tok != token.CONST || len(s.Values) != 1 {
				continue
			}
			if word, ok := s.Values[0].(*ast.BasicLit); ok && word.Kind == token.STRING {
				x := types[pkg+"."+of.Name]
				x.words = append(x.words, strings.Trim(word.Value, `"`))
				types[pkg+"."+of.Name] = x
			}
		}
	}
}

// jsonWriter writes the documents, and what they hold.
type jsonWriter struct {
	t     *testing.T
	types map[string]goType
	done  map[string]bool
	wait  []string // types that are named and not written yet
	out   strings.Builder
}

func TestJSONIsDocumented(t *testing.T) {
	w := &jsonWriter{t: t, types: goTypes(t), done: map[string]bool{}}
	w.out.WriteString(jsonHead)
	for _, name := range slices.Sorted(maps.Keys(commonFields)) {
		fmt.Fprintf(&w.out, "| `%s` | %s |\n", name, commonFields[name])
	}
	for _, d := range documents {
		w.out.WriteString("\n## " + d.commands + "\n")
		w.wait = append(w.wait, d.pkg+"."+d.name)
		for len(w.wait) > 0 {
			next := w.wait[0]
			w.wait = w.wait[1:]
			w.write(next)
		}
	}
	for name, x := range w.types {
		if isDocument(t, x) && !w.done[name] {
			if x.name != "OnScreen" { // a Status that fits a terminal
				t.Errorf("%s is a document: say in documents which command writes it", name)
			}
		}
	}
	if *update {
		must(t, os.WriteFile(jsonFile, []byte(w.out.String()), 0o644))
	}
	if have := sourceText(t, jsonFile); have != w.out.String() && !t.Failed() {
		t.Errorf("%s is not what the types say: go test ./cmd/weir -run TestJSONIsDocumented -update", jsonFile)
	}
}

// isDocument reports whether a type is a document of the daemon.
func isDocument(t *testing.T, x goType) bool {
	return slices.ContainsFunc(statusFolders, func(dir string) bool {
		return filepath.Base(dir) == x.pkg && strings.Contains(sourceText(t, dir+"/[a-z]*.go"), " "+x.name+") Table(w io.Writer")
	})
}

// write writes a type that is a struct, once.
func (w *jsonWriter) write(name string) {
	x := w.types[name]
	if w.done[name] || x.fields == nil {
		return
	}
	w.done[name] = true
	doc := strings.Replace(oneLine(x.doc), x.name, x.heading(), 1) // it begins with the name
	fmt.Fprintf(&w.out, "\n### %s\n\n%s\n\n| field | type | meaning |\n| --- | --- | --- |\n", x.heading(), doc)
	w.fields(x)
}

// row is one or more fields with one comment.
type row struct {
	goNames, names, types []string
	doc                   string
}

func (w *jsonWriter) fields(x goType) {
	var rows []row
	called := map[string]string{} // what a comment calls a field: its name in JSON
	for _, f := range x.fields.List {
		name, optional := jsonName(f)
		if name == "-" {
			continue
		}
		if len(f.Names) == 0 { // embedded: its fields are here
			w.embedded(x, f)
			continue
		}
		called[f.Names[0].Name] = name
		doc := f.Doc.Text() + f.Comment.Text()
		r := row{[]string{f.Names[0].Name}, []string{name}, []string{w.typeOf(x.pkg, f.Type)}, doc}
		if optional {
			r.types[0] += "?"
		}
		last := len(rows) - 1
		switch {
		case doc == "" && last >= 0 && mentions(rows[last].doc, r.goNames[0]):
			rows[last].goNames = append(rows[last].goNames, r.goNames[0])
			rows[last].names, rows[last].types = append(rows[last].names, r.names[0]), append(rows[last].types, r.types[0])
			continue
		case doc == "" && commonFields[name] == "":
			w.t.Errorf("%s.%s.%s (%q) has no comment: say what it means, its unit, and when it is absent", x.pkg, x.name, f.Names[0].Name, name)
		case doc == "":
			rows = append(rows, row{nil, r.names, r.types, commonFields[name]})
			continue
		}
		rows = append(rows, r)
	}
	for _, r := range rows {
		doc := capitals.ReplaceAllStringFunc(oneLine(r.doc), func(word string) string {
			if name := called[word]; name != "" && len(r.goNames) > 0 {
				return "`" + name + "`"
			}
			return word
		})
		fmt.Fprintf(&w.out, "| `%s` | %s | %s |\n", strings.Join(r.names, "`, `"), strings.Join(r.types, ", "), doc)
	}
}

// embedded writes the fields of a struct as those of the one that embeds it.
func (w *jsonWriter) embedded(x goType, f *ast.Field) {
	expr := f.Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if id, ok := expr.(*ast.Ident); ok {
		w.fields(w.types[x.pkg+"."+id.Name])
	}
}

var capitals = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`)

func mentions(doc, name string) bool {
	return slices.Contains(capitals.FindAllString(doc, -1), name)
}

func jsonName(f *ast.Field) (name string, optional bool) {
	if f.Tag == nil {
		if len(f.Names) > 0 && !f.Names[0].IsExported() {
			return "-", false
		}
		if len(f.Names) > 0 {
			return f.Names[0].Name, false
		}
		return "", false
	}
	name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	return name, strings.Contains(options, "omit")
}

// typeOf names in a word what JSON has for a type, and has the structs of it written.
func (w *jsonWriter) typeOf(pkg string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return w.typeOf(pkg, e.X)
	case *ast.ArrayType:
		return "list of " + w.typeOf(pkg, e.Elt)
	case *ast.MapType:
		return "object of " + w.typeOf(pkg, e.Value)
	case *ast.SelectorExpr:
		switch of := e.X.(*ast.Ident).Name; of {
		case "time", "netip":
			return map[string]string{"Time": "time", "Duration": "nanoseconds", "Addr": "string", "AddrPort": "string", "Prefix": "string"}[e.Sel.Name]
		default:
			return w.typeOf(of, e.Sel)
		}
	case *ast.Ident:
		switch {
		case e.Name == "any":
			return "any value"
		case e.Name == "string", e.Name == "bool":
			return e.Name
		case strings.HasPrefix(e.Name, "int"), strings.HasPrefix(e.Name, "uint"), strings.HasPrefix(e.Name, "float"):
			return "number"
		}
		if x := w.types[pkg+"."+e.Name]; x.fields != nil {
			w.wait = append(w.wait, pkg+"."+e.Name)
			return fmt.Sprintf("[%s](#%s)", x.heading(), strings.ToLower(x.heading()))
		}
		if is := w.types[pkg+"."+e.Name].is; is != "" && is != "string" {
			return w.typeOf(pkg, ast.NewIdent(is))
		}
		if words := w.types[pkg+"."+e.Name].words; len(words) > 0 {
			return "word: " + strings.Join(words, ", ")
		}
		return "word"
	}
	w.t.Errorf("%s: %T is a type that json.md has no word for", pkg, e)
	return "?"
}

// oneLine is a comment as a cell of a table.
func oneLine(doc string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(doc), " "), "|", `\|`)
}

const jsonHead = `# JSON

The output of reading commands with ` + "`-o json`" + `, and as YAML with ` + "`-o yaml`" + `. Names and meanings of
fields are stable. New fields may be added: ignore unknown fields. Times are RFC 3339. A type with
a question mark marks an optional field, which is absent if it is empty. A word is one of a fixed
set. Exit statuses are in ` + "`commands.md`" + `.

    weir status -o json | jq -r .state
    weir services -o json | jq -r '.frontends[] | select(.service == "static/web") | .servers[].address'

This page is generated from the comments of the program's types.

Fields without a meaning beside them mean the same everywhere:

| field | meaning |
| --- | --- |
`
