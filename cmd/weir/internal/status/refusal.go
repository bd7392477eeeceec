package status

import "errors"

// refusal is an error of the request, not of the box.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Refusal marks an error that the sender of a request can correct; nil stays nil.
func Refusal(err error) error {
	if err == nil {
		return nil
	}
	return refusal{err}
}

// IsRefusal reports whether the sender of a request can correct an error.
func IsRefusal(err error) bool { return errors.As(err, &refusal{}) }
