package config

import "time"

// Hook is a table [[hook]]: a program or a web server that gets events.
type Hook struct {
	Name string
	// On are the kinds of events.
	On []string
	// Exec is the program with its arguments, or URL the address for a POST.
	Exec    []string
	URL     string
	Timeout time.Duration
}

// The kinds of events.
const (
	OnVIP     = "vip"
	OnBackend = "backend"
	OnRole    = "role"
	OnHealth  = "health"
)
