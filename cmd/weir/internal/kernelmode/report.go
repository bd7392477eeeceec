package kernelmode

import (
	"context"
	"log/slog"
	"time"

	"weir/lb"
)

// maxErrorLines bounds the log of one pass; the rest is in the count.
const maxErrorLines = 5

// LogReport logs what a pass did, why and how long it took.
func LogReport(log *slog.Logger, rep lb.Report, because string, took time.Duration) {
	if len(rep.Ops) > 0 {
		line := []any{"ops", len(rep.Ops), "first", rep.Ops[0].String(), "reason", because, "took", took}
		if rep.Postponed > 0 {
			line = append(line, "postponed", rep.Postponed)
		}
		log.Info("applied", line...)
	}
	if log.Enabled(context.Background(), slog.LevelDebug) { // thousands of lines need not even be made
		for _, op := range rep.Ops {
			log.Debug("op", "op", op.String())
		}
	}
	for i, err := range rep.Errors {
		if i == maxErrorLines {
			log.Error("further ops failed", "errors", len(rep.Errors)-i)
			return
		}
		log.Error("op failed; retrying", "error", err)
	}
}

// LogReady logs the end of the first pass. Its errors are in the log already.
func LogReady(log *slog.Logger, rep lb.Report, services int, took time.Duration) {
	level := slog.LevelInfo
	if rep.Failed > 0 {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "ready", "services", services, "ops", len(rep.Ops), "failed", rep.Failed, "took", took)
}
