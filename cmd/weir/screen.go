package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// screen is the size of a terminal, in characters.
type screen struct{ width, height int }

// terminal gives the size of the terminal that a file is, which changes when its window
// does; nil if the file is none.
func terminal(file *os.File) func() screen {
	size := func() (screen, bool) {
		s, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return screen{}, false
		}
		if s.Col == 0 || s.Row == 0 { // nobody has told it: a serial line
			return screen{80, 24}, true
		}
		return screen{int(s.Col), int(s.Row)}, true
	}
	if _, ok := size(); !ok {
		return nil
	}
	return func() screen { now, _ := size(); return now }
}
