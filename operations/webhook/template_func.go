package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/template"
)

// functions returns the template functions. The printing functions of text/template are replaced by bounded ones.
func (r *run) functions() template.FuncMap {
	return template.FuncMap{
		"json":    r.toJSON,
		"toJson":  r.toJSON,
		"get":     get,
		"default": defaultTo,
		"lower":   func(v any) (string, error) { return r.mapText(v, strings.ToLower) },
		"upper":   func(v any) (string, error) { return r.mapText(v, strings.ToUpper) },
		"trim":    func(v any) (string, error) { return r.mapText(v, strings.TrimSpace) },
		"b64enc": func(v any) (string, error) {
			return r.mapText(v, func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) })
		},
		"path":        func(v any) (rawURL, error) { s, err := r.mapText(v, escapePath); return rawURL(s), err },
		"pathEscape":  func(v any) (rawURL, error) { s, err := r.mapText(v, url.PathEscape); return rawURL(s), err },
		"urlquery":    func(v any) (rawURL, error) { s, err := r.mapText(v, url.QueryEscape); return rawURL(s), err },
		"queryEscape": func(v any) (rawURL, error) { s, err := r.mapText(v, url.QueryEscape); return rawURL(s), err },
		"join":        r.join,
		"replace":     r.replace,
		"print":       func(args ...any) (string, error) { return r.sprint(args, fmt.Sprint) },
		"println":     func(args ...any) (string, error) { return r.sprint(args, fmt.Sprintln) },
		"printf":      r.sprintf,
	}
}

func (r *run) toJSON(v any) (rawJSON, error) {
	s, err := jsonText(v)
	if err != nil {
		return "", err
	}
	return rawJSON(s), r.charge(len(s))
}

// get walks into maps. It returns nil for a missing key.
func get(v any, keys ...string) any {
	for _, key := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// defaultTo returns v, or def if v is empty in the sense of "if".
func defaultTo(def, v any) any {
	if truth, _ := template.IsTrue(v); truth {
		return v
	}
	return def
}

func (r *run) mapText(v any, f func(string) string) (string, error) {
	if v == nil {
		return "", errors.New("the value is null")
	}
	s, err := r.show(v)
	if err != nil {
		return "", err
	}
	if err := r.charge(3 * len(s)); err != nil { // no function here more than triples the length
		return "", err
	}
	return f(s), nil
}

func (r *run) join(sep string, list []any) (string, error) {
	parts, size := make([]string, len(list)), 0
	for i, item := range list {
		s, err := r.show(item)
		if err != nil {
			return "", err
		}
		parts[i] = s
		size += len(s) + len(sep)
		if size > maxWork {
			return "", errTooMuch
		}
	}
	if err := r.charge(size); err != nil {
		return "", err
	}
	return strings.Join(parts, sep), nil
}

func (r *run) replace(old, with string, v any) (string, error) {
	s, err := r.mapText(v, strings.Clone)
	if err != nil {
		return "", err
	}
	if grown := float64(len(s)) + float64(strings.Count(s, old))*float64(len(with)); grown > maxWork {
		return "", errTooMuch
	} else if err := r.charge(int(grown)); err != nil {
		return "", err
	}
	return strings.ReplaceAll(s, old, with), nil
}

// flat converts values other than text, number and bool to JSON, and charges for all of them.
func (r *run) flat(args []any, factor int) ([]any, error) {
	flat := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case bool, int, int64, float64, decimal:
			flat[i] = arg
			if err := r.charge(0); err != nil {
				return nil, err
			}
			continue
		}
		s, err := r.show(arg)
		if err != nil {
			return nil, err
		}
		if err := r.charge(factor * len(s)); err != nil {
			return nil, err
		}
		flat[i] = s
	}
	return flat, nil
}

func (r *run) sprint(args []any, f func(...any) string) (string, error) {
	flat, err := r.flat(args, 1)
	if err != nil {
		return "", err
	}
	return f(flat...), nil
}

// sprintf bounds two features of fmt.Sprintf: widths, and arguments used more than once.
func (r *run) sprintf(format string, args ...any) (string, error) {
	if err := checkFormat(format); err != nil {
		return "", err
	}
	if err := r.charge(len(format) + 1000*strings.Count(format, "%")); err != nil {
		return "", err
	}
	flat, err := r.flat(args, 10) // %q makes at most ten characters of one byte
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(format, flat...), nil
}

func checkFormat(format string) error {
	digits, verb := 0, false
	for i := range len(format) {
		c := format[i]
		switch {
		case !verb:
			verb, digits = c == '%', 0
		case c == '*' || c == '[':
			return errors.New("printf takes neither * nor [n] in a verb here")
		case '0' <= c && c <= '9':
			if digits++; digits > 3 {
				return errors.New("printf takes widths of up to three digits here")
			}
		case c == '.':
			digits = 0
		case strings.IndexByte("+-# ", c) < 0:
			verb = false
		}
	}
	return nil
}
