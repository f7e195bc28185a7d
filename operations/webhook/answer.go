package webhook

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxStart and maxKind bound the part of an answer and of its content type in a message, in bytes.
const maxStart, maxKind = 200, 64

// answer is a response, or the lack of one. Status 0 means no answer.
type answer struct {
	status    int
	header    http.Header
	raw       []byte
	truncated bool
	after     time.Duration // Retry-After; negative: none
	err       error         // why no answer came

	// Set by open, masked.
	headers map[string]string // lower-case names
	body    any               // parsed JSON, else a string
	start   string            // the first characters of the body
	large   bool              // JSON with too many values to parse
}

func noAnswer(err error) *answer {
	return &answer{body: "", after: -1, err: err}
}

func (a *answer) cel() *celResponse {
	headers := a.headers
	if headers == nil {
		headers = map[string]string{}
	}
	return &celResponse{Status: int64(a.status), Headers: headers, Body: a.body}
}

func (a *answer) is2xx() bool { return a.status >= 200 && a.status < 300 }

// readBody reads at most maxBody bytes after unpacking. It calls reserve before it reads more than smallBody bytes.
func readBody(resp *http.Response, reserve func() error) (data []byte, truncated bool, err error) {
	var body io.Reader = resp.Body
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		if resp.ContentLength == 0 {
			return nil, false, nil
		}
		packed, err := gzip.NewReader(body)
		if errors.Is(err, io.EOF) {
			return nil, false, nil // no body: of HEAD, 204, 304
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot unpack the answer: %w", err)
		}
		body = packed
	default:
		return nil, false, fmt.Errorf("cannot unpack the answer: unknown content encoding")
	}
	data, err = io.ReadAll(io.LimitReader(body, smallBody+1))
	if err == nil && len(data) > smallBody {
		if err = reserve(); err == nil {
			var rest []byte
			rest, err = io.ReadAll(io.LimitReader(body, maxBody+1-int64(len(data))))
			data = append(data, rest...)
		}
	}
	if len(data) > maxBody {
		return data[:maxBody], true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the answer: %w", err)
	}
	return data, false, nil
}

// open masks and parses the answer. That takes memory and time, so it runs in a turn of the namespace, and close frees
// the memory.
func (a *answer) open(m *mask) {
	a.headers = make(map[string]string, len(a.header))
	for name, values := range a.header {
		a.headers[strings.ToLower(name)] = m.apply(strings.Join(values, ", "))
	}
	text := m.apply(string(a.raw))
	a.body, a.start = text, text[:min(len(text), maxStart)]
	if a.truncated || text == "" {
		return
	}
	if a.large = valuesIn(text) > maxValues; a.large {
		return
	}
	if parsed, err := parseJSON([]byte(text)); err == nil {
		a.body = parsed
	}
}

func (a *answer) close() { a.headers, a.body, a.start = nil, "", "" }

// valuesIn returns an upper bound of the values and names in a JSON text.
func valuesIn(text string) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}
