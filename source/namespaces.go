package source

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/shard"
)

// A server that does not select slots sends everything for each that has come. Where slots are of namespaces it is asked
// for theirs alone, all at one version, if that is less:
//
//   - The version is read first, consistently, and then the names of the namespaces. So none is missing that had objects
//     at that version, but one that was deleted since, whose deletions the watch brings, and one that was removed while it
//     had objects still, by an edit of its finalizers. For these the namespaces count in which an object was seen that is
//     held elsewhere.
//   - Who may not list namespaces, lists everything.

// namespaces is the part of a scope that knows of them.
type namespaces struct {
	elsewhere  map[string]struct{} // of objects that are held elsewhere; nil: slots are not of namespaces, or too many
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
	// noNamespacesFor is how long namespaces are not asked for after that was refused.
	noNamespacesFor = 10 * time.Minute
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// isElsewhereIn notes a namespace of which something is held elsewhere.
func (n *namespaces) isElsewhereIn(namespace []byte) {
	if _, known := n.elsewhere[string(namespace)]; known || n.elsewhere == nil || len(namespace) == 0 {
		return
	}
	if n.elsewhere[string(namespace)] = struct{}{}; len(n.elsewhere) > maxNamespaces {
		n.elsewhere = nil
	}
}

// listEverything notes a list of everything, which is about to be made.
func (s *scope) listEverything() {
	if s.slots != nil && s.slots.Layout().By == shard.Namespace && s.namespace == "" {
		s.elsewhere = map[string]struct{}{}
	}
}

// queries are the requests for a list: one for each namespace of slots that have come, where that may be done and is less
// than everything; none where there is no namespace, and then the version tells when that was so.
func (s *scope) queries(ctx context.Context, of listOf, whole, each bool) (_ []query, version string, _ error) {
	all := query{slots: of.gained}
	if !whole {
		all.limit = max(0, s.src.cfg.PageSize)
	}
	if !of.consistent {
		all.version, all.match = string(s.seen), notOlderThan
	}
	if !each || of.gained == nil || !s.canListNamespaces() {
		return []query{all}, "", nil
	}
	version, err := s.probe(ctx, false)
	if err != nil {
		return nil, "", err
	}
	names, err := s.namespacesOf(ctx, of.gained)
	if err != nil {
		s.notAllowed = time.Now().Add(noNamespacesFor)
		s.log.InfoContext(ctx, "cannot list the namespaces of slots, listing everything", "error", err)
		return []query{all}, "", ctx.Err()
	}
	if n := len(names); n > fewNamespaces && n*perRequest > s.everything {
		return []query{all}, "", nil
	}
	queries := make([]query, len(names))
	for i, name := range names {
		queries[i] = query{
			namespace: name, limit: all.limit, version: version, match: exactly, slots: new(of.gained.Layout().All()),
		}
	}
	return queries, version, nil
}

// canListNamespaces says whether a list of everything would bring what is held elsewhere, too, and the objects have
// namespaces.
func (s *scope) canListNamespaces() bool {
	return len(s.elsewhere) > 0 && s.count.FilteredObjects > 0 && !time.Now().Before(s.notAllowed)
}

// namespacesOf returns the names of the namespaces that slots have now, and of those that are gone but had objects.
func (s *scope) namespacesOf(ctx context.Context, slots *shard.Set) ([]string, error) {
	found := maps.Clone(s.elsewhere)
	maps.DeleteFunc(found, func(name string, _ struct{}) bool { return !slots.Has(name, "") })
	q := query{
		resource: namespaceResource, metadata: true, limit: surveyPage, selectors: &Selectors{},
		slots: new(slots.Layout().All()),
	}
	for {
		m, err := s.read(ctx, q, func(o *Object) {
			if slots.HasBytes(o.Header.Name, nil) {
				found[string(o.Header.Name)] = struct{}{}
			}
		})
		if err != nil {
			return nil, err
		}
		if q.next = m.next; q.next == "" {
			return slices.Sorted(maps.Keys(found)), nil
		}
	}
}
