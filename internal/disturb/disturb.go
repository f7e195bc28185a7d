// Package disturb has requests to an API server go wrong at random, for tests that count exactly what arrives there.
package disturb

import (
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// Fault is what becomes of one request.
type Fault string

// The faults.
const (
	None       Fault = ""
	Lost       Fault = "lost"        // it does not arrive
	AnswerLost Fault = "answer lost" // it arrives, and nobody is told
	Outdated   Fault = "outdated"    // somebody else changes the object just before it arrives
)

// ErrLost is what the sender is told of what was lost.
var ErrLost = errors.New("lost")

// Choose returns a fault for every third request, the same one for the same seed and parts, which name the request.
func Choose(s uint64, parts ...any) Fault {
	faults := []Fault{Lost, AnswerLost, Outdated}
	if n := seed.Rand(s, parts...).IntN(3 * len(faults)); n < len(faults) {
		return faults[n]
	}
	return None
}

// RoundTrip sends a request with a fault. outdate is what somebody else does just before.
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

// Tap sees every request, and has to send it by next or not.
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

// WrappedRoundTripper lets client-go find the transport of its own, to close its connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// Func is a function that is a transport.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
