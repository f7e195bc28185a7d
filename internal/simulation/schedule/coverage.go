package schedule

import (
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
	lines map[string]func() bool // each with whether it holds
}

func newCoverage(gaps map[schema.GroupResource]string, resources func() []apiserver.Resource) *coverage {
	return &coverage{gaps: gaps, resources: resources, lines: map[string]func() bool{}}
}

// asked takes a request and the status code of its answer.
func (c *coverage) asked(r *http.Request, code int) {
	if c.gaps == nil {
		return
	}
	q, ok := parse(r)
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case ok && c.gaps[q.resource] != "":
		c.note("not modelled: "+q.resource.String()+" have "+c.gaps[q.resource], always)
	case code != http.StatusNotFound:
	case ok:
		c.note("not modelled: "+q.path()+" is not served", func() bool { return !c.serves(q) })
	case strings.HasPrefix(path, "api"), strings.HasPrefix(path, "openapi"): // discovery, or a schema
		c.note("not modelled: "+path+" is not served", func() bool { return !c.discovers(path) })
	}
}

// allowsPast notes that the subject has listed objects at any version.
func (c *coverage) allowsPast() {
	c.note("lists of the subject allow an old state: the class stale, which is played on request, shows it", always)
}

func always() bool { return true }

func (c *coverage) note(line string, holds func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[line] = holds
}

// serves reports whether the server serves the resource of a request.
func (c *coverage) serves(q request) bool {
	want := schema.GroupVersionResource{Group: q.resource.Group, Version: q.version, Resource: q.resource.Resource}
	return slices.ContainsFunc(c.resources(), func(res apiserver.Resource) bool {
		return res.GVR() == want && (q.subresource == "" || slices.Contains(res.Subresources, q.subresource))
	})
}

// discovers reports whether the server has the group or the version at a path such as apis/apps/v1.
func (c *coverage) discovers(path string) bool {
	return slices.ContainsFunc(c.resources(), func(res apiserver.Resource) bool {
		return path == "apis/"+res.Group || path == "apis/"+res.Group+"/"+res.Version
	})
}

// report returns the lines that hold at the end, sorted: the subject may have asked for a kind before it defined it.
func (c *coverage) report() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for line, holds := range c.lines {
		if holds() {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
