package health

import (
	"testing"
	"time"
)

// valid is a good check, altered.
func valid(alter func(*Check)) Check {
	c := Check{Kind: HTTP, Path: "/", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	alter(&c)
	return c
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		check Check
		want  string
	}{
		{"valid", valid(func(*Check) {}), ""},
		{"all values in use", valid(func(c *Check) {
			c.Host, c.Status, c.Body, c.Jitter = "example.com:8080", []StatusRange{{200, 299}}, "ok", 1
		}), ""},
		{"zero", Check{}, `unknown check ""; use tcp, tls, http, https, grpc, udp, dns, smtp, ping, file, exec or bfd
interval 0s is not positive
timeout 0s is not positive
rise 0 and fall 0 must be 1 or more`},
		{"jitter", valid(func(c *Check) { c.Jitter = 1.5 }), "jitter 1.5 is not from 0 to 1"},
		{"header injection by path", valid(func(c *Check) { c.Path = "/ HTTP/1.1\r\nX: y" }),
			`path "/ HTTP/1.1\r\nX: y" does not begin with / or has characters to be escaped`},
		{"header injection by host", valid(func(c *Check) { c.Host = "a\r\nX: y" }),
			`host "a\r\nX: y" has blanks or unprintable characters`},
		{"path without slash", valid(func(c *Check) { c.Path = "health" }),
			`path "health" does not begin with / or has characters to be escaped`},
		{"status", valid(func(c *Check) { c.Status = []StatusRange{{299, 200}} }), "status 299-200 is no range within 100-999"},
		{"body that can't be found", valid(func(c *Check) { c.Body = string(make([]byte, maxBody+1)) }),
			"body is longer than the 65536 bytes that are read"},
		{"datagram", valid(func(c *Check) { c.Kind, c.Send = UDP, make([]byte, 65508) }), "send and expect are at most 65507 bytes"},
		{"DNS type", valid(func(c *Check) { c.Kind, c.DNSType = DNS, "ANY" }), `unknown DNS type "ANY"`},
		{"DNS name", valid(func(c *Check) { c.Kind, c.DNSType, c.DNSName = DNS, "A", "a..b" }), `DNS name "a..b": packing Question: Name: zero length segment`},
		{"SMTP injection", valid(func(c *Check) { c.Kind, c.Helo = SMTP, "a\r\nMAIL" }), `helo "a\r\nMAIL" has blanks or unprintable characters`},
		{"file", valid(func(c *Check) { c.Kind, c.File = File, "up" }), `file "up" is not an absolute path`},
		{"program", valid(func(c *Check) { c.Kind = Exec }), `program "" is not an absolute path`},
		{"gRPC service", valid(func(c *Check) { c.Kind, c.GRPCService = GRPC, "\xff" }), `gRPC service "\xff" is not UTF-8`},
		{"server name", valid(func(c *Check) { c.ServerName = "a b" }), `server name "a b" has blanks or unprintable characters`},
		{"CA without certificates", valid(func(c *Check) { c.Kind, c.Verify, c.CA = TLS, true, "nothing" }), "the CA has no certificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := Validate(tt.check); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAnotherCAIsAnotherCheck replaces the CA of a check.
func TestAnotherCAIsAnotherCheck(t *testing.T) {
	t.Parallel()
	id, foreign := newIdentity(t), newIdentity(t)
	addr := serve(t, "127.0.0.1", id.secure(silent))
	c := New(Options{})
	running(t, c)
	for _, tt := range []struct{ ca, want string }{{id.ca, "up"}, {foreign.ca, "down"}, {id.ca, "up"}} {
		g := group(web, Check{
			Kind: TLS, Interval: time.Millisecond, Timeout: patience, Rise: 1, Fall: 1,
			Verify: true, CA: tt.ca, ServerName: "example.com",
		}, 1)
		g.Ports[0].Backends[0].Addr = addr
		c.Set([]Group{g})
		for c.Backends()[0].Checks == 0 && t.Context().Err() == nil {
			<-time.After(time.Millisecond)
		}
		if got := c.Backends()[0]; got.State != tt.want {
			t.Errorf("backend %+v, want it %s", got, tt.want)
		}
	}
}
