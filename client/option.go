package client

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
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
// cache.IndexLabel and cache.IndexNamespace; cache.IndexBy adds others. The error for an unknown name lists the known
// ones. The server has no such indexes. The error therefore matches ErrNotWatched if the objects are not watched or not
// listed yet. So does the error with Live, and with Fields that the store cannot evaluate.
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
type WriteOption func(*writeOptions)

type writeOptions struct {
	dryRun      bool
	force       bool
	always      bool
	owner       string
	policy      *call.Policy
	uid         bool
	version     bool
	grace       *int64
	propagation metav1.DeletionPropagation
	notFoundOK  bool
	live        bool
	absent      bool
	body        Object
	answered    func(raw []byte)
}

func (c *Client) resolveWrite(opts []WriteOption) writeOptions {
	o := writeOptions{owner: c.opt.FieldOwner}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.policy == nil {
		o.policy = &c.opt.Policy
	}
	return o
}

// DryRun makes the server validate the write and answer without making it. The store does not change.
func DryRun() WriteOption { return func(o *writeOptions) { o.dryRun = true } }

// Force lets an apply take over fields of other owners.
func Force() WriteOption { return func(o *writeOptions) { o.force = true } }

// Always sends the write even if it would change nothing.
func Always() WriteOption { return func(o *writeOptions) { o.always = true } }

// Owner sets the field manager of this write.
func Owner(name string) WriteOption { return func(o *writeOptions) { o.owner = name } }

// WithPolicy replaces the policy for this write.
func WithPolicy(p call.Policy) WriteOption { return func(o *writeOptions) { o.policy = &p } }

// SameUID restricts a delete to the incarnation that has the uid of the object. Without a uid the delete fails with
// ErrNoUID.
func SameUID() WriteOption { return func(o *writeOptions) { o.uid = true } }

// SameVersion restricts a write to the resourceVersion of the object. Without a resourceVersion the write fails. The
// answer then contains only this change, so its event is recognised as the writer's own with any kind of patch; see
// [RawPatch].
func SameVersion() WriteOption { return func(o *writeOptions) { o.version = true } }

// Grace sets the grace period of a delete, in seconds.
func Grace(seconds int64) WriteOption { return func(o *writeOptions) { o.grace = &seconds } }

// Propagation sets the treatment of dependents by a delete.
func Propagation(p metav1.DeletionPropagation) WriteOption {
	return func(o *writeOptions) { o.propagation = p }
}

// IgnoreNotFound makes the delete of an absent object succeed.
func IgnoreNotFound() WriteOption { return func(o *writeOptions) { o.notFoundOK = true } }

// Answered makes a write call fn with the server's answer: JSON, usually the object after the write. The write does not
// call fn if there was no answer. fn must not keep raw.
func Answered(fn func(raw []byte)) WriteOption { return func(o *writeOptions) { o.answered = fn } }

// FromLive makes Modify and ModifyStatus start from the server's state instead of the cache. The function can then rely
// on the absence of a field.
func FromLive() WriteOption { return func(o *writeOptions) { o.live = true } }

// Absent states that the server has just answered that the object does not exist. An apply then creates it without
// asking again.
func Absent() WriteOption { return func(o *writeOptions) { o.absent = true } }

// query returns the query parameters of a write, which are read-only. A delete has its options in the body.
func (c *Client) query(o *writeOptions, verb call.Verb) url.Values {
	switch {
	case verb == call.VerbDelete:
		return nil
	case !o.dryRun && !o.force && o.owner == c.opt.FieldOwner:
		return c.plain
	}
	q := url.Values{}
	if o.dryRun {
		q.Set("dryRun", metav1.DryRunAll)
	}
	q.Set("fieldManager", strings.TrimSpace(o.owner))
	if verb == call.VerbApply && o.force {
		q.Set("force", "true")
	}
	return q
}
