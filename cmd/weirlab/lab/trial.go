package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// trialTime is how long a kernel gets to show that it boots. One that works takes a second.
	trialTime = 15 * time.Second
	// doubtTime is how long a trial counts that ended for lack of time: the machine may have been busy.
	doubtTime = 10 * time.Minute
)

// trial returns the outcome of a trial boot of a kernel: of boot, or as it was when this machine tried
// the same file last. What works depends on the processor and on the kernel below, which can't change
// without a boot of this machine.
func trial(name, kernel string, boot func(ctx context.Context) error) error {
	content, err := os.ReadFile(kernel)
	if err != nil {
		return err
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	folder, err := cacheFolder("trials")
	if err != nil {
		return err
	}
	unlock, err := lock(context.Background(), filepath.Join(folder, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	thisBoot := string(bytes.TrimSpace(id))
	verdict := filepath.Join(folder, fmt.Sprintf("%s-%s-%s", thisBoot, name, sumOfBytes(content)))
	if known, err := os.ReadFile(verdict); err == nil && len(known) == 0 {
		return nil
	} else if err == nil && !doubtful(verdict, string(known)) {
		return errors.New(string(known))
	}
	forgetBoots(folder, thisBoot)
	ctx, cancel := context.WithTimeout(context.Background(), trialTime)
	defer cancel()
	outcome := boot(ctx)
	text := ""
	if outcome != nil {
		text = outcome.Error()
	}
	return errors.Join(outcome, os.WriteFile(verdict, []byte(text), 0o644))
}

// doubtful reports whether a result is old and reports only that time ran out.
func doubtful(verdict, text string) bool {
	info, err := os.Stat(verdict)
	return err == nil && strings.Contains(text, context.DeadlineExceeded.Error()) && time.Since(info.ModTime()) > doubtTime
}

// forgetBoots removes the results of earlier boots of this machine.
func forgetBoots(folder, thisBoot string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // nothing to forget
	}
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), thisBoot) {
			os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}

// sumOfBytes names content.
func sumOfBytes(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content))[:12] }
