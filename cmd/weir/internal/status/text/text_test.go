package text

import (
	"testing"
)

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{
		0: "0", 0.04: "0.0", 0.5: "0.5", 99.94: "99.9", 99.96: "100", 1234: "1234", 9999.4: "9999", 9999.6: "10.0k", 99_960: "100k",
		999_600: "1.0M", 7_891_000: "7.9M", 123e9: "123G", 5e12: "5.0T", 2.5e15: "2500.0T",
	} {
		if got := Short(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}
