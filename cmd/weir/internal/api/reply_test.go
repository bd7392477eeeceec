package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"weir/cmd/weir/internal/status"
)

// Errors of a request answer 4xx, a busy loop 503, and errors of the box 500.
func TestStatusCodesOfErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"a refusal":        {status.Refusal(errors.New("x")), http.StatusBadRequest},
		"an inner refusal": {fmt.Errorf("x: %w", status.Refusal(errors.New("x"))), http.StatusBadRequest},
		"busy":             {fmt.Errorf("weir is busy: %w", context.DeadlineExceeded), http.StatusServiceUnavailable},
		"kernel":           {errors.New("no such device"), http.StatusInternalServerError},
	} {
		if got := codeOf(tt.err); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if status.Refusal(nil) != nil {
		t.Error("no error is refused")
	}
}
