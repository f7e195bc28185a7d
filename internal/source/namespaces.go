package source

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/shard"
)

// A server that ignores the shard selector sends all objects for each list of gained slots. If slots are by namespace,
// the source lists only the namespaces of these slots, all at one version, when that is cheaper:
//
//   - The source first reads the version with a consistent request, then the names of the namespaces. The names include
//     every namespace that existed at that version, except those deleted since, with their objects.
//   - This requires that objects exist only in existing namespaces. If an object was seen in another namespace,
//     everything is listed. The namespace was deleted, or removed while it still had objects, or an aggregated server
//     does not check namespaces.
//   - Without the permission to list namespaces, everything is listed.

// namespaces is the state of a scope for these lists.
type namespaces struct {
	inhabited  map[string]struct{} // namespaces of the objects seen; nil: slots are not by namespace, or too many
	everything int                 // number of objects in the last complete list
	notAllowed time.Time           // namespaces are not listed before this time
}

const (
	// perRequest is the number of objects that cost about as much as one request.
	perRequest = 50
	// fewNamespaces is the number of namespaces that are listed one by one, whatever the number of objects.
	fewNamespaces = 8
	// maxNamespaces bounds the size of inhabited.
	maxNamespaces = 100_000
	// noNamespacesFor is how long namespaces are not listed after a failure.
	noNamespacesFor = 10 * time.Minute
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// inhabits records the namespace of an object, whether or not its slot is held.
func (n *namespaces) inhabits(namespace []byte) {
	if _, known := n.inhabited[string(namespace)]; known || n.inhabited == nil || len(namespace) == 0 {
		return
	}
	if n.inhabited[string(namespace)] = struct{}{}; len(n.inhabited) > maxNamespaces {
		n.inhabited = nil
	}
}

// listEverything resets inhabited before a complete list. The returned function restores the earlier entries if the
// list failed.
func (s *scope) listEverything() (ended func(error)) {
	if s.slots == nil || s.slots.Layout().By != shard.Namespace || s.namespace != "" {
		return func(error) {}
	}
	before := s.inhabited
	s.inhabited = map[string]struct{}{}
	return func(err error) {
		if err != nil && s.inhabited != nil {
			maps.Copy(s.inhabited, before)
		}
	}
}

// snapshot is a set of namespaces to list at one version.
type snapshot struct {
	version string
	names   map[string]struct{}
}

// has reports whether the namespace was listed. A nil snapshot contains every namespace.
func (s *snapshot) has(namespace []byte) bool {
	if s == nil {
		return true
	}
	_, ok := s.names[string(namespace)]
	return ok
}

// snapshot returns the namespaces of the gained slots, or nil if the caller must list all slots.
func (s *scope) snapshot(ctx context.Context, slots *shard.Set) (*snapshot, error) {
	if !s.canListNamespaces() {
		return nil, nil
	}
	version, err := s.probe(ctx, false)
	if err != nil {
		return nil, err
	}
	names, err := s.namespacesOf(ctx, slots)
	switch n := len(names); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		s.notAllowed = time.Now().Add(noNamespacesFor)
		s.log.InfoContext(ctx, "cannot list the namespaces of slots, listing everything", "error", err)
		return nil, nil
	case names == nil, n > fewNamespaces && n*perRequest > s.everything:
		return nil, nil
	}
	return &snapshot{version, names}, nil
}

// refusesExactly reports whether the server rejects a list of a namespace at an exact version, as some aggregated
// servers do.
func refusesExactly(err error) bool {
	api, ok := errors.AsType[*APIError](err)
	return ok && !isExpired(err) && (api.Code < http.StatusInternalServerError || api.Code == http.StatusNotImplemented) &&
		api.Code != http.StatusUnauthorized && api.Code != http.StatusTooManyRequests
}

// canListNamespaces reports whether the objects are namespaced and a complete list would take several pages and include
// objects that are not held.
func (s *scope) canListNamespaces() bool {
	return len(s.inhabited) > 0 && s.count.FilteredObjects > 0 && s.everything > s.src.cfg.PageSize &&
		!time.Now().Before(s.notAllowed)
}

// namespacesOf returns the names of the existing namespaces in the slots. It returns nil if objects were seen in other
// namespaces, or if there are more namespaces than objects.
func (s *scope) namespacesOf(ctx context.Context, slots *shard.Set) (map[string]struct{}, error) {
	missing, found, n := maps.Clone(s.inhabited), map[string]struct{}{}, 0
	q := query{
		resource: namespaceResource, metadata: true, limit: surveyPage, selectors: &Selectors{},
		slots: new(slots.Layout().All()),
	}
	for {
		m, err := s.read(ctx, q, func(o *Object) {
			n++
			delete(missing, string(o.Header.Name))
			if slots.HasBytes(o.Header.Name, nil) {
				found[string(o.Header.Name)] = struct{}{}
			}
		})
		if err != nil {
			return nil, err
		}
		switch q.next = m.next; {
		case n > s.everything, q.next == "" && len(missing) > 0:
			return nil, nil
		case q.next == "":
			return found, nil
		}
	}
}
