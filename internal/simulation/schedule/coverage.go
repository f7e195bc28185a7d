package schedule

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// coverage collects what subject and workload ask of a model API server that it does not have, and whether the subject
// needs a class of faults that is not played by default. It is safe for concurrent use.
type coverage struct {
	gaps      map[schema.GroupResource]string // see Options
	resources func() []apiserver.Resource

	mu    sync.Mutex
	lines map[string]bool
}

// asked takes a request and the status code of its answer.
func (c *coverage) asked(r *http.Request, code int) {
	if c.gaps == nil {
		return
	}
	q, ok := parse(r)
	line := ""
	switch path := strings.Trim(r.URL.Path, "/"); {
	case ok && c.gaps[q.resource] != "":
		line = q.resource.String() + " have " + c.gaps[q.resource]
	case code != http.StatusNotFound:
	case ok:
		line = c.unserved(q)
	case strings.HasPrefix(path, "api"): // discovery of a group or a version
		line = path + " is not served"
	}
	if line != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines["not modelled: "+line] = true
	}
}

// allowsPast notes that the subject has listed objects at any version.
func (c *coverage) allowsPast() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines["lists of the subject allow an old state: the class stale, which is played on request, shows it"] = true
}

// unserved describes the resource of a request if the server does not serve it.
func (c *coverage) unserved(q request) string {
	want := schema.GroupVersionResource{Group: q.resource.Group, Version: q.version, Resource: q.resource.Resource}
	if slices.ContainsFunc(c.resources(), func(res apiserver.Resource) bool {
		return res.GVR() == want && (q.subresource == "" || slices.Contains(res.Subresources, q.subresource))
	}) {
		return ""
	}
	name := want.GroupVersion().String() + "/" + want.Resource
	if q.subresource != "" {
		name += "/" + q.subresource
	}
	return name + " is not served"
}

// report returns the lines, sorted.
func (c *coverage) report() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.lines))
}
