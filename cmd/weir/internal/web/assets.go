package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"
)

//go:embed static
var files embed.FS

// asset is a file that belongs to the page. A browser asks each time whether it has
// changed, as it may with weir's version.
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
	_, _ = w.Write(a.content) // the reader has gone; nobody to tell
}

// page is the HTML of all pages: "page" is a whole one, "section-NAME" a part that
// changes by itself.
var page = template.Must(template.New("").Funcs(template.FuncMap{
	"count": count, "cut": cut, "next": nextOf, "join": strings.Join,
	"num": number[int], "num32": number[uint32], "num64": number[uint64],
}).ParseFS(files, "static/*.html"))
