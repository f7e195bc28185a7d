package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// run is the state of one rendering. It is the template's writer, so that it knows the position of each value.
type run struct {
	template *template.Template
	kind     kind
	limit    int

	out   []byte
	depth int
	spent *effort

	// Lexer state of a JSON body. It is inactive until the output proves to be JSON.
	json, structural, quoted, escaped bool
}

func (r *run) reset(jsonBody bool, spent *effort) {
	*r = run{template: r.template, kind: r.kind, limit: r.limit, out: r.out[:0], spent: spent, json: jsonBody}
}

// Write appends to the output.
func (r *run) Write(p []byte) (int, error) {
	if len(r.out)+len(p) > r.limit {
		return 0, fmt.Errorf("output longer than %d bytes", r.limit)
	}
	if r.json {
		r.lex(p)
	}
	r.out = append(r.out, p...)
	return len(p), nil
}

func (r *run) lex(p []byte) {
	for _, c := range p {
		switch {
		case !r.structural:
			switch c {
			case ' ', '\t', '\r', '\n':
			case '{', '[':
				r.structural = true
			case '"':
				r.structural, r.quoted = true, true
			default:
				r.json = false // not JSON
				return
			}
		case r.escaped:
			r.escaped = false
		case r.quoted && c == '\\':
			r.escaped = true
		case c == '"':
			r.quoted = !r.quoted
		}
	}
}

func (r *run) hooks() template.FuncMap {
	return template.FuncMap{fnEmit: r.emit, fnStep: r.step, fnPay: r.pay, fnEnter: r.enter, fnLeave: r.leave}
}

// step counts n steps.
func (r *run) step(n int) (string, error) {
	e := r.spent
	before := e.steps
	if e.steps += n; e.steps > maxSteps || e.steps/clockEvery > before/clockEvery && time.Since(e.started) > maxRunning {
		return "", errTooMuch
	}
	return "", nil
}

func (r *run) enter() (string, error) {
	r.depth++
	if r.depth > maxDepth {
		return "", errTooDeep
	}
	return r.step(1)
}

func (r *run) leave() string {
	r.depth--
	return ""
}

// charge counts n bytes of work of a function.
func (r *run) charge(n int) error {
	e := r.spent
	e.work += n + 64
	if n > maxWork || e.work > maxWork || time.Since(e.started) > maxRunning {
		return errTooMuch
	}
	return nil
}

// pay returns v, after charging for reading all of it.
func (r *run) pay(v any) (any, error) {
	n := 0
	switch v := v.(type) {
	case string:
		n = len(v)
	case rawJSON:
		n = len(v)
	case rawURL:
		n = len(v)
	case map[string]any:
		n = 32 * len(v)
	case []any:
		n = 16 * len(v)
	}
	if n < 64 {
		return v, nil // already counted as a step
	}
	return v, r.charge(n)
}

// emit converts a value to text and escapes it for its position.
func (r *run) emit(v any) (string, error) {
	if v == nil {
		return "", fmt.Errorf("the value is null; give a default or render it with json")
	}
	s, err := r.show(v)
	if err != nil {
		return "", err
	}
	if err := r.charge(len(s)); err != nil {
		return "", err
	}
	switch r.kind {
	case kindURL:
		return r.emitURL(v, s)
	case kindBody:
		if r.json {
			return r.emitJSON(v, s)
		}
	}
	return s, nil
}

// Texts that functions have already escaped.
type (
	rawJSON string
	rawURL  string
)

// show returns a value as text: objects and lists as JSON.
func (r *run) show(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "null", nil
	case string:
		return v, nil
	case rawJSON:
		return string(v), nil
	case rawURL:
		return string(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool, int, decimal, float64:
		return fmt.Sprint(v), nil
	}
	s, err := jsonText(v)
	if err != nil {
		return "", fmt.Errorf("cannot show the value: %w", err)
	}
	return s, nil
}

func (r *run) emitJSON(v any, s string) (string, error) {
	if r.quoted {
		quoted, err := jsonText(s)
		if err != nil {
			return "", err
		}
		return quoted[1 : len(quoted)-1], r.charge(len(quoted))
	}
	switch v.(type) {
	case string, rawURL:
		// Outside of quotes a text must be a complete JSON value; otherwise it could add fields.
		if r.structural && s != "" && !json.Valid([]byte(s)) {
			return "", fmt.Errorf("a text stands outside of quotes in a JSON body; render it with json")
		}
	}
	return s, nil
}

// emitURL escapes for the part of the URL that has been reached.
func (r *run) emitURL(v any, s string) (string, error) {
	if _, raw := v.(rawURL); raw {
		return s, nil
	}
	so := string(r.out)
	scheme, rest, found := strings.Cut(so, "://")
	switch {
	case !found || strings.ContainsAny(scheme, "/?#"):
		return s, nil // the value begins the URL; renderURL checks the complete URL
	case strings.ContainsRune(rest, '?') || strings.ContainsRune(rest, '#'):
		return url.QueryEscape(s), nil
	case strings.ContainsRune(rest, '/'):
		return escapeSlashes(escapePath(s)), nil
	case strings.HasPrefix(s, "/"):
		return escapePath(s), nil // it ends the host
	}
	// Within the host a value may be a label or a port, but it must not turn the preceding text into a user name.
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != ':' && c != '_' {
			return "", fmt.Errorf("a value in the host of a URL has a character other than letters, digits, dot, dash and colon")
		}
	}
	return s, nil
}

// escapeSlashes keeps a value within one path segment.
func escapeSlashes(path string) string { return strings.ReplaceAll(path, "/", "%2F") }

// escapePath escapes characters that are not allowed in a path. It keeps slashes.
func escapePath(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isAlphanumeric(c) || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
