package client

import (
	"context"

	"github.com/fairlead-io/fairlead/call"
)

// SubResource reads and writes a subresource of objects. It is safe for concurrent use.
//
// The answer to a write of the status is the whole object and is laid over the store. A scale changes the object
// without showing it: what it has made of it is read, from the watch if that brings it at once, before the write
// returns.
type SubResource struct {
	c    *Client
	name string
}

// Status returns the writer of the status.
func (c *Client) Status() *SubResource { return c.SubResource("status") }

// SubResource returns the reader and writer of a subresource, such as scale, eviction or token.
func (c *Client) SubResource(name string) *SubResource { return &SubResource{c: c, name: name} }

// Body gives the body of a write of a subresource that is not the object itself, such as a Scale or an Eviction. The
// answer goes into it, too. In a delete it stands in the place of the options, of which none may be given besides.
func Body(body Object) WriteOption { return func(o *writeOptions) { o.body = body } }

// Get reads the subresource of the object that obj names into another object, always from the server.
func (s *SubResource) Get(ctx context.Context, obj, into Object) error {
	k, err := s.c.kindOf(obj)
	if err != nil {
		return err
	}
	if err := s.c.fence(ctx); err != nil {
		return k.fail("get "+s.name+" of", KeyOf(obj), err)
	}
	a, err := call.Do(ctx, s.c.call, call.Request{
		Verb: call.VerbGet, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Subresource: s.name,
	}, s.c.shown(ctx, s.c.opt.Policy))
	if err != nil {
		return err
	}
	clearObject(into)
	return a.Into(into)
}

// Create posts to the subresource, usually a [Body].
func (s *SubResource) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.create(ctx, s.name, obj, opts)
}

// Update replaces the subresource by that of obj, or by the [Body].
func (s *SubResource) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.update(ctx, s.name, obj, opts)
}

// Patch patches the subresource.
func (s *SubResource) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return s.c.patch(ctx, s.name, obj, patch, opts)
}

// Apply is a server-side apply to the subresource; see [Client.Apply].
func (s *SubResource) Apply(ctx context.Context, obj Applicable, opts ...WriteOption) error {
	return s.c.apply(ctx, s.name, obj, opts)
}

// Delete deletes the subresource.
func (s *SubResource) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.delete(ctx, s.name, obj, opts)
}
