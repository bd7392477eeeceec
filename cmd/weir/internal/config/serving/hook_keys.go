package serving

import (
	"net/url"
	"path/filepath"
	"strconv"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/schema"
	"weir/cmd/weir/internal/config/source"
)

// hookKeys returns the keys of [[hook]].
func hookKeys(h *config.Hook) []schema.Key {
	return []schema.Key{
		{Path: "hook", Type: schema.Tables,
			Doc: "A program or a web server that gets events of the box as JSON: kind, text, time, host and attrs. Each hook runs one " +
				"event at a time. 256 of them may wait, and more are dropped (weir_hook_runs_total)."},
		{Path: "hook.name", To: &h.Name, Example: `"pager"`, Required: true,
			Doc: "The unique name in the log."},
		{Path: "hook.on", To: &h.On, Example: `["vip", "health"]`, Required: true, Values: []string{config.OnVIP, config.OnBackend, config.OnRole, config.OnHealth},
			Doc: "The kinds of events. vip: VIPs move between members, or routes change. backend: a backend is up or down. role: the state of this member in " +
				"the fleet changes. health: the state of the box in weir status changes."},
		{Path: "hook.exec", Type: schema.Texts, Example: `["/usr/local/bin/notify", "edge"]`,
			Doc: "The absolute name of a program, and its arguments. It gets the event on standard input, and its parts as WEIR_KIND, WEIR_TEXT and so on. It " +
				"runs as the programs of checks, and needs daemon.allow_exec."},
		{Path: "hook.url", To: &h.URL, Example: `"https://alerts.example.com/weir"`, Check: checkHookURL,
			Doc: "Instead of exec: the URL to which the event is posted. The status must be 200 to 299. \"\" means exec."},
		{Path: "hook.timeout", To: &h.Timeout, Default: `"10s"`, Min: schema.Second, Max: schema.Hour,
			Doc: "Time limit of a run."},
	}
}

func checkHookURL(value any) *source.Fault {
	u, err := url.Parse(value.(string))
	if value.(string) == "" {
		return nil
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return source.Faultf(`write "https://HOST/PATH"`, "%q is not a URL of HTTP", value)
	}
	return nil
}

func readHooks(list []schema.Section, d config.Daemon) []config.Hook {
	var out []config.Hook
	first := map[string]source.Place{}
	for _, t := range list {
		var h config.Hook
		t.Read(hookKeys(&h))
		h.Exec = words(t, "exec")
		if at, ok := first[h.Name]; ok && h.Name != "" {
			t.Fail("name", strconv.Quote(h.Name)+" is also the name of the hook at "+at.String(), "rename one of them")
		}
		first[h.Name] = t.At("name")
		if t.Set("name") && h.Name == "" {
			t.Fail("name", "is empty", `write for instance name = "pager"`)
		}
		if t.EmptyList("on") {
			t.Fail("on", "the hook would get no event", `write for instance on = ["vip", "health"]`)
		}
		switch {
		case t.Bad("exec") || t.Bad("url"):
		case t.Has("exec") == (h.URL != ""):
			t.Fail("exec", "a hook has either exec or url", "set one of them")
		case t.Has("exec") && (len(h.Exec) == 0 || !filepath.IsAbs(h.Exec[0])):
			t.Fail("exec", "does not begin with the absolute name of a program", "begin it with /")
		case t.Has("exec") && !d.AllowExec:
			t.Fail("exec", "runs a program, which [daemon] does not permit", "set daemon.allow_exec = true, and start weir-exec.socket")
		}
		out = append(out, h)
	}
	return out
}

// words returns a list of strings, also repeated ones.
func words(t schema.Section, name string) []string {
	var out []string
	for _, e := range t.Elements(name) {
		word, _ := e.Scalar.(string) // the schema admits only strings
		out = append(out, word)
	}
	return out
}
