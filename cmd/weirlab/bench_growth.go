package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// point is one figure of weir's for so many services.
type point struct {
	what, unit string
	services   int
	value      float64
}

// series are the points of one figure, by services.
type series struct {
	what, unit string
	points     []point
}

// point records a figure for the plot of growth. What is too small to measure is left out.
func (t *table) point(what, unit string, services int, value float64) {
	if value > 0 {
		t.points = append(t.points, point{what, unit, services, value})
	}
}

// seriesOf gives the points by figure, in the order of their first, and those with two sizes at least.
func seriesOf(points []point) (out []series) {
	for _, p := range points {
		i := slices.IndexFunc(out, func(s series) bool { return s.what == p.what })
		if i < 0 {
			i = len(out)
			out = append(out, series{what: p.what, unit: p.unit})
		}
		out[i].points = append(out[i].points, p)
	}
	for _, s := range out {
		slices.SortFunc(s.points, func(a, b point) int { return a.services - b.services })
	}
	return slices.DeleteFunc(out, func(s series) bool { return s.points[0].services == s.points[len(s.points)-1].services })
}

// exponent is e of the line c*n^e that fits the points best: least squares of the logarithms.
func (s series) exponent() (e, c float64) {
	var x, y, xx, xy float64
	n := float64(len(s.points))
	for _, p := range s.points {
		lx, ly := math.Log(float64(p.services)), math.Log(p.value)
		x, y, xx, xy = x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	e = (n*xy - x*y) / (n*xx - x*x)
	return e, math.Exp((y - e*x) / n)
}

// lastSlope is the exponent between the largest number of services and the one before, which are from and to. The start of
// a process counts least there. Of several points with one number it takes the geometric mean.
func (s series) lastSlope() (e float64, from, to int) {
	mean := func(services int) float64 {
		var sum, n float64
		for _, p := range s.points {
			if p.services == services {
				sum, n = sum+math.Log(p.value), n+1
			}
		}
		return sum / n
	}
	to = s.points[len(s.points)-1].services
	for _, p := range s.points {
		if p.services < to {
			from = p.services
		}
	}
	return (mean(to) - mean(from)) / math.Log(float64(to)/float64(from)), from, to
}

// growth adds a line for each figure of the plot.
func (t *table) growth() {
	all := seriesOf(t.points)
	if len(all) == 0 {
		return
	}
	t.line("growth with the number of services n; exponents of two sizes are rough")
	for _, s := range all {
		e, _ := s.exponent()
		last, from, to := s.lastSlope()
		t.add(figure{
			what: s.what, ours: fmt.Sprintf("n^%.2f", e),
			peer: fmt.Sprintf("from %s to %s", count(from), count(to)), their: fmt.Sprintf("n^%.2f", last),
		})
	}
}

// The plot: a panel for each figure, three in a row.
const (
	panelWidth, panelHeight = 310, 220
	marginLeft, marginTop   = 56, 44
	plotWidth, plotHeight   = 236, 136
	inRow                   = 3
)

// growthPlot draws how figures grow with the number of services, both on logarithmic axes.
func growthPlot(points []point) string {
	all := seriesOf(points)
	var b strings.Builder
	rows := (len(all) + inRow - 1) / inRow
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="12">
<title id="title">How weir's figures grow with the number of services</title>
<style>
:root { color-scheme: light dark; }
text { fill: #1f2328; } .dim { fill: #59636e; } .name { font-weight: 600; font-size: 13px; }
.grid { stroke: #d1d9e0; } .fit { stroke: #8250df; stroke-width: 1.5; stroke-dasharray: 5 4; } .dot { fill: #0969da; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .dim { fill: #9198a1; } .grid { stroke: #3d444d; } .fit { stroke: #ab7df8; } .dot { fill: #4493f8; }
}
</style>
`, panelWidth*inRow, panelHeight*rows)
	for i, s := range all {
		s.draw(&b, i%inRow*panelWidth, i/inRow*panelHeight)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws one panel, with its upper left corner at x, y.
func (s series) draw(b *strings.Builder, x, y int) {
	first, last := s.points[0], s.points[len(s.points)-1]
	low, high := s.points[0].value, s.points[0].value
	for _, p := range s.points {
		low, high = min(low, p.value), max(high, p.value)
	}
	h := axis{math.Floor(math.Log10(float64(first.services))), math.Ceil(math.Log10(float64(last.services)))}
	v := axis{math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))}
	left, top := float64(x+marginLeft), float64(y+marginTop)
	at := func(services, value float64) (float64, float64) {
		return left + plotWidth*h.part(services), top + plotHeight*(1-v.part(value))
	}
	e, c := s.exponent()
	slope, _, _ := s.lastSlope()
	fmt.Fprintf(b, "<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n<text class=\"dim\" x=\"%d\" y=\"%d\">grows as n^%.2f; last interval: n^%.2f</text>\n",
		x+marginLeft, y+18, html.EscapeString(s.what), x+marginLeft, y+34, e, slope)
	for d := v.from; d <= v.till(); d++ {
		_, ty := at(1, math.Pow(10, d))
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"dim\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			left, left+plotWidth, ty, ty, left-6, ty+4, html.EscapeString(amount(math.Pow(10, d), s.unit)))
	}
	for d := h.from; d <= h.till(); d++ {
		tx, _ := at(math.Pow(10, d), low)
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"dim\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			tx, tx, top, top+plotHeight, tx, top+plotHeight+16, count(int(math.Round(math.Pow(10, d)))))
	}
	x1, y1 := at(float64(first.services), c*math.Pow(float64(first.services), e))
	x2, y2 := at(float64(last.services), c*math.Pow(float64(last.services), e))
	fmt.Fprintf(b, "<line class=\"fit\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x1, y1, x2, y2)
	for _, p := range s.points {
		px, py := at(float64(p.services), p.value)
		fmt.Fprintf(b, "<circle class=\"dot\" r=\"4\" cx=\"%.1f\" cy=\"%.1f\"><title>%s services: %s</title></circle>\n",
			px, py, count(p.services), html.EscapeString(amount(p.value, s.unit)))
	}
}

// axis is a range of powers of ten.
type axis struct{ from, to float64 }

// till is the end of an axis, which has a length.
func (a axis) till() float64 { return max(a.to, a.from+1) }

// part is where a value is between the ends: 0 to 1.
func (a axis) part(value float64) float64 { return (math.Log10(value) - a.from) / (a.till() - a.from) }

// amount is a value with its unit, in three digits: "12.3 ms" of seconds.
func amount(value float64, unit string) string {
	if value >= 1000 {
		return count(int(math.Round(value))) + " " + unit
	}
	if unit == "s" && value < 1 {
		value, unit = value*1000, "ms"
	}
	return fmt.Sprintf("%.3g %s", value, unit)
}
