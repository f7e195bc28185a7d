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

// Body sets the body of a write of a subresource that is not the object itself, such as a Scale or an Eviction. The
// write also stores its answer in body. For a delete, body replaces the delete options, so no such option may be set.
func Body(body Object) WriteOption { return func(o *writeoption.Options) { o.Body = body } }

// Get reads the subresource of the object that obj names into another object. It always asks the server.
func (s *SubResource) Get(ctx context.Context, obj, into Object) error {
	return s.c.reader().subresource(ctx, s.name, obj, into)
}

func (r reader) subresource(ctx context.Context, sub string, obj, into Object) error {
	k, err := r.kinds.of(obj)
	if err != nil {
		return err
	}
	if err := r.server.fence(ctx); err != nil {
		return k.fail("get "+sub+" of", KeyOf(obj), err)
	}
	a, err := call.Do(ctx, r.server.call, call.Request{
		Verb: call.VerbGet, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Subresource: sub,
	}, r.server.forRead(ctx, *r.server.policy))
	if err != nil {
		return err
	}
	clearObject(into)
	return a.Into(into)
}

// Create posts to the subresource, usually with a [Body].
func (s *SubResource) Create(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.writer().create(ctx, s.name, obj, opts)
}

// Update replaces the subresource by that of obj or by the [Body].
func (s *SubResource) Update(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.writer().update(ctx, s.name, obj, opts)
}

// Patch patches the subresource.
func (s *SubResource) Patch(ctx context.Context, obj Object, patch Patch, opts ...WriteOption) error {
	return s.c.writer().patch(ctx, s.name, obj, patch, opts)
}

// Apply makes a server-side apply to the subresource; see [Client.Apply].
func (s *SubResource) Apply(ctx context.Context, obj Applicable, opts ...WriteOption) error {
	return s.c.writer().apply(ctx, s.name, obj, opts)
}

// Delete deletes the subresource.
func (s *SubResource) Delete(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.writer().delete(ctx, s.name, obj, opts)
}

// Replace is [Client.Replace] for the subresource. For the status, no other field of obj may have changed, because the
// server ignores it.
func (s *SubResource) Replace(ctx context.Context, obj Object, opts ...WriteOption) error {
	return s.c.writer().replace(ctx, s.name, obj, opts)
}

// Status returns the writer of the status.
func (c *Client) Status() *SubResource { return c.SubResource("status") }

// SubResource returns the reader and writer of a subresource, such as scale, eviction or token.
func (c *Client) SubResource(name string) *SubResource { return &SubResource{c: c, name: name} }
