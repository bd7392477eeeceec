package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// joinEvery is how often those that are to be joined are asked until they have
	// answered, and joinedEvery from then on.
	joinEvery   = 5 * time.Second
	joinedEvery = time.Minute
	// While a box begins it asks more often: boxes that begin together are not there
	// yet when the first one asks.
	beginEvery = 500 * time.Millisecond
	beginFor   = 20 * time.Second
)

// joinForever asks those of Config.Join again and again. Those that have answered are
// asked less often. Nobody waits for one that does not answer.
func (f *Fleet) joinForever(ctx context.Context, list *memberlist.Memberlist) {
	begun := time.Now()
	var (
		asks sync.WaitGroup
		mu   sync.Mutex
		next = map[string]time.Time{} // zero: it is being asked
	)
	defer asks.Wait()
	for ctx.Err() == nil {
		for _, name := range f.toJoin() {
			mu.Lock()
			at, known := next[name]
			due := !known || !at.IsZero() && !time.Now().Before(at)
			if due {
				next[name] = time.Time{}
			}
			mu.Unlock()
			if !due {
				continue
			}
			asks.Go(func() {
				_, err := list.Join([]string{name})
				if ctx.Err() != nil {
					return
				}
				f.joined(name, err)
				again := joinedEvery
				if err != nil && time.Since(begun) < beginFor {
					again = beginEvery
				} else if err != nil || f.hasTwin() { // which only others tell of
					again = joinEvery
				}
				mu.Lock()
				next[name] = time.Now().Add(again)
				mu.Unlock()
			})
		}
		sleep(ctx, beginEvery)
	}
}

// toJoin gives whom to ask, the names and addresses of Config.Join, and forgets what was
// said of those that are no more among them.
func (f *Fleet) toJoin() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.alone {
		if !slices.Contains(f.cfg.Join, name) {
			delete(f.alone, name)
		}
	}
	return slices.Clone(f.cfg.Join)
}

// joined takes down how asking somebody has ended.
func (f *Fleet) joined(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, was := f.alone[name]
	_, met := f.met[name]
	switch {
	case !slices.Contains(f.cfg.Join, name):
		return
	case err == nil:
		delete(f.alone, name)
		f.met[name] = struct{}{}
	default:
		f.alone[name] = plain(err)
	}
	if was != (err != nil) || !met && err == nil {
		signal(f.changed)
	}
	if err != nil && f.alone[name] != before {
		f.log.Warn("a member can't be joined; trying again", "member", name, "error", f.alone[name])
	}
}

// plain is an error of a join in one line. Memberlist lists errors, one for each address
// of a name; of a single one the list says nothing that is not known.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	one, single := strings.CutPrefix(text, "1 error occurred: * ")
	if !single {
		return text
	}
	if rest, ok := strings.CutPrefix(strings.ToLower(one[:1])+one[1:], "failed to join "); ok {
		if _, why, ok := strings.Cut(rest, ": "); ok {
			return why
		}
	}
	return one
}
