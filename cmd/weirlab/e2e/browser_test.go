package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/weirlab/lab"
)

// browser is a Chromium on a host of the lab, spoken to by the DevTools protocol over a
// pipe: no other process reaches it, and it reaches only hosts of the lab.
type browser struct {
	to      *os.File
	session string // of the one page

	mu      sync.Mutex
	last    int
	answers map[int]chan answered
	met     []string // errors of the page, and requests to other hosts
	ended   bool
}

// answered is a message of Chromium's: the answer to a command, or an event.
type answered struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// openBrowser starts a browser on a host, with a page that is empty.
func openBrowser(t *testing.T, m *lab.Machine) *browser {
	t.Helper()
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(lab.Browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{to: to, answers: map[int]chan answered{}}
	done := make(chan struct{})
	go func() { defer close(done); b.listen(from) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with all its processes
		_ = cmd.Wait()
		to.Close()
		<-done
		from.Close()
	})
	var target struct{ TargetID string }
	b.must(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.must(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.must(t, domain+".enable", nil, nil)
	}
	return b
}

// listen reads the messages of Chromium, each ended by a zero, until it ends.
func (b *browser) listen(from *os.File) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			break
		}
		var a answered
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &a) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.answers[a.ID]; answer != nil {
			delete(b.answers, a.ID)
			answer <- a
		} else {
			b.note(a)
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, answer := range b.answers {
		close(answer)
	}
}

// note keeps what a page should not do.
func (b *browser) note(a answered) {
	var p struct {
		Type, URL string
		Entry     struct{ Level, Text, URL string }
		Request   struct{ URL string }
	}
	_ = json.Unmarshal(a.Params, &p)
	switch a.Method {
	case "Runtime.exceptionThrown":
		b.met = append(b.met, "exception: "+string(a.Params))
	case "Runtime.consoleAPICalled":
		b.met = append(b.met, "console: "+string(a.Params))
	case "Log.entryAdded":
		if p.Entry.Level != "info" && p.Entry.Level != "verbose" {
			b.met = append(b.met, "log: "+p.Entry.Text+" "+p.Entry.URL)
		}
	case "Network.requestWillBeSent":
		b.met = append(b.met, "request: "+p.Request.URL)
	}
}

// misdeeds gives what went wrong so far, and the requests that were not to at.
func (b *browser) misdeeds(at string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.met {
		if !strings.HasPrefix(m, "request: "+at) && m != "request: about:blank" {
			out = append(out, m)
		}
	}
	return slices.Compact(out)
}

// do sends a command and decodes its result.
func (b *browser) do(ctx context.Context, method string, params, result any) error {
	answer := make(chan answered, 1)
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return errors.New("the browser has ended")
	}
	b.last++
	text, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
		Session string `json:"sessionId,omitempty"`
	}{b.last, method, params, b.session})
	if err == nil {
		b.answers[b.last] = answer
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

func (b *browser) must(t testing.TB, method string, params, result any) {
	t.Helper()
	if err := b.do(within(t, time.Minute), method, params, result); err != nil {
		t.Fatal(err)
	}
}

// open goes to an address and waits until the page and what belongs to it are loaded.
func (b *browser) open(t testing.TB, url string) {
	t.Helper()
	b.must(t, "Page.navigate", map[string]any{"url": url}, nil)
	eventually(t, time.Minute, func() error {
		var state string
		if err := b.eval(`document.readyState + " " + location.href`, &state); err != nil {
			return err
		}
		if state != "complete "+url {
			return fmt.Errorf("%s: %s", url, state)
		}
		return nil
	})
}

// eval gives the value of an expression in the page.
func (b *browser) eval(expression string, value any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := b.do(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out); err != nil {
		return err
	}
	if out.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", expression, out.ExceptionDetails.Exception.Description)
	}
	if value == nil || out.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, value)
}

// value is eval for a test.
func value[T any](t testing.TB, b *browser, expression string) T {
	t.Helper()
	var v T
	if err := b.eval(expression, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// window gives the page a size in pixels, and the colours that a user prefers.
func (b *browser) window(t testing.TB, width, height int, scheme string) {
	t.Helper()
	b.must(t, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.must(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture saves what the window shows.
func (b *browser) picture(t testing.TB, name string) {
	t.Helper()
	var shot struct{ Data string }
	b.must(t, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(artifactsFolder(), "page")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
