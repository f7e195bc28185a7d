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

// ReadOption selects what a list returns. Without options it returns everything of the kind.
type ReadOption func(*readOptions)

type readOptions struct {
	namespace  string
	labels     labels.Selector
	fields     fields.Selector
	index      string
	indexValue string
	live       bool
	metadata   bool // no more of objects is wanted
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

// InNamespace lists one namespace.
func InNamespace(ns string) ReadOption { return func(o *readOptions) { o.namespace = ns } }

// Labels lists objects whose labels match a selector such as "app=web,tier!=db". A malformed one fails the list.
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

// Matching lists objects whose labels match. nil fails the list.
func Matching(sel labels.Selector) ReadOption {
	return func(o *readOptions) {
		if sel == nil {
			o.err = errors.New("malformed selector: it is nil")
			return
		}
		o.labels = sel
	}
}

// Fields lists objects whose fields match a selector such as "metadata.name=web". From the store only metadata.name and
// metadata.namespace can be answered; a list by any other field asks the server. See [Index] for more.
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

// Index lists the objects that an index of the store has under a value: one of those that every store has
// (cache.IndexOwner, cache.IndexLabel, cache.IndexNamespace), or one that was added with cache.IndexBy; the error of
// with another one it fails and says which there are. What is listed must be watched, and listed before, else the
// error matches ErrNotWatched, as it does with Live and with Fields that the store cannot evaluate: the server has no
// such index.
func Index(name, value string) ReadOption {
	return func(o *readOptions) { o.index, o.indexValue = name, value }
}

// OwnedBy lists the objects that have an owner reference to owner, as controller or otherwise: the children that
// reconcile.Owns watches, for example. They are found by an [Index], without looking at others, in the namespace of
// owner, if it has one. An owner without a uid fails the list with ErrNoUID.
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

// Live asks the server, though the kind be watched.
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

// fromStore says whether a store can evaluate the fields asked for.
func (o *readOptions) fromStore() bool {
	for _, r := range o.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return false
		}
	}
	return true
}

// Selection says which objects DeleteCollection deletes: of all namespaces if Namespace is empty, as far as the server
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

// DryRun has the server check the write and answer as if it had been made. Nothing is put over the store.
func DryRun() WriteOption { return func(o *writeOptions) { o.dryRun = true } }

// Force lets an apply take fields from other owners.
func Force() WriteOption { return func(o *writeOptions) { o.force = true } }

// Always sends the write though it would change nothing.
func Always() WriteOption { return func(o *writeOptions) { o.always = true } }

// Owner is the field manager of this write.
func Owner(name string) WriteOption { return func(o *writeOptions) { o.owner = name } }

// WithPolicy makes the write under another policy.
func WithPolicy(p call.Policy) WriteOption { return func(o *writeOptions) { o.policy = &p } }

// SameUID makes a delete hold for the incarnation that has the uid of the object; without one it fails with ErrNoUID.
func SameUID() WriteOption { return func(o *writeOptions) { o.uid = true } }

// SameVersion makes a write hold for the resourceVersion of the object only; without one it fails.
// Then nothing foreign can be in its answer, so that its event is known as an own echo whatever kind of patch it was;
// see [RawPatch].
func SameVersion() WriteOption { return func(o *writeOptions) { o.version = true } }

// Grace is the grace period of a delete, in seconds.
func Grace(seconds int64) WriteOption { return func(o *writeOptions) { o.grace = &seconds } }

// Propagation says what a delete does with dependents.
func Propagation(p metav1.DeletionPropagation) WriteOption {
	return func(o *writeOptions) { o.propagation = p }
}

// IgnoreNotFound makes a delete of what does not exist a success.
func IgnoreNotFound() WriteOption { return func(o *writeOptions) { o.notFoundOK = true } }

// Answered has a write show fn what the server has answered: JSON, in general the object as it is now. fn is not called
// where there was no answer, and must not keep the bytes.
func Answered(fn func(raw []byte)) WriteOption { return func(o *writeOptions) { o.answered = fn } }

// FromLive has Modify and ModifyStatus begin with what the server has, and not with what the cache shows: what the
// function then finds missing is missing.
func FromLive() WriteOption { return func(o *writeOptions) { o.live = true } }

// Absent says that the server has just been asked for the object, and has none: an apply, which would ask before it
// creates one, does not ask again.
func Absent() WriteOption { return func(o *writeOptions) { o.absent = true } }

// query holds the options of a write, which are read-only; those of a delete are in its body.
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
