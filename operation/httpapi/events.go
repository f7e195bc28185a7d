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
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
)

// heartbeat keeps proxies from closing a stream on which nothing happens.
const heartbeat = 15 * time.Second

// events sends the operation whenever it changes, until it ends:
//
//	event: progress, succeeded, failed or gone
//	id: the operation and the version that it was read of
//	data: the operation as GET shows it
//
// A caller who was cut off and comes again with that id as Last-Event-ID, as browsers do, is told of the same operation, also when another
// one has followed it; and 204, on which they stop, when it has nothing new to learn.
func (h *handler) events(w http.ResponseWriter, r *http.Request) error {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		return &Problem{Status: http.StatusServiceUnavailable, Title: "Too many event streams", Detail: "poll with GET, or try again later"}
	}
	op, err := h.first(r)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	key := store.Key{Namespace: op.Namespace, Name: op.Name}
	cursor := h.Operations.Subscribe(store.SubscribeOptions{
		Name: "events", Filter: func(record *store.Record) bool { return record.Key() == key },
		Wake: func() {
			select {
			case changed <- struct{}{}:
			default: // it will look anyway
			}
		},
	})
	defer cursor.Close()
	s := &stream{w: w, control: http.NewResponseController(w), timeout: h.Timeout, id: op.EffectiveID(), uid: op.UID}
	if id, version, ok := strings.Cut(r.Header.Get("Last-Event-ID"), "."); ok {
		s.id = id
		s.last = operation.View{OperationID: id, ResourceType: op.Spec.ResourceType, ResourceID: op.Spec.ResourceID, Status: operation.InProgress}
		if v, known := operation.ViewOfID(op, id); known && v.Terminal() && version == op.ResourceVersion {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	s.run(r.Context(), h.Stop, r.Method == http.MethodHead, op, cursor, changed)
	return nil
}

// first finds the operation that a stream is about.
func (h *handler) first(r *http.Request) (*v1alpha1.Operation, error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	r = r.WithContext(ctx)
	namespace, err := h.enter(r, "get")
	if err != nil {
		return nil, err
	}
	return h.find(r, namespace, resource(r))
}

// stream is the answer to one caller, about one operation whatever follows it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // of one write
	id      string
	uid     types.UID
	version string // of the Operation that was looked at last
	last    operation.View
}

// run sends until the operation has ended, the caller is gone, or the server stops. head is for who wants no body.
func (s *stream) run(ctx context.Context, stop <-chan struct{}, head bool, op *v1alpha1.Operation, cursor *store.Cursor, changed <-chan struct{}) {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusOK)
	if head {
		return // there is nothing to wait for
	}
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }() // the connection may serve other pages next
	if !s.show(op) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		for events := cursor.Take(16); len(events) > 0; events = cursor.Take(16) { // only after nothing it is woken again
			for _, e := range events {
				if !s.heard(e) {
					return
				}
			}
		}
		select {
		case <-changed:
		case <-beat.C:
			if !s.write(": still there\n\n") {
				return
			}
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// heard sends what a change tells, and reports whether there is more to come.
func (s *stream) heard(e store.Event) (more bool) {
	if e.Object == nil {
		return true
	}
	op, err := store.As[v1alpha1.Operation](e.Object)
	if err != nil {
		return false // the answer has begun; the caller reconnects
	}
	ended := operation.ViewOf(op).Terminal()
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
	v, ok := operation.ViewOfID(op, s.id)
	if !ok { // so many have followed it that its end is forgotten, or it was deleted and made anew
		s.send("gone", s.last)
		return false
	}
	s.last = v
	return s.send(eventName(v), v) && !v.Terminal()
}

func (s *stream) send(name string, v operation.View) bool {
	data, err := json.Marshal(v)
	return err == nil && s.write(fmt.Sprintf("event: %s\nid: %s.%s\ndata: %s\n\n", name, s.id, s.version, data))
}

// write gives up on a caller who does not read.
func (s *stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // only some test servers cannot
	_, err := io.WriteString(s.w, text)
	return err == nil && s.control.Flush() == nil
}

func eventName(v operation.View) string {
	switch v.Status {
	case operation.Succeeded:
		return "succeeded"
	case operation.Failed:
		return "failed"
	default:
		return "progress"
	}
}

// newer tells whether a version comes after another one; of versions that cannot be compared, every other one does.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return order > 0 || err != nil && version != than
}
