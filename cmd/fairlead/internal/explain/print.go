package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/why"
)

// Bounds of a printed answer, which contains foreign text.
const (
	maxText     = 2000 // bytes per text
	maxEvidence = 40   // per cause
	maxCauses   = 100
	maxLines    = 40 // per text
)

// terminalText returns a text on one line, truncated and without control characters.
func terminalText(s string) string {
	if s = cli.Plain(s); len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

func printWhy(w io.Writer, a why.Answer) error {
	var text strings.Builder
	name := terminalText(a.Kind) + " " + terminalText(a.Name)
	if a.Namespace != "" {
		name += " in namespace " + terminalText(a.Namespace)
	}
	switch {
	case len(a.Causes) == 0:
		fmt.Fprintf(&text, "%s: no known cause blocks it.\n", name)
	case a.Causes[0].Type == why.Ended && len(a.Causes) == 1:
		fmt.Fprintf(&text, "%s\n", name)
	case !a.Stuck:
		fmt.Fprintf(&text, "%s is in progress:\n", name)
	default:
		fmt.Fprintf(&text, "%s makes no progress:\n", name)
	}
	for i, c := range a.Causes {
		if i == maxCauses {
			fmt.Fprintf(&text, "… and %d more\n", len(a.Causes)-i)
			break
		}
		printCause(&text, i+1, c)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func printCause(text *strings.Builder, n int, c why.Cause) {
	switch {
	case c.Failed():
		fmt.Fprintf(text, "Failed: %s\n", terminalText(c.Message))
	case c.Type == why.Ended:
		fmt.Fprintf(text, "Nothing is wrong: %s\n", terminalText(c.Message))
	default:
		fmt.Fprintf(text, "%d. %s%s\n   %s\n", n, terminalText(string(c.Type)), times(c, time.Now()),
			terminalText(c.Message))
	}
	for i, key := range slices.Sorted(maps.Keys(c.Evidence)) {
		if i == maxEvidence {
			fmt.Fprintf(text, "     … and %d more\n", len(c.Evidence)-i)
			break
		}
		printEvidence(text, key, c.Evidence[key])
	}
	if c.About != nil {
		fmt.Fprintf(text, "   about %s\n", terminalText(c.About.String()))
	}
	if c.Advice != "" {
		fmt.Fprintf(text, "   → %s\n", terminalText(c.Advice))
	}
}

// printEvidence writes multi-line values, such as a stack, below their name.
func printEvidence(text *strings.Builder, key, value string) {
	lines := strings.Split(strings.TrimSpace(value), "\n")
	if len(lines) == 1 {
		fmt.Fprintf(text, "     %s: %s\n", terminalText(key), terminalText(value))
		return
	}
	fmt.Fprintf(text, "     %s:\n", terminalText(key))
	for _, line := range lines[:min(len(lines), maxLines)] {
		fmt.Fprintf(text, "       %s\n", terminalText(strings.ReplaceAll(line, "\t", "  ")))
	}
	if len(lines) > maxLines {
		fmt.Fprintf(text, "       … and %d more lines\n", len(lines)-maxLines)
	}
}

// times returns for how long and until when a cause holds.
func times(c why.Cause, now time.Time) (text string) {
	if !c.Since.IsZero() {
		text = " for " + duration.HumanDuration(max(0, now.Sub(c.Since)))
	}
	switch {
	case c.Until.IsZero():
	case c.Until.After(now):
		text += " (until " + cli.Stamp(c.Until) + ", in " + duration.HumanDuration(c.Until.Sub(now)) + ")"
	default:
		text += " (until " + cli.Stamp(c.Until) + ", which is over)"
	}
	return text
}

// withoutControls returns an answer without control characters in its texts.
func withoutControls(a why.Answer) why.Answer {
	a.Kind, a.Namespace, a.Name = cli.Plain(a.Kind), cli.Plain(a.Namespace), cli.Plain(a.Name)
	a.Causes = slices.Clone(a.Causes)
	for i := range a.Causes {
		c := &a.Causes[i]
		c.Type, c.Message, c.Advice = why.Type(cli.Plain(string(c.Type))), cli.Plain(c.Message), cli.Plain(c.Advice)
		if c.About != nil {
			o := *c.About
			c.About = &why.Object{
				Group: cli.Plain(o.Group), Kind: cli.Plain(o.Kind), Namespace: cli.Plain(o.Namespace),
				Name: cli.Plain(o.Name),
			}
		}
		evidence := make(map[string]string, len(c.Evidence))
		for key, value := range c.Evidence {
			evidence[cli.Plain(key)] = cli.Plain(value)
		}
		c.Evidence = evidence
	}
	return a
}

// encodeEscaped writes JSON with escaped control characters, so that programs read the original text.
func encodeEscaped(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, r := range string(raw) {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&text, `\u%04x`, unit)
			}
			continue
		}
		text.WriteRune(r)
	}
	_, err = fmt.Fprintln(w, text.String())
	return err
}
