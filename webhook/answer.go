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

// answer is what came back, masked. Status 0 stands for no answer.
type answer struct {
	status    int
	headers   map[string]string // lower-case names
	body      any               // parsed JSON, else a string
	text      string            // the body as it came
	truncated bool
	after     time.Duration // Retry-After; negative: none
	err       error         // why there is no answer
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

// readBody reads at most MaxBody bytes, unpacked. reserve is called before more than smallBody of them are.
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
			rest, err = io.ReadAll(io.LimitReader(body, MaxBody+1-int64(len(data))))
			data = append(data, rest...)
		}
	}
	if len(data) > MaxBody {
		return data[:MaxBody], true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot read the answer: %w", err)
	}
	return data, false, nil
}

// newAnswer parses an answer that was masked already.
func newAnswer(status int, header http.Header, body string, truncated bool, after time.Duration) *answer {
	a := &answer{status: status, headers: make(map[string]string, len(header)), body: body, text: body, truncated: truncated, after: after}
	for name, values := range header {
		a.headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	if !truncated && body != "" {
		if parsed, err := parseJSON([]byte(body)); err == nil {
			a.body = parsed
		}
	}
	return a
}
