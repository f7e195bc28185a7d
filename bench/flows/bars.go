package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead-io/fairlead/bench/internal/rounds"
)

// bar is a goal of the design: an upper bound for the median of one result of a row.
type bar struct {
	row, text  string
	peer, unit int // index of the peer in the row's results, and of its value
	most       float64
	of         string
}

var bars = []bar{
	{row: "F1", text: "a parked fiber with timer, gate entry and trail", most: 500, of: "bytes"},
	{row: "F2", text: "dispatch of one step (Next)", most: 1000, of: "ns"},
	{row: "F2", text: "its allocations", unit: 1, most: 2},
	{row: "F2", text: "dispatch with a turn of the scheduler (Yield)", peer: 1, most: 1000, of: "ns"},
	{row: "F2", text: "its allocations", peer: 1, unit: 1, most: 2},
	{row: "F3", text: "preemption of a cooperative step, p99", unit: 1, most: 5000, of: "µs"},
	{row: "F4", text: "10,000 saved fibers armed, positions in the status", most: 5000, of: "ms"},
	{row: "F4", text: "the same, positions in memory", peer: 1, most: 5000, of: "ms"},
}

// printBars writes a Markdown table of the measured values and the goals.
func printBars(w io.Writer, all map[string][]rounds.Result) {
	fmt.Fprint(w, "\nAgainst the bars of the design\n\n| row | what | measured | bar | |\n|---|---|---|---|---|\n")
	for _, b := range bars {
		got, verdict := all[b.row][b.peer].Values[b.unit].Median, "met"
		if got > b.most {
			verdict = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", b.row, b.text, b.amount(got), b.amount(b.most), verdict)
	}
}

func (b bar) amount(v float64) string { return strings.TrimSpace(fmt.Sprintf("%.4g %s", v, b.of)) }
