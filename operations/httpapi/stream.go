package httpapi

import (
	"context"
	"encoding/json"
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

// stream is the answer to one caller. It stays with one operation even when others follow. Only the goroutine of the
// request uses it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration                  // of one write
	allowed func(ctx context.Context) bool // whether the caller may still get the operation
	covered func() bool                    // whether the store covers the operation; nil: always

	id      string
	uid     types.UID
	version string // resource version of the Operation that was seen last
	last    operations.View
	over    bool // the stream has ended
	own     bool // the stream has its own watch
	left    bool // the object left the store, but the operation may continue
}

// resume chooses the operation of the stream: that of lastEventID, or else op. It reports whether the caller has
// received the outcome already.
func (s *stream) resume(op *v1alpha1.Operation, lastEventID string) (complete bool) {
	s.id, s.uid = op.EffectiveID(), op.UID
	id, version, ok := strings.Cut(lastEventID, ".")
	if !ok {
		return false
	}
	s.id = id
	s.last = operations.View{
		OperationID: id, ResourceType: op.Spec.ResourceType, ResourceID: op.Spec.ResourceID,
		Status: operations.InProgress,
	}
	v, known := operations.ViewOfID(op, id)
	return known && v.Terminal() && version == op.ResourceVersion
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
	s.left, s.own = false, changes.own
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

// consume sends the changes and reports whether to continue.
func (s *stream) consume(events []store.Event) (more bool) {
	for i := range events {
		if s.left = events[i].Type == store.Left; s.left {
			return false
		}
		if !s.sendChange(&events[i]) {
			s.over = true
			return false
		}
	}
	return true
}

// sendChange sends a change and reports whether to continue.
func (s *stream) sendChange(e *store.Event) (more bool) {
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
