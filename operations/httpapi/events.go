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
	// heartbeat is the interval of comments that keep proxies from closing an idle stream.
	heartbeat = 15 * time.Second
	// beatsAllowed is the number of heartbeats between two checks of the caller's right.
	beatsAllowed = 4
)

// events sends the operation whenever it changes, until it ends:
//
//	event: progress, succeeded, failed or gone
//	id: the operation id and the resource version of the Operation
//	data: the operation as GET shows it
//
// A client that reconnects with that id as Last-Event-ID, as browsers do, gets events of the same operation, even if
// another one has followed it. If the outcome was sent already, the answer is 204, which stops browsers from
// reconnecting.
func (h *handler) events(w http.ResponseWriter, r *http.Request) error {
	a, leave, err := h.enterStream(r)
	if err != nil {
		return err
	}
	defer leave()
	s := &stream{w: w, control: http.NewResponseController(w), timeout: h.Timeout}
	res := resource(r)
	changes, err := h.follow(r.Context(), s, a.namespace, res, false) // before the first read, to miss no change
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
		if more = s.run(r.Context(), h.Stop, changes); more { // the slot has left this replica
			changes.stop()
			if changes, err = h.follow(r.Context(), s, a.namespace, res, true); err != nil {
				changes = &follower{stop: func() {}}
				return nil //nolint:nilerr // the answer has begun; the caller reconnects
			}
		}
	}
	return nil
}

// enterStream checks the caller's right and takes a stream slot. leave returns the slot.
func (h *handler) enterStream(r *http.Request) (a admission, leave func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	if a, err = h.admit(r.WithContext(ctx), "get"); err == nil {
		err = a.wrong.problem()
	}
	if err == nil {
		leave, err = h.limits.enter(ctx, h.limits.streams, a.who)
	}
	return a, leave, err
}

// first reads the operation at the start of a stream.
func (h *handler) first(r *http.Request, a admission, res operations.Resource) (*v1alpha1.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	looked, err := h.limits.enter(ctx, h.limits.requests, a.who)
	if err != nil {
		return nil, err
	}
	defer looked()
	return h.find(r.WithContext(ctx), a.namespace, res)
}

// stream is the answer to one caller. It stays with one operation even when others follow.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // of one write
	allowed func(ctx context.Context) bool
	id      string
	uid     types.UID
	version string // resource version of the Operation that was seen last
	last    operations.View
	over    bool        // the stream has ended
	covered func() bool // nil: always
	own     bool        // the stream has its own watch
	left    bool        // the object left the store, but the operation may continue
}

// begin starts the answer with the current state and reports whether to continue. head suppresses the body.
func (s *stream) begin(head bool, op *v1alpha1.Operation) (more bool) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
	return !head && s.show(op) // a HEAD request ends here
}

// run sends events until the operation ends, the caller disconnects or the server stops. It returns true if the caller
// must follow the operation again.
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

// stillAllowed reports whether the caller's right is still valid. A failed check counts as valid.
func (s *stream) stillAllowed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.allowed(ctx)
}

// heardAll sends the changes and reports whether to continue.
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

// heard sends a change and reports whether to continue.
func (s *stream) heard(e *store.Event) (more bool) {
	if s.own && e.Type == store.Synced && e.Count == 0 { // deleted before the watch began
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
		return true // a previous object of the same name
	case e.Type == store.Deleted && !ended:
		s.send("gone", s.last)
		return false
	case e.Type != store.Deleted && !newer(op.ResourceVersion, s.version):
		return true // the first read was from the API server, and the store may be older
	}
	return s.show(op)
}

// show sends the state of the operation and reports whether to continue.
func (s *stream) show(op *v1alpha1.Operation) (more bool) {
	s.version = op.ResourceVersion
	v, ok := operations.ViewOfID(op, s.id)
	if !ok { // the history has dropped it, or the object was deleted and recreated
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

// write fails if the client does not read in time.
func (s *stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // fails only with some test servers
	_, err := io.WriteString(s.w, text)
	if err == nil {
		err = s.control.Flush()
	}
	_ = s.control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream when its deadline passes, even without a write
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

// newer reports whether version is later than the other one. Versions that cannot be compared are newer if they differ.
func newer(version, than string) bool {
	order, ok := resourceversion.Compare(version, than)
	return order > 0 || !ok && version != than
}
