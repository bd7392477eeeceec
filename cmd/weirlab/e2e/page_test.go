package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/internal/props"
	"weir/cmd/weirlab/lab"
)

// The status page, as a browser on client1 sees it: many services on the box, of which
// one is checked and has clients.
const pageAt = "http://10.1.0.1:10266"

var pageServices = sized(1000, 5000)

func pageConfig() string {
	return "[daemon]\npage_listen = \"10.1.0.1:10266\"\n\n[kernel]\nsync_period = \"1h\"\nvip_mode = \"route\"\nroute_pools = [\"" + props.Pool + "\"]\n" +
		service("web", check("http", httpCheck)) + props.Services(1, pageServices)
}

func TestStatusPageInABrowser(t *testing.T) {
	t.Parallel()
	lab.Chromium.Require(t)
	s := newSite(t, lab.UML)
	servers := s.serveAll(t, 8080)
	s.run(t, pageConfig())
	b := openBrowser(t, s.client1)
	s.pageFigures(t)
	t.Run("light and dark", func(t *testing.T) { looksWell(t, b) })
	t.Run("narrow", func(t *testing.T) { fitsAPhone(t, b) })
	t.Run("without JavaScript", func(t *testing.T) { worksWithoutScript(t, b) })
	t.Run("live", func(t *testing.T) { s.isLive(t, b, servers[0]) })
	if bad := b.misdeeds(pageAt + "/"); len(bad) > 0 {
		t.Errorf("the browser complains, or asked somebody else:\n%s", strings.Join(bad, "\n"))
	}
	t.Run("the end", func(t *testing.T) { s.endIsSeen(t, b) })
}

// pageFigures prints what the page costs: bytes, time, and the daemon's time with ten who
// look.
func (s *site) pageFigures(t *testing.T) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: s.client1.DialContext}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	get := func(path string) (int, time.Duration) {
		begin := time.Now()
		resp, err := client.Get(pageAt + path)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		return len(body), time.Since(begin)
	}
	_, first := get("/")
	n, again := get("/")
	figure(t, fmt.Sprintf("status page of %d services, first look, which reads the kernel (UML)", pageServices), first)
	figure(t, "  overview, read meanwhile", fmt.Sprintf("%d bytes, %s", n, again.Round(100*time.Microsecond)))
	n, again = get("/services")
	figure(t, "  first 50 services", fmt.Sprintf("%d bytes, %s", n, again.Round(100*time.Microsecond)))
	if n > 100<<10 {
		t.Errorf("the page of services has %d bytes", n)
	}
	for range 10 {
		resp, err := client.Get(pageAt + "/live?path=/services")
		must(t, err)
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "retry: 2000\n" {
			t.Fatalf("%q %v", line, err)
		}
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }() // ends with the body
	}
	begin, before := time.Now(), s.cpu(t)
	time.Sleep(time.Duration(sized(1, 6)) * time.Second) // a span to measure, not to wait for anything
	took := time.Since(begin)
	figure(t, "  daemon's CPU while ten follow it", fmt.Sprintf("%.0f%%", 100*(s.cpu(t)-before).Seconds()/took.Seconds()))
}

// cpu is the processor time that the daemon has had.
func (s *site) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat := s.box.Must(t, "cat", fmt.Sprintf("/proc/%d/stat", s.daemon.Pid()))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		t.Fatalf("stat: %s", stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// unreadable lists the texts with a contrast under 4.5, as WCAG 2.1 counts it.
const unreadable = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return {r: m[0], g: m[1], b: m[2], a: m[3] ?? 1}; };
	const lum = (c) => [c.r, c.g, c.b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; } return {r: 255, g: 255, b: 255}; };
	const bad = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
		const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(behind(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.add(e.nodeName + "." + e.className + " " + ratio.toFixed(2) + ": " + e.textContent.trim().slice(0, 30));
	}
	return [...bad];
})()`

// ground is how bright the page is, 0 to 255.
const ground = `Math.max(...getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))`

func looksWell(t *testing.T, b *browser) {
	for _, scheme := range []string{"light", "dark"} {
		b.window(t, 1280, 1000, scheme)
		for _, page := range []string{"/", "/services", "/services?q=web", "/events", "/notes"} {
			b.open(t, pageAt+page)
			if bad := value[[]string](t, b, unreadable); len(bad) > 0 {
				t.Errorf("%s, %s: hard to read:\n%s", page, scheme, strings.Join(bad, "\n"))
			}
			if bright := value[int](t, b, ground); (bright > 128) != (scheme == "light") {
				t.Errorf("%s is not %s: %d of 255", page, scheme, bright)
			}
			b.picture(t, scheme+strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(page))
		}
		if scheme == "light" {
			b.open(t, pageAt+"/")
			b.picture(t, "light-")
			eventually(t, 30*time.Second, func() error {
				var at float64
				err := b.eval(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`, &at)
				if err == nil && at == 0 {
					err = errors.New("the browser has painted nothing")
				}
				if err == nil {
					figure(t, "  first contentful paint of the overview", fmt.Sprintf("%.0f ms", at))
				}
				return err
			})
		}
	}
	b.open(t, pageAt+"/services")
	if n := value[int](t, b, `document.querySelectorAll("tr.frontend").length`); n != 50 {
		t.Errorf("%d services on the first page", n)
	}
	if all := value[string](t, b, `document.getElementById("services-title").textContent`); all != fmt.Sprintf("%d,001 frontends", pageServices/1000) {
		t.Errorf("there are %q", all)
	}
}

