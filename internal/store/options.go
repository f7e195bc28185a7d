package store

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options configure a Store. The zero value works for reads of records; typed views need a Scheme or fall back to JSON.
type Options struct {
	Resource   schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	// Scheme decodes typed views of protobuf; JSON is decoded without it.
	Scheme *runtime.Scheme
	// LabelSelector and FieldSelector are those of the watch; own writes that do not match are not laid over the store.
	LabelSelector string
	FieldSelector string
	// Fields says how to evaluate field selectors on own writes, by label: those of custom resources are in
	// spec.versions[].selectableFields of their definition, as {"spec.color": FieldPath(".spec.color")}. Those of built-in
	// kinds, and metadata.name and metadata.namespace, are known. An own write that only the server can tell whether it
	// is selected is settled by asking.
	Fields map[string]FieldValue
	// Shard says that the store is filled with the objects of some slots (source.Config.Shard), which may change: it is
	// never complete. It names the division, for people and metrics: see source.Config.ShardName. Own writes outside of
	// the slots are not laid over the store. Such a store is not saved.
	Shard string
	// Unstructured says that readers without a Go type use the store: what was answered as protobuf is laid over it only
	// if its Go type has all that is in it.
	Unstructured bool
	// Scope tells this store from others of the same resource and selectors, in metrics: the namespaces, the encoding.
	Scope string
	// Content says what of each object is held. With one that is malformed (Content.Check) nothing is held: all objects
	// are refused.
	Content Content
	// HotBytes bounds the decoded objects that survive garbage collection without being used; 0: 32 MiB, negative:
	// none.
	HotBytes int64
	// DetectMutation checks, at a cost, that nobody changes a shared decoded object; see Store.Mutations.
	DetectMutation bool
	// OnMutation is called for each one that is found; nil: it is logged.
	OnMutation func(Key, error)
	// Probe returns the server's current version of the resource, for Barrier in a store that is not filled by a
	// source.Source.
	Probe Probe
	// OverlayBound is for how long an own write may be laid over before that is reported; 0: one minute.
	OverlayBound time.Duration
	Logger       *slog.Logger
}

// Probe returns the server's current resource version, by a consistent read. A store that a source fills needs none.
type Probe func(context.Context) (version string, err error)

// distinction tells the stores of one resource apart: their selectors, what they hold, and their scope.
func (o *Options) distinction() string {
	parts := []string{o.LabelSelector, o.FieldSelector, o.shardName(), o.Content.name(), o.Scope}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

func (o *Options) shardName() string {
	if o.Shard == "" {
		return ""
	}
	return "shard " + o.Shard
}

// selectors names the selectors of the watch for messages: "labels app=web, fields …"; "" if there are none.
func (o *Options) selectors() string {
	var with []string
	for _, sel := range []struct{ what, selector string }{
		{"labels", o.LabelSelector}, {"fields", o.FieldSelector}, {"the slots of", o.Shard},
	} {
		if sel.selector != "" {
			with = append(with, sel.what+" "+sel.selector)
		}
	}
	return strings.Join(with, ", ")
}
