package store

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cacheKey is what makes two requests the same.
type cacheKey struct {
	resource            schema.GroupVersionResource
	namespaces          string
	label, field, shard string
	json                bool
	metadata            bool   // and then json says nothing
	content             string // Content.name
	rank                string // Content.rank
	transform           int    // which one; 0: none, ofKind: that of the CacheOptions
	moved               int    // not 0: it tells an entry whose namespaces were changed to those of another one
}

// ofKind is the transform that all requests of a kind share.
const ofKind = -1

// scope tells apart the stores of one resource and selectors.
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

// compare puts those that hold more before those that hold less: selectors, then what of each object, then namespaces.
func (k cacheKey) compare(o cacheKey) int {
	text := func(k cacheKey) []string {
		return []string{k.label + k.field + k.shard, k.rank, k.namespaces, k.content, k.scope(), k.label, k.field}
	}
	return slices.Compare(text(k), text(o))
}
