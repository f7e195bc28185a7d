package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

const (
	// heartbeat keeps proxies from closing a stream on which nothing happens.
	heartbeat = 15 * time.Second
	// beatsAllowed is after how many of them the caller's right is looked at again.
	beatsAllowed = 4
)

// events sends the operation whenever it changes, until it ends:
//
//	event: progress, succeeded, failed or gone
//	id: the operation and the version that it was read of
//	data: the operation as GET shows it
//
// A caller who was cut off and comes again with that id as Last-Event-ID, as browsers do, is told of the same
// operation, also when another one has followed it; and 204, on which they stop, when it has nothing new to learn.
func (h *handler) events(w http.ResponseWriter, r *http.Request) error {
	a, leave, err := h.enterStream(r)
	if err != nil {
		return err
	}
	defer leave()
	s := &stream{w: w, control: http.NewResponseController(w), timeout: h.Timeout}
	res := resource(r)
	changes, err := h.follow(r.Context(), s, a.namespace, res, false) // before the first look, so that nothing is missed after it
	if err != nil {
		return err
	}
	defer func() { changes.stop() }()
	op, err := h.first(r, a, res)
	if err != nil {
		return err
	}
	s.id, s.uid = op.EffectiveID(), op.UID
	if id, version, ok := strings.Cut(r.Header.Get("Last-Event-ID"), "."); ok {
		s.id = id
		s.last = operations.View{
			OperationID: id, ResourceType: op.Spec.ResourceType, ResourceID: op.Spec.ResourceID,
			Status: operations.InProgress,
		}
		if v, known := operations.ViewOfID(op, id); known && v.Terminal() && version == op.ResourceVersion {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	s.allowed = func(ctx context.Context) bool {
		var refused *Problem
		err := h.Authorizer.Authorize(ctx, a.token, "get", a.namespace)
		return !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized &&
			refused.Status != http.StatusForbidden
	}
	s.covered = func() bool { return h.Operations.Covered(a.namespace) }
	for more := s.begin(r.Method == http.MethodHead, op); more; {
		if more = s.run(r.Context(), h.Stop, changes); more { // its slot has left
			changes.stop()
			if changes, err = h.follow(r.Context(), s, a.namespace, res, true); err != nil {
				changes = &follower{stop: func() {}}
				return nil //nolint:nilerr // the answer has begun; the caller reconnects
			}
		}
	}
	return nil
}

// enterStream takes a place for a stream whose caller may have it, which leave gives back.
func (h *handler) enterStream(r *http.Request) (a admission, leave func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	if a, err = h.admit(r.WithContext(ctx), "get"); err == nil {
		err = a.wrong.problem()
	}
	if err == nil {
		leave, err = h.limits.enter(ctx, h.limits.streams, a.visitor)
	}
	return a, leave, err
}

// first finds the operation that a stream is about.
func (h *handler) first(r *http.Request, a admission, res operations.Resource) (*v1alpha1.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	looked, err := h.limits.enter(ctx, h.limits.requests, a.visitor)
	if err != nil {
		return nil, err
	}
	defer looked()
	return h.find(r.WithContext(ctx), a.namespace, res)
}

// stream is the answer to one caller, about one operation whatever follows it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // of one write
	allowed func(ctx context.Context) bool
	id      string
	uid     types.UID
	version string // of the Operation that was looked at last
	last    operations.View
	over    bool        // there is nothing more to send
	covered func() bool // nil: always
	own     bool        // it is followed by a watch of its own
	left    bool        // the store that it is followed by does not have it any more, while it may go on
}

// begin begins the answer with what was looked at, and reports whether there is more to come. head is for who wants no
// body.
func (s *stream) begin(head bool, op *v1alpha1.Operation) (more bool) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
	return !head && s.show(op) // for a head there is nothing to wait for
}

// run sends until the operation has ended, the caller is gone, or the server stops; or until it has to be followed anew,
// which it reports.
func (s *stream) run(ctx context.Context, stop <-chan struct{}, changes *follower) (again bool) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for beats := 1; ; {
		for changes.Step() {
		}
		if s.left || s.over {
			return s.left
		}
		select {
		case <-changes.Woken():
		case <-beat.C:
			if beats++; beats%beatsAllowed == 0 && !s.stillAllowed(ctx) || !s.write(": still there\n\n") {
				return false
			}
			if !s.own && s.covered != nil && !s.covered() {
				return true
			}
		case <-stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// stillAllowed tells whether the token is still good for what is shown. When nobody knows, it is.
func (s *stream) stillAllowed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.allowed(ctx)
}

// heardAll sends what changes tell, and reports whether there is more to come.
func (s *stream) heardAll(events []store.Event) (more bool) {
	for i := range events {
		if s.left = events[i].Type == store.Left; s.left {
			return false
		}
		if !s.heard(&events[i]) {
			s.over = true
			return false
		}
	}
	return true
}

// heard sends what a change tells, and reports whether there is more to come.
func (s *stream) heard(e *store.Event) (more bool) {
	if s.own && e.Type == store.Synced && e.Count == 0 { // it was deleted before it was followed
		s.send("gone", s.last)
		return false
	}
	if e.Object == nil {
		return true
	}
	op, err := store.As[v1alpha1.Operation](e.Object)
	if err != nil {
		return false // the answer has begun; the caller reconnects
	}
	ended := operations.ViewOf(op).Terminal()
	switch {
	case e.Type == store.Deleted && op.UID != s.uid:
		return true // the one before
	case e.Type == store.Deleted && !ended:
		s.send("gone", s.last)
		return false
	case e.Type != store.Deleted && !newer(op.ResourceVersion, s.version):
		return true // the first look was at the API server itself, which the store may be behind
	}
	return s.show(op)
}

// show sends what an Operation tells of the operation, and reports whether there is more to come.
func (s *stream) show(op *v1alpha1.Operation) (more bool) {
	s.version = op.ResourceVersion
	v, ok := operations.ViewOfID(op, s.id)
	if !ok { // so many have followed it that its end is forgotten, or it was deleted and made anew
		s.send("gone", s.last)
		return false
	}
	s.last = v
	return s.send(eventName(v), v) && !v.Terminal()
}

func (s *stream) send(name string, v operations.View) bool {
	data, err := json.Marshal(v)
	return err == nil && s.write(fmt.Sprintf("event: %s\nid: %s.%s\ndata: %s\n\n", name, s.id, s.version, data))
}

// write gives up on a caller who does not read.
func (s *stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // only some test servers cannot
	_, err := io.WriteString(s.w, text)
	if err == nil {
		err = s.control.Flush()
	}
	_ = s.control.SetWriteDeadline(time.Time{}) // with HTTP/2 a stream ends when it passes, though nothing is written
	return err == nil
}

func eventName(v operations.View) string {
	switch v.Status {
	case operations.Succeeded:
		return "succeeded"
	case operations.Failed:
		return "failed"
	default:
		return "progress"
	}
}

// newer tells whether a version comes after another one; of versions that cannot be compared, every other one does.
func newer(version, than string) bool {
	order, ok := resourceversion.Compare(version, than)
	return order > 0 || !ok && version != than
}
