package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query is what a page is asked for. Every value is a valid one, and the zero query but
// for its Sort is the page as it is first seen.
type query struct {
	Text  string // that the rows are to have
	State string // the condition, or the level of events; "" is all
	Sort  string // a key of orders, after a "-" if it is to descend
	At    string // the one frontend
	Page  int    // from 1
}

// maxText bounds a text that is looked for: names are no longer.
const maxText = 260

// firstOrder shows what needs a look first.
const firstOrder = "state"

// parseQuery takes what there is of sense in the parameters of an address; who writes
// nonsense gets the page as it is first seen.
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

// span gives which of n rows are on the page, the last page if there are not so many.
func (q *query) span(n, perPage int) (from, to int) {
	q.Page = max(1, min(q.Page, pages(n, perPage)))
	from = (q.Page - 1) * perPage
	return from, min(n, from+perPage)
}

func pages(n, perPage int) int { return (n + perPage - 1) / perPage }

// encode gives the parameters that lead to q, without what is as it is first seen.
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

// with gives a query that differs: of another order or condition the first page.
func (q query) withSort(order string) query  { q.Sort, q.Page = order, 1; return q }
func (q query) withState(state string) query { q.State, q.Page = state, 1; return q }
func (q query) WithPage(n int) query         { q.Page = n; return q }
