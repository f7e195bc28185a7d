package console

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/internal/store"
)

// funcs are the functions for templates.
var funcs = template.FuncMap{
	"when": when, "human": human, "count": count, "text": harmless, "bytes": sizeOf, "short": shorten, "middle": middle, "lines": lines,
	"static": staticURL, "path": url.PathEscape, "join": strings.Join, "attempts": func(retries int32) int32 { return retries + 1 },
	"percent":    func(part float64) string { return strconv.Itoa(int(part*100+0.5)) + " %" },
	"objectPath": objectPath, "command": whyCommand, "elsewhere": elsewhere,
	// Copying is offered only if the shown text is the complete text.
	"plain": func(text string) bool { return text != "" && harmless(text) == text },
	"nodes": func(flow string, nodes []*graphNode) map[string]any {
		return map[string]any{"Flow": flow, "Nodes": nodes}
	},
	"number": number,
	"late":   func(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= behindAfter },
	"stored": func(m store.MemoryStats) int64 { return m.Live + m.Unpacked },

	// Geometry of a timeline: names to the left, labels below.
	"tickX": func(x float64) float64 { return x + timelineLeft }, "tickY": func(high int) int { return high + tickText },
	"timelineHigh": func(high int) int { return high + tickText + laneHigh/2 },
	"barY":         func(y int) int { return y + barInset }, "markY": func(y int) int { return y + laneHigh/2 },
	"laneText": func(y int) int { return y + barInset + 1 },
	// On a phone, names are above the lanes.
	"phoneX": func(x float64) float64 { return phoneInset + x*phoneWide/timeWide }, "phoneY": func(i int) int { return i * phoneLane },
	"phoneWide": func(wide float64) float64 { return max(wide*phoneWide/timeWide, leastShown) },
	"add":       func(a, b int) int { return a + b }, "even": func(i int) bool { return i%2 == 0 },
}

// Dimensions around the lanes of a timeline.
const (
	timelineLeft = 220.0
	tickText     = 18
	barInset     = 4

	phoneLane  = 36
	phoneInset = 6.0
	phoneWide  = 308.0 // of 320, the page width on a phone
)

// when shows a time. A script replaces it by the age; the title has the exact time.
func when(t any) template.HTML {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *time.Time:
		if t != nil {
			at = *t
		}
	}
	if at.IsZero() {
		return `<span class="none">never</span>`
	}
	exact := at.UTC().Format("2006-01-02T15:04:05.000Z")
	return template.HTML(`<time datetime="` + exact + `" title="` + exact + `">` + //nolint:gosec // digits and letters
		at.UTC().Format("2006-01-02 15:04:05") + `</time>`)
}

// human formats a duration for people.
func human(d time.Duration) string {
	if d < 0 {
		return "-" + human(-d)
	}
	if d > 0 && d < time.Millisecond {
		return "<1ms"
	}
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// count groups the digits of a number.
func count(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func sizeOf(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// maxText bounds the shown part of foreign text, in bytes.
const maxText = 2000

// harmless makes foreign text safe to show: it truncates the text and replaces invisible characters and bidirectional
// marks.
func harmless(v any) string {
	return shorten(maxText, v)
}

// lines is harmless for multi-line text, without truncation.
func lines(text string) string {
	parts := strings.Split(text, "\n")
	for i, line := range parts {
		parts[i] = shorten(len(line), line)
	}
	return strings.Join(parts, "\n")
}

// middle is harmless, but cuts out the middle of a long text, because ids differ at both ends.
func middle(most int, v any) string {
	text := []rune(harmless(v))
	if len(text) <= most {
		return string(text)
	}
	head := most / 2
	return string(text[:head]) + "…" + string(text[len(text)-(most-head-1):])
}

func shorten(most int, v any) string {
	s := strings.ToValidUTF8(fmt.Sprint(v), "\uFFFD")
	cut := false
	if len(s) > most {
		s, cut = strings.ToValidUTF8(s[:most], ""), true
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.Is(unicode.Cf, r) || unicode.IsControl(r): // including bidirectional marks
			return '\uFFFD'
		}
		return r
	}, s)
	if cut {
		s += "…"
	}
	return s
}
