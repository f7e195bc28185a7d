package store

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cacheKey identifies a store: requests with equal keys share it.
type cacheKey struct {
	resource            schema.GroupVersionResource
	namespaces          string
	label, field, shard string
	json                bool
	metadata            bool   // json has no meaning then
	content             string // Content.name
	rank                string // Content.rank
	transform           int    // number of the request's own Transform or Keep; 0: none, ofKind: that of the CacheOptions
	moved               int    // distinguishes entries that SetNamespaces has given equal namespaces; otherwise 0
}

// ofKind is the transform of CacheOptions.Contents, which all requests of a kind share.
const ofKind = -1

// scope distinguishes the stores of one resource and selector; see Options.Scope.
func (k cacheKey) scope() string {
	scope := k.namespaces
	if !k.json && !k.metadata {
		scope += " protobuf"
	}
	if k.transform > 0 {
		scope += fmt.Sprintf(" transform %d", k.transform)
	}
	if k.moved > 0 {
		scope += fmt.Sprintf(" (%d)", k.moved+1)
	}
	return strings.TrimSpace(scope)
}

// manyTransforms bounds the numbers of requests with a Transform or Keep for which scopes returns a scope.
const manyTransforms = 100

// scopes are the scopes of the stores of the same objects in all encodings, also in earlier runs. The number of a
// request depends on the order of requests, so an earlier run may have used another one.
func (k cacheKey) scopes() (all []string) {
	for k.transform = range manyTransforms {
		for _, form := range []struct{ json, metadata bool }{{true, false}, {false, false}, {true, true}} {
			k.json, k.metadata = form.json, form.metadata
			all = append(all, k.scope())
		}
	}
	return all
}

// compare orders keys of stores that hold more first: by selectors, then content, then namespaces.
func (k cacheKey) compare(o cacheKey) int {
	text := func(k cacheKey) []string {
		return []string{k.label + k.field + k.shard, k.rank, k.namespaces, k.content, k.scope(), k.label, k.field}
	}
	return slices.Compare(text(k), text(o))
}
