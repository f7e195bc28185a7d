package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/pages"
)

// plot is a chart of the last hour.
type plot struct {
	Title, Unit       string
	Last, Least, Most string
	Empty             bool
	Line              template.HTMLAttr
	Rows, Columns     []axisMark
	Spots             []spot
	Table             []point // the latest values
}

// axisMark is a grid line with its label.
type axisMark struct {
	At    float64
	Label string
}

// spot is an area of the plot with a tooltip.
type spot struct {
	X, Wide float64
	Text    string
}

// Dimensions of a plot, in its own units. Labels are to the left of the curve and below.
const (
	plotLeft, plotTop  = 44.0, 8.0
	plotWide, plotHigh = 266.0, 72.0
	plotSpots          = 60 // one minute each
	plotTable          = 10
)

// plotOf draws a chart of the last hour.
func plotOf(title, unit string, points []point) plot {
	p := plot{Title: title, Unit: unit, Empty: len(points) == 0}
	if p.Empty {
		return p
	}
	least, most := points[0].Value, 0.0
	for _, pt := range points {
		least, most = min(least, pt.Value), max(most, pt.Value)
	}
	end := points[len(points)-1]
	top := scaleOf(most)
	x := func(at time.Time) float64 {
		return plotLeft + plotWide*max(0, 1-float64(end.At.Sub(at))/float64(rateFor))
	}
	var line strings.Builder
	for _, pt := range points {
		fmt.Fprintf(&line, "%.1f,%.1f ", x(pt.At), plotTop+plotHigh*(1-pt.Value/top))
	}
	p.Line = template.HTMLAttr(`points="` + strings.TrimSpace(line.String()) + `"`) //nolint:gosec // numbers
	for _, part := range []float64{0, 0.5, 1} {
		p.Rows = append(p.Rows, axisMark{plotTop + plotHigh*(1-part), strconv.FormatFloat(part*top, 'g', -1, 64)})
	}
	for _, ago := range []time.Duration{rateFor, rateFor / 2, 0} {
		label := "now"
		if ago > 0 {
			label = "-" + pages.Human(ago)
		}
		p.Columns = append(p.Columns, axisMark{x(end.At.Add(-ago)), label})
	}
	const wide = plotWide / plotSpots
	for i := len(points) - 1; i >= 0; i -= max(1, int(rateFor/rateEvery)/plotSpots) {
		pt := points[i]
		p.Spots = append(p.Spots, spot{
			max(plotLeft, x(pt.At)-wide/2), wide, pt.At.UTC().Format("15:04:05") + " UTC: " + number(pt.Value) + " " + unit,
		})
	}
	p.Last, p.Least, p.Most = number(end.Value), number(least), number(most)
	p.Table = points[max(0, len(points)-plotTable):]
	return p
}

// scaleOf returns the upper end of an axis for values up to most: 1, 2 or 5 times a power of ten.
func scaleOf(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, step := range []float64{1, 2, 5} {
		if most <= step*power {
			return step * power
		}
	}
	return 10 * power
}

func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return fmt.Sprintf("%.4f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
