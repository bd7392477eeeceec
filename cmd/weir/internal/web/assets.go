package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed static
var files embed.FS

// asset is a file of the page. Browsers revalidate it each time.
type asset struct {
	name, kind string
	content    []byte
	etag       string
}

var assets = []asset{
	newAsset("weir.css", "text/css; charset=utf-8"),
	newAsset("weir.js", "text/javascript; charset=utf-8"),
	newAsset("weir.svg", "image/svg+xml"),
}

func newAsset(name, kind string) asset {
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		panic("web: " + err.Error()) // it is embedded
	}
	sum := sha256.Sum256(content)
	return asset{name, kind, content, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", a.etag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	_, _ = w.Write(a.content) // the client may be gone
}

// page has the templates: "page" is a complete page, "section-NAME" one section.
var page = template.Must(template.New("").Funcs(template.FuncMap{
	"count": count, "count64": func(n uint64, noun string) string { return count(int(n), noun) }, "cut": cut, "advice": adviceFor, "join": strings.Join, "first": first, "more": more,
	"stateClass": stateClass, "memberClass": memberClass, "peerState": peerState, "peerClass": peerClass, "peerReason": peerReason,
	"clusterReason": clusterReason, "levelClass": levelClass, "latency": latency, "title": title, "checked": checked,
	"datetime": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"num":      number[int], "num32": number[uint32], "num64": number[uint64],
}).ParseFS(files, "static/*.html"))
