package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query are the parameters of a page. All values are valid.
type query struct {
	Text  string // that the rows must contain
	State string // the condition, or the level of events; "" is all
	Sort  string // a key of orders, after a "-" for descending
	At    string // the one frontend
	Page  int    // from 1
}

// maxText bounds the text of a search, and is longer than any name.
const maxText = 260

// firstOrder is the default order: the worst state first.
const firstOrder = "state"

// parseQuery returns the query of parameters; invalid ones have their defaults.
func parseQuery(values url.Values) query {
	q := query{Text: strings.TrimSpace(plain(values.Get("q"))), Sort: firstOrder, Page: 1}
	if len(q.Text) > maxText {
		q.Text = strings.TrimSpace(strings.ToValidUTF8(q.Text[:maxText], ""))
	}
	if s := values.Get("sort"); orders[strings.TrimPrefix(s, "-")] != nil {
		q.Sort = s
	}
	if s := values.Get("state"); slices.Contains(conditions, condition(s)) || slices.Contains(levels, s) {
		q.State = s
	}
	if at := values.Get("at"); len(at) <= maxText {
		q.At = plain(at)
	}
	if n, err := strconv.Atoi(values.Get("page")); err == nil && n > 0 {
		q.Page = n
	}
	return q
}

// levels are those of events.
var levels = []string{"info", "warn", "error"}

// span returns the range of n rows on the page; the last page if there are fewer.
func (q *query) span(n, perPage int) (from, to int) {
	q.Page = max(1, min(q.Page, pages(n, perPage)))
	from = (q.Page - 1) * perPage
	return from, min(n, from+perPage)
}

func pages(n, perPage int) int { return (n + perPage - 1) / perPage }

// encode returns the parameters of q without defaults.
func (q query) encode() string {
	v := url.Values{}
	set := func(key, value, first string) {
		if value != first {
			v.Set(key, value)
		}
	}
	set("q", q.Text, "")
	set("state", q.State, "")
	set("sort", q.Sort, firstOrder)
	set("at", q.At, "")
	set("page", strconv.Itoa(q.Page), "1")
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// withSort and withState return the query for the first page of another order or
// condition.
func (q query) withSort(order string) query  { q.Sort, q.Page = order, 1; return q }
func (q query) withState(state string) query { q.State, q.Page = state, 1; return q }

// Turn returns the query for a page that is n pages on.
func (q query) Turn(n int) query { q.Page += n; return q }

// selection are the frontends of a query.
type selection struct {
	Shown []*server
	// Matching and By count the frontends of all pages, in total and by condition.
	Matching int
	By       map[condition]int
}

// choose returns the frontends of a page, and sets q.Page to an existing page.
func choose(all []server, q *query, perPage int) selection {
	out := selection{By: map[condition]int{}}
	var found []*server
	text := strings.ToLower(q.Text)
	for i := range all {
		s := &all[i]
		if q.At != "" && s.At != q.At || q.At == "" && !s.matches(text) {
			continue
		}
		out.By[s.Is]++
		if q.State == "" || string(s.Is) == q.State {
			found = append(found, s)
		}
	}
	order, descends := strings.CutPrefix(q.Sort, "-")
	slices.SortFunc(found, func(a, b *server) int {
		c := orders[order](a, b)
		if descends {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.Service, b.Service), a.Key.Compare(b.Key))
	})
	out.Matching = len(found)
	from, to := q.span(len(found), perPage)
	out.Shown = found[from:to]
	return out
}
