package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"weir/cmd/weir/internal/eventlog"
	"weir/cmd/weir/internal/status"
)

// Answer returns a handler that answers with the document or the error of a function.
func Answer[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		doc, err := f(r)
		Reply(w, doc, err)
	}
}

// Document returns a handler that answers with the document or the error of a function.
func Document[T any](f func(context.Context) (T, error)) http.HandlerFunc {
	return Answer(func(r *http.Request) (T, error) { return f(r.Context()) })
}

// Value returns a handler that answers with a document.
func Value[T any](f func(context.Context) T) http.HandlerFunc {
	return Answer(func(r *http.Request) (T, error) { return f(r.Context()), nil })
}

// Reply answers with a document in JSON, or with the text of an error.
func Reply(w http.ResponseWriter, doc any, err error) {
	if err != nil {
		http.Error(w, err.Error(), codeOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc) // the client may be gone
}

// codeOf returns the HTTP status of an error: 400 for one that the sender of the request can correct.
func codeOf(err error) int {
	switch {
	case status.IsRefusal(err):
		return http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Events answers with the records of a log after the number "after"; with "wait", in seconds, it waits for the next one.
func Events(log *eventlog.Log) http.HandlerFunc {
	return Answer(func(r *http.Request) (status.Events, error) {
		after, err := strconv.ParseUint(cmp.Or(r.FormValue("after"), "0"), 10, 64)
		if err != nil {
			return status.Events{}, status.Refusal(errors.New("after must be the number of an event"))
		}
		seconds, err := strconv.ParseFloat(cmp.Or(r.FormValue("wait"), "0"), 64)
		if err != nil {
			return status.Events{}, status.Refusal(errors.New("wait must be a number of seconds"))
		}
		return log.Wait(r.Context(), after, time.Duration(min(seconds, 3600)*float64(time.Second))), nil
	})
}
