package watchtest

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// OpenRequests tracks the requests of one client to check W7: at most one watch and one list are open per scope. The
// zero value is ready to use. It is safe for concurrent use.
type OpenRequests struct {
	mu   sync.Mutex
	open map[string]int
	peak map[string]int
}

// Wrap tracks the requests of clients that use cfg.
func (o *OpenRequests) Wrap(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingTripper{o, next} })
}

// Open returns the number of requests whose response body is not closed yet.
func (o *OpenRequests) Open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, k := range o.open {
		n += k
	}
	return n
}

// Check returns a violation for each path that had two open watches or two open lists at a time.
func (o *OpenRequests) Check() []Violation {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []Violation
	for what, n := range o.peak {
		if n > 1 && (strings.HasPrefix(what, "watch ") || strings.HasPrefix(what, "list ")) {
			found = append(found, Violation{"W7", -1, what + " was open more than once at the same time"})
		}
	}
	return found
}

func (o *OpenRequests) add(what string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open, o.peak = map[string]int{}, map[string]int{}
	}
	o.open[what] += n
	o.peak[what] = max(o.peak[what], o.open[what])
}

type countingTripper struct {
	o    *OpenRequests
	next http.RoundTripper
}

func (t countingTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	verb := "list "
	switch {
	case req.Method != http.MethodGet:
		verb = req.Method + " "
	case req.URL.Query().Get("watch") != "":
		verb = "watch "
	}
	what := verb + req.URL.Path
	t.o.add(what, 1)
	res, err := t.next.RoundTrip(req)
	if err != nil {
		t.o.add(what, -1)
		return nil, err
	}
	res.Body = &countedBody{ReadCloser: res.Body, end: func() { t.o.add(what, -1) }}
	return res, nil
}

// WrappedRoundTripper lets client-go reach the transport below, to close its idle connections.
func (t countingTripper) WrappedRoundTripper() http.RoundTripper { return t.next }

type countedBody struct {
	io.ReadCloser
	once sync.Once
	end  func()
}

func (b *countedBody) Close() error {
	defer b.once.Do(b.end)
	return b.ReadCloser.Close()
}
