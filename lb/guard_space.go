package lb

// A guard decides on a source as a whole, and on each of its namespaces: deletions of one
// namespace must not withhold those of the others.

// tally counts the served objects of a namespace or of a source, and the withheld deletions.
type tally struct {
	frontends, backends int // that are served
	lost, short         int // frontends and backends that would be deleted
	waiting             int // Services with something withheld
}

// add adds to the counts of a namespace and of the source.
func (g *guard) add(space string, t tally) {
	g.all = g.all.plus(t)
	now := g.of[space].plus(t)
	if g.of[space] = now; now == (tally{}) {
		delete(g.of, space)
	}
	if now.waiting > 0 {
		g.waiting[space] = struct{}{}
	} else {
		delete(g.waiting, space)
	}
}

func (t tally) plus(u tally) tally {
	return tally{t.frontends + u.frontends, t.backends + u.backends, t.lost + u.lost, t.short + u.short, t.waiting + u.waiting}
}

// drop forgets the withheld state of a Service, and returns the affected frontends.
func (g *guard) drop(id ServiceID) []Frontend {
	old, ok := g.withheld[id]
	if !ok {
		return nil
	}
	g.add(id.Namespace, tally{waiting: -1, short: -old.short})
	for _, f := range old.losing {
		if g.losing[f]--; g.losing[f] == 0 {
			delete(g.losing, f)
		}
	}
	delete(g.withheld, id)
	return old.losing
}

// recount recounts the frontends, after the claims of a box with other addresses have changed.
func (gs *guards) recount() {
	for source, g := range gs.of {
		for f := range g.served {
			g.recount(f, gs.catalog.claims[f], source)
		}
		for f, claims := range gs.catalog.claims {
			g.recount(f, claims, source)
		}
	}
}

// recountOnce recounts some frontends of a source, each once: thousands of Services may claim the same.
func (gs *guards) recountOnce(touched []Frontend, g *guard, source string) {
	done := make(map[Frontend]struct{}, len(touched))
	for _, f := range touched {
		if _, ok := done[f]; !ok {
			done[f] = struct{}{}
			g.recount(f, gs.catalog.claims[f], source)
		}
	}
}

// recount counts whether Services of the source claim f, once however many they are, and
// whether none would claim it any more.
func (g *guard) recount(f Frontend, claims []ServiceID, source string) {
	n, space := 0, ""
	for _, id := range claims {
		if id.Source != source {
			continue
		}
		if n++; n == 1 {
			space = id.Namespace
		}
	}
	if was, served := g.served[f]; served && (n == 0 || was != space) {
		g.add(was, tally{frontends: -1})
		delete(g.served, f)
	}
	if _, served := g.served[f]; n > 0 && !served {
		g.add(space, tally{frontends: 1})
		g.served[f] = space
	}
	if was, lost := g.lost[f]; lost {
		g.add(was, tally{lost: -1})
		delete(g.lost, f)
	}
	if n > 0 && g.losing[f] >= n {
		g.add(space, tally{lost: 1})
		g.lost[f] = space
	}
}

// spaces are some namespaces of a source; empty are all.
type spaces map[string]struct{}

func (s spaces) has(space string) bool {
	_, ok := s[space]
	return ok || len(s) == 0
}

// removal is the deletions within Window, with the withheld ones, and the total that they are a
// part of.
type removal struct {
	frontends, ofFrontends int
	backends, ofBackends   int
}

func (g *guard) removal(t tally, frontends, backends int) removal {
	return removal{t.lost + frontends, t.frontends + frontends, t.short + backends, t.backends + backends}
}

func (g *guard) removalOf(space string) removal {
	return g.removal(g.of[space], g.goneFrontends.by[space], g.goneBackends.by[space])
}

func (r removal) minus(s removal) removal {
	return removal{r.frontends - s.frontends, r.ofFrontends - s.ofFrontends, r.backends - s.backends, r.ofBackends - s.ofBackends}
}

// size orders removals by their part of the source.
func (r removal) size(of removal) float64 {
	return float64(r.frontends)/float64(max(1, of.ofFrontends)) + float64(r.backends)/float64(max(1, of.ofBackends))
}

// tooMuch reports whether a removal is above the limit.
func (o GuardOptions) tooMuch(r removal) bool {
	return o.exceeded(r.frontends, r.ofFrontends) || o.exceeded(r.backends, r.ofBackends)
}

// allowed returns the namespaces with permitted deletions; nil is none, and empty are all.
//
// If the source would lose too much, the namespace with the largest part is withheld, and each
// one that would lose too much of its own. All are withheld if the others together would also
// lose too large a part: one tenant could not have caused that.
func (g *guard) allowed() spaces {
	total := g.removal(g.all, g.goneFrontends.total, g.goneBackends.total)
	if !g.opts.tooMuch(total) {
		return spaces{}
	}
	worst, others := g.worst(total), g.opts
	others.Least = 1
	if others.tooMuch(total.minus(g.removalOf(worst))) {
		return nil
	}
	var out spaces
	for space := range g.waiting {
		if space == worst || g.opts.tooMuch(g.removalOf(space)) {
			continue
		}
		if out == nil {
			out = spaces{}
		}
		out[space] = struct{}{}
	}
	return out
}

// worst returns the namespace with the largest part of a removal.
func (g *guard) worst(of removal) (worst string) {
	most := -1.0
	see := func(space string) {
		if n := g.removalOf(space).size(of); n > most || n == most && space < worst {
			most, worst = n, space
		}
	}
	for space := range g.waiting {
		see(space)
	}
	for space := range g.goneFrontends.by {
		see(space)
	}
	for space := range g.goneBackends.by {
		see(space)
	}
	return worst
}
