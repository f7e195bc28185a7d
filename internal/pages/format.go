package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/why"
)

// funcs are the functions for templates.
var funcs = template.FuncMap{
	"when": when, "since": since, "human": Human, "count": Count, "bytes": sizeOf,
	"text": harmless, "short": shorten, "middle": middle, "lines": lines,
	"static": staticURL, "path": url.PathEscape, "join": strings.Join,
	"objectPath": WhyPath, "command": whyCommand, "elsewhere": elsewhere, "replica": replicaURL,
	// Copying is offered only if the shown text is the complete text.
	"plain": func(text string) bool { return text != "" && harmless(text) == text },
}

// when shows a time. A script replaces it by the age; the title has the exact time.
func when(t any) template.HTML { return timeOf(t, "", "") }

// since shows the beginning of a state. A script replaces it by the duration, such as "for 3m".
func since(t any) template.HTML { return timeOf(t, " data-since", "since ") }

func timeOf(t any, attribute, prefix string) template.HTML {
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
	return template.HTML(`<time datetime="` + exact + `" title="` + exact + `"` + attribute + `>` + //nolint:gosec // digits and letters
		prefix + at.UTC().Format("2006-01-02 15:04:05") + `</time>`)
}

// Human formats a duration for people.
func Human(d time.Duration) string {
	if d < 0 {
		return "-" + Human(-d)
	}
	if d > 0 && d < time.Millisecond {
		return "<1ms"
	}
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// Count groups the digits of a number.
func Count(n any) string {
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

// WhyPath returns the page that explains an object.
func WhyPath(of why.Object) string {
	q := url.Values{"kind": {of.Kind}, "name": {of.Name}}
	if of.Namespace != "" {
		q.Set("namespace", of.Namespace)
	}
	if of.Group != "" {
		q.Set("group", of.Group)
	}
	return "/console/why?" + q.Encode()
}

// elsewhere returns the page of the replica that works on an object, from the answer of another replica. It returns ""
// if the answer contains no address.
func elsewhere(a why.Answer) string {
	for _, c := range a.Causes {
		if c.Type != why.HeldBy && c.Type != why.NotLeading || c.Depth != 0 {
			continue
		}
		if at := replicaURL(c.Evidence["address"]); at != "" {
			return at + WhyPath(why.Object{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name})
		}
		return ""
	}
	return ""
}

// replicaURL returns the URL of the server at the address that a replica states, without a path. It returns "" for an
// address that is not that of a web server.
func replicaURL(address string) string {
	if !strings.Contains(address, "://") {
		address = "//" + address // with the scheme of this page
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// whyCommand returns the command that asks the console at a URL the same question.
func whyCommand(kind, namespace, name, url string) string {
	text := "fairlead why " + kind + "/" + name + " -n " + namespace
	if url != "" {
		text += " --url " + url
	}
	return text
}
