package source

import (
	"errors"
	"maps"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/paging"
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

// namespaces decides whether to list gained slots by namespace. The goroutine of the scope owns it.
type namespaces struct {
	isTracked  bool                // slots are by namespace, and the scope covers all namespaces
	inhabited  map[string]struct{} // namespaces of the objects seen; nil: not tracked, or too many
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

// saw records the namespace of an object, whether or not its slot is held.
func (n *namespaces) saw(namespace []byte) {
	if _, known := n.inhabited[string(namespace)]; known || n.inhabited == nil || len(namespace) == 0 {
		return
	}
	if n.inhabited[string(namespace)] = struct{}{}; len(n.inhabited) > maxNamespaces {
		n.inhabited = nil
	}
}

// startList forgets the namespaces before a list names them again. The returned function restores the earlier ones if
// the list failed.
func (n *namespaces) startList() (ended func(error)) {
	if !n.isTracked {
		return func(error) {}
	}
	before := n.inhabited
	n.inhabited = map[string]struct{}{}
	return func(err error) {
		if err != nil && n.inhabited != nil {
			maps.Copy(n.inhabited, before)
		}
	}
}

// listedAll records the number of objects of a complete list.
func (n *namespaces) listedAll(count int) { n.everything = count }

// rejected records that the server does not allow lists by namespace.
func (n *namespaces) rejected() { n.notAllowed = time.Now().Add(noNamespacesFor) }

// mayHelp reports whether objects are namespaced and a complete list would take several pages.
func (n *namespaces) mayHelp(pageSize int) bool {
	return len(n.inhabited) > 0 && n.everything > pageSize && !time.Now().Before(n.notAllowed)
}

// areTooMany reports whether a list of each of count namespaces costs more than one of everything.
func (n *namespaces) areTooMany(count int) bool {
	return count > fewNamespaces && count*perRequest > n.everything
}

// existing returns the names of the existing namespaces in the slots. It returns nil if objects were seen in other
// namespaces, or if there are more namespaces than objects. read sends one request.
func (n *namespaces) existing(
	slots *shard.Set, read func(q query, object func(*Object)) (listMeta, error),
) (map[string]struct{}, error) {
	missing, found, count := maps.Clone(n.inhabited), map[string]struct{}{}, 0
	var check paging.Check
	q := query{
		resource: namespaceResource, metadata: true, limit: surveyPage, selectors: &Selectors{}, beside: true,
		slots: new(slots.Layout().All()),
	}
	for {
		m, err := read(q, func(o *Object) {
			check.Object(o.Header.Namespace, o.Header.Name)
			count++
			delete(missing, string(o.Header.Name))
			if slots.HasBytes(o.Header.Name, nil) {
				found[string(o.Header.Name)] = struct{}{}
			}
		})
		if err != nil {
			return nil, err
		}
		switch q.next = m.next; {
		case count > n.everything, q.next == "" && len(missing) > 0:
			return nil, nil
		case q.next == "":
			return found, nil
		}
		if err := check.Next(m.next); err != nil {
			return nil, &ProtocolError{What: err.Error()}
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

// refusesExactly reports whether the server rejects a list of a namespace at an exact version, as some aggregated
// servers do.
func refusesExactly(err error) bool {
	api, ok := errors.AsType[*APIError](err)
	if !ok || isExpired(err) {
		return false
	}
	switch api.Code {
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return false
	case http.StatusNotImplemented:
		return true
	}
	return api.Code < http.StatusInternalServerError
}
