// Package rounds measures peers in interleaved rounds (A B C A B C …) and prints the results.
package rounds

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Peer is one of the compared implementations.
type Peer struct {
	Name string
	// Run makes one measurement and returns one value for each unit.
	Run func() ([]float64, error)
}

// Result is the result of one peer.
type Result struct {
	Name   string
	Values []Value
}

// Value is the median of one measured value with its extremes.
type Value struct{ Median, Min, Max float64 }

// Run measures each peer n times, in interleaved rounds.
func Run(n int, peers ...Peer) ([]Result, error) {
	all := make([][][]float64, len(peers))
	for range n {
		for i, p := range peers {
			values, err := p.Run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
			all[i] = append(all[i], values)
		}
	}
	results := make([]Result, len(peers))
	for i, p := range peers {
		results[i].Name = p.Name
		for unit := range all[i][0] {
			var of []float64
			for _, values := range all[i] {
				of = append(of, values[unit])
			}
			results[i].Values = append(results[i].Values, summarise(of))
		}
	}
	return results, nil
}

func summarise(values []float64) Value {
	slices.Sort(values)
	n := len(values)
	return Value{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// Print writes a Markdown table: for each unit the median, the extremes, and the ratio to the first peer.
func Print(w io.Writer, title string, units []string, results []Result) {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.Debug)
	_, _ = fmt.Fprintf(w, "\n%s\n\n", title)
	line := func(cells []string) {
		for _, c := range cells {
			_, _ = fmt.Fprintf(t, "\t %s ", c)
		}
		_, _ = fmt.Fprintln(t, "\t")
	}
	head, rule := []string{"peer"}, []string{"---"}
	for _, u := range units {
		head, rule = append(head, u+" (min … max)", "ratio"), append(rule, "---", "---")
	}
	line(head)
	line(rule)
	for _, r := range results {
		cells := []string{r.Name}
		for i, v := range r.Values {
			ratio := "-"
			if base := results[0].Values[i].Median; base > 0 && !math.IsNaN(v.Median) {
				ratio = short(v.Median / base)
			}
			text := "-"
			if !math.IsNaN(v.Median) {
				text = fmt.Sprintf("%s (%s … %s)", short(v.Median), short(v.Min), short(v.Max))
			}
			cells = append(cells, text, ratio)
		}
		line(cells)
	}
	_ = t.Flush()
}

// None returns the value for a unit that a peer does not have.
func None() float64 { return math.NaN() }

func short(v float64) string {
	switch {
	case v == math.Trunc(v), v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// Quantile returns the q-quantile of values. It sorts values.
func Quantile[T cmp.Ordered](values []T, q float64) T {
	slices.Sort(values)
	return values[min(len(values)-1, int(float64(len(values))*q))]
}
