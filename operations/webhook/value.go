package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// decimal is a JSON number that is not an integer. It prints without an exponent.
type decimal float64

// String returns the shortest decimal notation.
func (d decimal) String() string { return strconv.FormatFloat(float64(d), 'f', -1, 64) }

// parseJSON parses one JSON value. Integers become int64 if they fit.
func parseJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return numbers(v, func(f float64) any { return f }), nil
}

// numbers replaces each json.Number in place.
func numbers(v any, float func(float64) any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = numbers(item, float)
		}
	case []any:
		for i, item := range v {
			v[i] = numbers(item, float)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range becomes infinity
		return float(f)
	}
	return v
}

// plain converts a value to nil, bool, string, int64, decimal, maps and lists. These types have no methods that a
// template could call, and share no mutable state.
func plain(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string, int64, decimal:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float64:
		if whole := int64(v); float64(whole) == v && whole > -1<<53 && whole < 1<<53 {
			return whole, nil // encoding/json decodes all numbers as floats
		}
		return decimal(v), nil
	case map[string]string:
		m := make(map[string]any, len(v))
		for key, item := range v {
			m[key] = item
		}
		return m, nil
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, item := range v {
			item, err := plain(item)
			if err != nil {
				return nil, err
			}
			m[key] = item
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			item, err := plain(item)
			if err != nil {
				return nil, err
			}
			list[i] = item
		}
		return list, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	parsed, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	return plain(parsed)
}

// root returns the dot of the templates.
func (d Data) root() (map[string]any, error) {
	resource, err := plain(d.Resource)
	if err != nil {
		return nil, fieldError("spec.requestObject.resource", "cannot be read: %w", err)
	}
	var fields Fields
	if d.Operation != nil {
		fields = d.Operation()
	}
	operation, err := plain(fields)
	if err != nil {
		return nil, fieldError("spec", "cannot be read: %w", err)
	}
	headers, err := plain(d.Headers)
	if err != nil {
		return nil, fieldError("spec.requestObject.headers", "cannot be read: %w", err)
	}
	root := map[string]any{
		"Resource":    resource,
		"TenantID":    d.TenantID,
		"Headers":     headers,
		"Operation":   operation,
		"CallbackURL": d.CallbackURL,
	}
	if d.Outcome != nil {
		root["Outcome"] = map[string]any{"phase": d.Outcome.Phase, "reason": d.Outcome.Reason, "message": d.Outcome.Message}
	}
	return root, nil
}

// jsonText returns v as JSON, without HTML escapes.
func jsonText(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}
