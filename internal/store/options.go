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
	// Scheme has the Go types to decode protobuf. JSON is decoded without it.
	Scheme *runtime.Scheme
	// LabelSelector and FieldSelector are the selectors of the watch. Own writes that do not match are not laid over
	// the store.
	LabelSelector string
	FieldSelector string
	// Fields evaluates field selectors on own writes, by label. For custom resources the fields are in
	// spec.versions[].selectableFields of the definition, for example {"spec.color": FieldPath(".spec.color")}. The
	// fields of built-in kinds, metadata.name and metadata.namespace are known. For other fields the store asks the
	// server whether it selects an own write.
	Fields map[string]FieldValue
	// Shard is set for a store of the objects of some slots (source.Config.Shard), which may change. It names the
	// division, for messages and metrics; see source.Config.ShardName. Own writes outside of the slots are not laid
	// over the store. Such a store is never complete, and is not saved.
	Shard string
	// Unstructured is set if readers without a Go type use the store. An answer in protobuf is then laid over the store
	// only if its Go type has all its fields.
	Unstructured bool
	// Scope distinguishes this store from others of the same resource and selectors, in metrics and file names, by
	// namespaces and encoding.
	Scope string
	// Content restricts what is held of each object. If it is malformed (Content.Check), all objects are refused.
	Content Content
	// HotBytes bounds the decoded objects that are kept in memory while unused. 0 means 32 MiB; a negative value keeps
	// none.
	HotBytes int64
	// DetectMutation detects readers that change a shared decoded object, at a cost; see Store.Mutations.
	DetectMutation bool
	// OnMutation is called for each changed object. If nil, it is logged.
	OnMutation func(Key, error)
	// Probe returns the server's current version of the resource. Barrier uses it in a store that no source.Source
	// fills.
	Probe Probe
	// OverlayBound is how long an own write may be laid over the store before it is reported as overdue. 0 means one
	// minute.
	OverlayBound time.Duration
	Logger       *slog.Logger
}

// Probe returns the server's current resource version, by a consistent read. A store that a source fills needs none.
type Probe func(context.Context) (version string, err error)

// resource names the resource for messages.
func (o *Options) resource() string { return o.Resource.GroupResource().String() }

// distinction distinguishes the stores of one resource by selectors, content and scope.
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

// selectors describes the selectors of the watch for messages: "labels app=web, fields …", or "" if there are none.
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
