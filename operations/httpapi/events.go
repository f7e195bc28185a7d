package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// streamer answers with event streams. It has no state; the stream of each caller has its own.
type streamer struct {
	admitter          *admitter
	reader            reader
	followers         followers
	streams, requests *limit
	timeout           time.Duration   // of the start and of each event
	stop              <-chan struct{} // closed: the streams end
}

// events sends the operation whenever it changes, until it ends:
//
//	event: progress, succeeded, failed or gone
//	id: the operation id and the resource version of the Operation
//	data: the operation as GET shows it
//
// A client that reconnects with that id as Last-Event-ID, as browsers do, gets events of the same operation, even if
// another one has followed it. If the outcome was sent already, the answer is 204, which stops browsers from
// reconnecting.
func (d streamer) events(w http.ResponseWriter, r *http.Request) error {
	a, leave, err := d.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	res := resource(r)
	s := &stream{
		w: w, control: http.NewResponseController(w), timeout: d.timeout,
		covered: func() bool { return d.followers.covered(a.namespace) },
		allowed: func(ctx context.Context) bool {
			var refused *Problem
			err := d.admitter.authorize(ctx, a, "get")
			return !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized &&
				refused.Status != http.StatusForbidden
		},
	}
	// Before the first read, to miss no change.
	changes, err := d.followers.follow(r.Context(), a.namespace, res, s.consume, false)
	if err != nil {
		return err
	}
	defer func() { changes.stop() }()
	op, err := d.first(r, a, res)
	if err != nil {
		return err
	}
	if complete := s.resume(op, r.Header.Get("Last-Event-ID")); complete {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	for more := s.begin(r.Method == http.MethodHead, op); more; {
		if more = s.run(r.Context(), d.stop, changes); more { // the slot has left this replica
			changes.stop()
			if changes, err = d.followers.follow(r.Context(), a.namespace, res, s.consume, true); err != nil {
				changes = &follower{stop: func() {}}
				return nil //nolint:nilerr // the answer has begun; the caller reconnects
			}
		}
	}
	return nil
}

// enter checks the caller's right and takes a stream slot. leave returns the slot.
func (d streamer) enter(r *http.Request) (a admission, leave func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), d.timeout)
	defer cancel()
	if a, err = d.admitter.admit(r.WithContext(ctx), "get"); err == nil {
		err = a.wrong.problem()
	}
	if err == nil {
		leave, err = d.streams.enter(ctx, a.party)
	}
	return a, leave, err
}

// first reads the operation at the start of a stream.
func (d streamer) first(r *http.Request, a admission, res operations.Resource) (*v1alpha1.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), d.timeout)
	defer cancel()
	leave, err := d.requests.enter(ctx, a.party)
	if err != nil {
		return nil, err
	}
	defer leave()
	return d.reader.find(ctx, a.namespace, res)
}