func fitsAPhone(t *testing.T, b *browser) {
	b.window(t, 360, 740, "light")
	for _, page := range []string{"/", "/services", "/services?q=web", "/events", "/notes"} {
		b.open(t, pageAt+page)
		if wide := value[int](t, b, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("%s is %d pixels wide on a phone: %s", page, wide, value[string](t, b,
				`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.nodeName + "." + e.className).slice(0, 5).join(" ")`))
		}
		if hidden := value[int](t, b, `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1).length`); hidden > 0 {
			t.Errorf("%s: %d tables have to be scrolled sideways on a phone", page, hidden)
		}
		b.picture(t, "narrow"+strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(page))
	}
}

func worksWithoutScript(t *testing.T, b *browser) {
	b.window(t, 1280, 1000, "light")
	b.must(t, "Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	defer b.must(t, "Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	b.open(t, pageAt+"/services?page=3&sort=address")
	if freshness := value[string](t, b, `document.getElementById("freshness").dataset.live`); freshness != "no" {
		t.Errorf("scripts run: %s", freshness)
	}
	const row = `[...document.querySelectorAll("tr.frontend")].at(-1).innerText.replace(/\s+/g, " ")`
	if got := value[string](t, b, row); !strings.Contains(got, "static/svc-00150 100.64.0.150:80/tcp rr 10/10 0") {
		t.Errorf("the last row of the third page is %q", got)
	}
	// A link and a form are all that there is to filter by.
	next := value[string](t, b, `document.querySelector("a[rel=next]").href`)
	b.open(t, next)
	if got := value[string](t, b, row); !strings.Contains(got, "static/svc-00200 ") {
		t.Errorf("the last row of the fourth page is %q", got)
	}
	form := value[string](t, b, `document.forms[0].method + " " + document.forms[0].action + " " + document.forms[0].elements[0].name`)
	if form != "get "+pageAt+"/services q" {
		t.Errorf("the form is %q", form)
	}
	b.open(t, pageAt+"/services?q=svc-00424")
	if got := value[string](t, b, `document.querySelector(".servers").innerText`); strings.Count(got, "10.") < 10 || !strings.Contains(got, "10.129.168.10:8080") {
		t.Errorf("what is found is not complete:\n%s", got)
	}
}

// isLive has a server fail while the page is open: the row changes, and nothing else does.
func (s *site) isLive(t *testing.T, b *browser, server *webServer) {
	b.window(t, 1280, 500, "dark")
	b.open(t, pageAt+"/services?q=web&sort=address")
	row := func(want string) func() error {
		return func() error {
			var got string
			err := b.eval(`document.getElementById("freshness").dataset.live + " " + document.querySelector("tr.frontend").innerText.replace(/\s+/g, " ")`, &got)
			if err == nil && !strings.HasPrefix(got, want) {
				err = fmt.Errorf("the row says %q, want %q", got, want)
			}
			return err
		}
	}
	const here = "static/web " + vip4 + ":80/tcp rr "
	eventually(t, 30*time.Second, row("yes ok "+here+"3/3"))
	if err := b.eval(`
		window.stays = document.querySelector("tr.frontend");
		const q = document.getElementById("q"); q.focus(); q.setSelectionRange(1, 2); scrollTo(0, 60)`, nil); err != nil {
		t.Fatal(err)
	}
	server.health.Store(http.StatusServiceUnavailable)
	took := eventually(t, 40*time.Second, row("yes partly "+here+"2/3"))
	figure(t, "  a backend fails, until the row in the browser says so (check: 800 ms)", took)
	b.picture(t, "live-partly")
	const same = `[window.stays === document.querySelector("tr.frontend"), document.activeElement.id, scrollY, document.activeElement.selectionStart].join(" ")`
	if got := value[string](t, b, same); got != "true q 60 1" {
		t.Errorf("same row, focus, scroll and selection are %s", got)
	}
	for range 20 {
		_, _ = get(t.Context(), s.client1, vip4+":80")
	}
	eventually(t, 40*time.Second, func() error {
		rate := value[string](t, b, `document.querySelector("tr.frontend").cells[6].innerText`)
		if v, err := strconv.ParseFloat(rate, 64); err != nil || v <= 0 {
			_, _ = get(t.Context(), s.client1, vip4+":80")
			return fmt.Errorf("connections a second: %q", rate)
		}
		return nil
	})
	server.health.Store(http.StatusOK)
	eventually(t, 40*time.Second, row("yes ok "+here+"3/3"))
	// To look for something else is no new page, either.
	must(t, b.eval(`const f = document.getElementById("q"); f.value = "svc-00007"; f.dispatchEvent(new Event("input", {bubbles: true}))`, nil))
	eventually(t, 30*time.Second, row("yes ok static/svc-00007 "))
	if got := value[string](t, b, `location.search + " " + typeof window.stays`); got != "?sort=address&q=svc-00007 object" {
		t.Errorf("it is at %q", got)
	}
}

// endIsSeen stops the daemon: the page shows the time of its last update.
func (s *site) endIsSeen(t *testing.T, b *browser) {
	must(t, b.eval(`scrollTo(0, document.body.scrollHeight)`, nil))
	begin := time.Now()
	s.stop(t, syscall.SIGTERM)
	figure(t, "  daemon ends although it is looked at", time.Since(begin))
	eventually(t, 30*time.Second, func() error {
		got := value[string](t, b, `document.getElementById("broken").hidden + " " + document.getElementById("broken").innerText`)
		if !strings.HasPrefix(got, "false No connection since ") {
			return fmt.Errorf("the page says %q", got)
		}
		return nil
	})
	b.picture(t, "no-connection")
	s.start(t)
	eventually(t, 60*time.Second, func() error {
		if got := value[string](t, b, `document.getElementById("freshness").dataset.live + " " + document.getElementById("broken").hidden`); got != "yes true" {
			return fmt.Errorf("the daemon is back, the page says %q", got)
		}
		return nil
	})
}
