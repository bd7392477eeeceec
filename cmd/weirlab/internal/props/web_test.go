package props

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A caller's limit is the only one: a client with more patience than others waits for a late answer.
func TestAskWaitsAsLongAsItsCaller(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit    time.Duration // 0 is none
		answered bool
	}{{2 * patience, true}, {patience, false}, {0, false}} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if tt.limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.limit)
				defer cancel()
			}
			_, err := Ask(ctx, func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer func() { _ = server.Close() }()
					if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
						return
					}
					time.Sleep(patience + time.Second)
					_, _ = fmt.Fprint(server, "HTTP/1.0 200 OK\r\n\r\nweb1 10.1.0.2") // unless the client has gone
				}()
				return client, nil
			}, "192.0.2.10:80")
			if (err == nil) != tt.answered {
				t.Errorf("limit %s: %v, want an answer: %v", tt.limit, err, tt.answered)
			}
			time.Sleep(2 * patience) // until the server ends
		})
	}
}
