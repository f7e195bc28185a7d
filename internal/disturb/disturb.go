// Package disturb injects random faults into requests to an API server, for tests that check the effects of every
// request exactly.
package disturb

import (
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// Fault is the fault of one request.
type Fault string

// Faults.
const (
	None       Fault = ""
	Lost       Fault = "lost"        // the request does not reach the server
	AnswerLost Fault = "answer lost" // the server handles the request, but the response is lost
	Outdated   Fault = "outdated"    // another client changes the object just before the request
)

// ErrLost is the error of a request that was lost, or whose response was lost.
var ErrLost = errors.New("lost")

// Choose returns a fault for every third request on average, and None for the others. The result depends only on the
// seed and the parts, which identify the request.
func Choose(s uint64, parts ...any) Fault {
	faults := []Fault{Lost, AnswerLost, Outdated}
	if n := seed.Rand(s, parts...).IntN(3 * len(faults)); n < len(faults) {
		return faults[n]
	}
	return None
}

// RoundTrip sends a request with a fault. For Outdated it calls outdate first, which changes the object as another
// client.
func (f Fault) RoundTrip(r *http.Request, next http.RoundTripper, outdate func()) (*http.Response, error) {
	switch f {
	case Lost:
		return nil, ErrLost
	case Outdated:
		outdate()
	}
	answer, err := next.RoundTrip(r)
	if err != nil || f != AnswerLost {
		return answer, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return nil, errors.Join(ErrLost, err, answer.Body.Close())
}

// Tap handles a request. It may send the request by next.
type Tap func(r *http.Request, next http.RoundTripper) (*http.Response, error)

// Config returns a copy of a configuration whose requests pass through tap.
func Config(config *rest.Config, tap Tap) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, tap} })
	return config
}

type transport struct {
	next http.RoundTripper
	tap  Tap
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t.tap(r, t.next) }

// WrappedRoundTripper lets client-go find its own transport to close the idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// Func is a function that implements http.RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
