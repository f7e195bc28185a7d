package client

import (
	"errors"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// ReadOption restricts a list. Without options, a list returns all objects of the kind.
type ReadOption func(*readOptions)

type readOptions struct {
	namespace  string
	labels     labels.Selector
	fields     fields.Selector
	index      string
	indexValue string
	live       bool
	metadata   bool // only metadata is requested
	err        error
}

func resolveRead(opts []ReadOption) readOptions {
	o := readOptions{labels: labels.Everything(), fields: fields.Everything()}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// InNamespace lists the objects of one namespace.
func InNamespace(ns string) ReadOption { return func(o *readOptions) { o.namespace = ns } }

// Labels lists objects whose labels match a selector such as "app=web,tier!=db". A malformed selector fails the list.
func Labels(selector string) ReadOption {
	return func(o *readOptions) {
		sel, err := labels.Parse(selector)
		if err != nil {
			o.err = fmt.Errorf("malformed selector: %w", err)
			return
		}
		o.labels = sel
	}
}

// Matching lists objects whose labels match sel. A nil selector fails the list.
func Matching(sel labels.Selector) ReadOption {
	return func(o *readOptions) {
		if sel == nil {
			o.err = errors.New("malformed selector: it is nil")
			return
		}
		o.labels = sel
	}
}

// Fields lists objects whose fields match a selector such as "metadata.name=web". The store evaluates only
// metadata.name and metadata.namespace; a list with any other field asks the server. See [Index] for lists by other
// fields.
func Fields(selector string) ReadOption {
	return func(o *readOptions) {
		sel, err := fields.ParseSelector(selector)
		if err != nil {
			o.err = fmt.Errorf("malformed selector: %w", err)
			return
		}
		o.fields = sel
	}
}

// Index lists the objects that an index of the store holds under value. Every store has cache.IndexOwner,
// cache.IndexLabel and cache.IndexNamespace. fairlead.IndexField declares others, and cache.IndexBy adds one to a
// store. The error for an unknown name lists the known ones. The server has no such indexes. The error therefore
// matches ErrNotWatched if the objects are not watched or not listed yet. So does the error with Live, and with Fields
// that the store cannot evaluate.
//
// Without InNamespace, the list covers the namespaces of the program: those of
// fairlead.WithSource(cache.Namespaces(…)), else all. InNamespace with a namespace that the program does not watch is
// an error.
func Index(name, value string) ReadOption {
	return func(o *readOptions) { o.index, o.indexValue = name, value }
}

// OwnedBy lists the objects that have an owner reference to owner, as controller or otherwise; for example the children
// that reconcile.Owns watches. It uses an [Index] and does not scan other objects. If owner has a namespace, the list
// is restricted to it. An owner without a uid fails the list with ErrNoUID.
//
//	for pod, err := range client.List[corev1.Pod](ctx, c, client.OwnedBy(domain)) { … }
func OwnedBy(owner metav1.Object) ReadOption {
	return func(o *readOptions) {
		if isNil(owner) {
			o.err = fmt.Errorf("cannot tell what it owns: %w", ErrNil)
			return
		}
		if owner.GetUID() == "" {
			o.err = fmt.Errorf("cannot tell what %s owns: %w", KeyOf(owner), ErrNoUID)
		}
		if o.namespace == "" {
			o.namespace = owner.GetNamespace()
		}
		o.index, o.indexValue = cache.IndexOwner, string(owner.GetUID())
	}
}

// Live asks the server even if the kind is watched.
func Live() ReadOption { return func(o *readOptions) { o.live = true } }

func (o *readOptions) query() url.Values {
	q := url.Values{}
	if !o.labels.Empty() {
		q.Set("labelSelector", o.labels.String())
	}
	if !o.fields.Empty() {
		q.Set("fieldSelector", o.fields.String())
	}
	return q
}

// fromStore reports whether a store can evaluate the requested fields.
func (o *readOptions) fromStore() bool {
	for _, r := range o.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return false
		}
	}
	return true
}

// Selection selects the objects that DeleteCollection deletes. An empty Namespace selects all namespaces, if the server
// allows that.
type Selection struct {
	Namespace     string
	Labels, Field string // selectors
}

// WriteOption tunes one write.
type WriteOption func(*writeoption.Options)

// DryRun makes the server validate the write and answer without making it. The store does not change.
func DryRun() WriteOption { return func(o *writeoption.Options) { o.DryRun = true } }

// Force lets an apply take over fields of other owners.
func Force() WriteOption { return func(o *writeoption.Options) { o.Force = true } }

// Always sends the write even if it would change nothing.
func Always() WriteOption { return func(o *writeoption.Options) { o.Always = true } }

// Owner sets the field manager of this write.
func Owner(name string) WriteOption { return func(o *writeoption.Options) { o.Owner = name } }

// WithPolicy replaces the policy for this write.
func WithPolicy(p call.Policy) WriteOption { return func(o *writeoption.Options) { o.Policy = &p } }

// SameUID restricts a delete to the incarnation that has the uid of the object. Without a uid the delete fails with
// ErrNoUID.
func SameUID() WriteOption { return func(o *writeoption.Options) { o.SameUID = true } }

// SameVersion restricts a write to the resourceVersion of the object. Without a resourceVersion the write fails. The
// answer then contains only this change, so its event is recognised as the writer's own with any kind of patch; see
// [RawPatch].
func SameVersion() WriteOption { return func(o *writeoption.Options) { o.SameVersion = true } }

// Grace sets the grace period of a delete, in seconds.
func Grace(seconds int64) WriteOption { return func(o *writeoption.Options) { o.Grace = &seconds } }

// Propagation sets the treatment of dependents by a delete.
func Propagation(p metav1.DeletionPropagation) WriteOption {
	return func(o *writeoption.Options) { o.Propagation = p }
}

// IgnoreNotFound makes the delete of an absent object succeed.
func IgnoreNotFound() WriteOption { return func(o *writeoption.Options) { o.IgnoreNotFound = true } }
