package client

import (
	"context"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// SubResource reads and writes a subresource of objects. It is safe for concurrent use.
//
// The answer to a write of the status is the whole object, which the client stores in the cache. A write of scale
// changes the object without returning it. Before such a write returns, the client waits briefly for the watch and then
// reads the object from the server.
type SubResource struct {
	c    *Client
	name string
}

// Status returns the writer of the status.
func (c *Client) Status() *SubResource { return c.SubResource("status") }

// SubResource returns the reader and writer of a subresource, such as scale, eviction or token.
func (c *Client) SubResource(name string) *SubResource { return &SubResource{c: c, name: name} }

// Body sets the body of a write of a subresource that is not the object itself, such as a Scale or an Eviction. The
// write also stores its answer in body. For a delete, body replaces the delete options, so no such option may be set.
func Body(body Object) WriteOption { return func(o *writeoption.Options) { o.Body = body } }

// Get reads the subresource of the object that obj names into another object. It always asks the server.
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

// Create posts to the subresource, usually with a [Body].
func (s *SubResource) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.create(ctx, s.name, obj, opts)
}

// Update replaces the subresource by that of obj or by the [Body].
func (s *SubResource) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.update(ctx, s.name, obj, opts)
}

// Patch patches the subresource.
func (s *SubResource) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return s.c.patch(ctx, s.name, obj, patch, opts)
}

// Apply makes a server-side apply to the subresource; see [Client.Apply].
func (s *SubResource) Apply(ctx context.Context, obj Applicable, opts ...WriteOption) error {
	return s.c.apply(ctx, s.name, obj, opts)
}

// Delete deletes the subresource.
func (s *SubResource) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.delete(ctx, s.name, obj, opts)
}
