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

// A server that does not select slots sends everything for each that has come. Where slots are of namespaces it is asked
// for theirs alone, all at one version, if that is less:
//
//   - The version is read first, consistently, and then the names of the namespaces: none is missing that there was at that
//     version, unless it was deleted since, and its objects with it.
//   - That holds where objects are only in namespaces that there are. Where one was seen in another, everything is listed:
//     the namespace was deleted, or was removed while it had objects still, or a server of other APIs does not ask.
//   - Who may not list namespaces, lists everything.

// namespaces is the part of a scope that knows of them.
type namespaces struct {
	inhabited  map[string]struct{} // by an object that was seen; nil: slots are not of namespaces, or there are too many
	everything int                 // how many objects the last list of everything had
	notAllowed time.Time           // until when they are not asked for
}

const (
	// perRequest is how many objects cost about as much as a request.
	perRequest = 50
	// fewNamespaces are listed one by one, however many objects there are.
	fewNamespaces = 8
	// maxNamespaces bounds those that are remembered.
	maxNamespaces = 100_000
	// noNamespacesFor is how long namespaces are not asked for after that has failed.
	noNamespacesFor = 10 * time.Minute
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// inhabits notes the namespace of an object, whoever holds it.
func (n *namespaces) inhabits(namespace []byte) {
	if _, known := n.inhabited[string(namespace)]; known || n.inhabited == nil || len(namespace) == 0 {
		return
	}
	if n.inhabited[string(namespace)] = struct{}{}; len(n.inhabited) > maxNamespaces {
		n.inhabited = nil
	}
}

// listEverything notes that everything is about to be listed. The returned function notes how that has ended.
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

// snapshot is namespaces that are to be listed at one version.
type snapshot struct {
	version string
	names   map[string]struct{}
}

// has says that a namespace was listed; of nil each was.
func (s *snapshot) has(namespace []byte) bool {
	if s == nil {
		return true
	}
	_, ok := s.names[string(namespace)]
	return ok
}

// snapshot returns the namespaces of slots that have come; nil where all slots are to be listed.
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

// refusesExactly says that a server does not list a namespace at a version, as some do that are not Kubernetes' own.
func refusesExactly(err error) bool {
	api, ok := errors.AsType[*APIError](err)
	return ok && !isExpired(err) && (api.Code < http.StatusInternalServerError || api.Code == http.StatusNotImplemented) &&
		api.Code != http.StatusUnauthorized && api.Code != http.StatusTooManyRequests
}

// canListNamespaces says whether a list of everything would bring what is held elsewhere, too, in more than one page, and
// the objects have namespaces.
func (s *scope) canListNamespaces() bool {
	return len(s.inhabited) > 0 && s.count.FilteredObjects > 0 && s.everything > s.src.cfg.PageSize &&
		!time.Now().Before(s.notAllowed)
}

// namespacesOf returns the names of the namespaces that slots have now; nil where objects were seen in others that there
// are not, or where there are more namespaces than objects.
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
