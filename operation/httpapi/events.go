package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

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
//	data: the operation as GET shows it
func (h *handler) events(w http.ResponseWriter, r *http.Request) error {
	namespace, err := h.enter(r, "get")
	if err != nil {
		return err
	}
	op, err := h.find(r, namespace, resource(r))
	if err != nil {
		return err
	}
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		return &Problem{Status: http.StatusServiceUnavailable, Title: "Too many event streams", Detail: "poll with GET, or try again later"}
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
	return stream(w, r, op, cursor, changed)
}

func stream(w http.ResponseWriter, r *http.Request, op *v1alpha1.Operation, cursor *store.Cursor, changed <-chan struct{}) error {
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	send := func(name string, op *v1alpha1.Operation) bool {
		data, err := json.Marshal(operation.ViewOf(op))
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, op.ResourceVersion, data)
		}
		return err == nil && control.Flush() == nil
	}
	last := op
	if !send(eventName(op), op) || operation.ViewOf(op).Terminal() {
		return nil
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		for _, e := range cursor.Take(16) {
			switch e.Type {
			case store.Deleted:
				send("gone", last)
				return nil
			case store.Added, store.Modified:
				op, err := store.As[v1alpha1.Operation](e.Object)
				if err != nil {
					return nil //nolint:nilerr // the answer has begun; the caller reconnects
				}
				if !newer(op.ResourceVersion, last.ResourceVersion) {
					continue // the first look was at the API server itself, which the store may be behind
				}
				last = op
				if !send(eventName(op), op) || operation.ViewOf(op).Terminal() {
					return nil
				}
			}
		}
		select {
		case <-changed:
		case <-beat.C:
			if _, err := fmt.Fprint(w, ": still there\n\n"); err != nil || control.Flush() != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

func eventName(op *v1alpha1.Operation) string {
	switch operation.ViewOf(op).Status {
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
