package client

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// permission determines whether the requests of a client may be sent, and in whose name. It combines the binding of the
// client with that of each context.
type permission struct{ binding binding.Binding }

// fence returns the reason why no request may be sent in this context; nil if requests may be sent. For an ended
// context it returns only the cause, which does not match ErrFenced.
func (p *permission) fence(ctx context.Context) error {
	if err := flow.Fenced(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	for _, fence := range [...]func() error{binding.From(ctx).Fence, p.binding.Fence} {
		if fence == nil {
			continue
		}
		if err := fence(); err != nil {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// forWrite returns a policy that calls the fence before every try, because permission may end during a back-off.
func (p *permission) forWrite(ctx context.Context, policy call.Policy) call.Policy {
	policy.Fence = binding.Both(policy.Fence, func() error { return p.fence(ctx) })
	return p.forRead(ctx, policy)
}

// forRead returns a policy with the Waiting and Reported of the bindings. Reported prevents a second log line for one
// failure.
func (p *permission) forRead(ctx context.Context, policy call.Policy) call.Policy {
	if _, fiber := flow.FromContext(ctx); fiber || p.binding.Reported || binding.From(ctx).Reported {
		policy.Reported = true
	}
	if policy.Waiting == nil {
		policy.Waiting = p.binding.Waiting
	}
	if policy.Waiting == nil {
		policy.Waiting = binding.From(ctx).Waiting
	}
	return policy
}

// requireVersion reports whether writes must carry the version that they were computed from.
func (p *permission) requireVersion(ctx context.Context) bool {
	if p.binding.RequireVersion || binding.From(ctx).RequireVersion {
		return true
	}
	_, ok := flow.FromContext(ctx)
	return ok
}

// owner returns the attribution of writes in a context.
func (p *permission) owner(ctx context.Context) store.WriteContext {
	if p.binding.Write.Owner != "" {
		return p.binding.Write
	}
	return binding.From(ctx).Write
}

// server sends requests with the permission of one client.
type server struct {
	call   *call.Client
	policy *call.Policy // of reads, and of writes without a policy of their own
	*permission
}

// get requests an object.
func (s server) get(ctx context.Context, k *kind, key Key, accept string) (*call.Answer, error) {
	if err := s.fence(ctx); err != nil {
		return nil, k.fail("get", key, err)
	}
	if key.Name == "" || k.namespaced && key.Namespace == "" {
		return nil, k.fail("get", key, errNoName)
	}
	if !k.namespaced {
		key.Namespace = ""
	}
	return call.Do(ctx, s.call, call.Request{
		Verb: call.VerbGet, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: key.Namespace, Name: key.Name, Accept: accept,
	}, s.forRead(ctx, *s.policy))
}

// getInto requests an object and decodes it into obj.
func (s server) getInto(ctx context.Context, k *kind, key Key, obj Object) error {
	a, err := s.get(ctx, k, key, accept(obj, false))
	if err != nil {
		return err
	}
	return into(k, a, obj)
}

// list returns the request and the policy of a list, once the fence permits it. The caller requests the pages.
func (s server) list(ctx context.Context, k *kind, o *readOptions, accept string) (call.Request, call.Policy, error) {
	if err := s.fence(ctx); err != nil {
		return call.Request{}, call.Policy{}, k.fail("list", Key{Namespace: o.namespace}, err)
	}
	p := s.forRead(ctx, *s.policy)
	if p.PageSize == 0 {
		p.PageSize = call.CachePage
	}
	return call.Request{
		Resource: k.gvr, Kind: k.gvk.Kind, Namespace: o.namespace, Query: o.query(), Accept: accept,
	}, p, nil
}

// listInto requests a list page by page and decodes it into list.
func (s server) listInto(ctx context.Context, k *kind, o *readOptions, list ObjectList, items *items) error {
	req, p, err := s.list(ctx, k, o, accept(list, true))
	if err != nil {
		return err
	}
	for page, err := range call.Pages(ctx, s.call, req, p) {
		if err != nil {
			return err
		}
		if page.Restarted {
			items.clear()
		}
		for i := range page.Items {
			obj := items.next()
			if err := page.Decode(i, obj); err != nil {
				return err
			}
			name(k, obj)
			items.add(obj)
		}
		list.SetResourceVersion(page.Version)
	}
	items.done()
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
	return nil
}

// write sends a write.
func (s server) write(ctx context.Context, req call.Request, policy call.Policy) (*call.Answer, error) {
	return call.Do(ctx, s.call, req, s.forWrite(ctx, policy))
}

// afterEnd returns a context and a client without the fiber, to save the end of that fiber. The fiber may have been
// cancelled and is then fenced. Its key is still reserved at this time, so there is no other writer. The write still
// carries a resourceVersion.
func afterEnd(ctx context.Context, c *Client) (context.Context, *Client) {
	b := binding.From(ctx)
	b.RequireVersion, b.Reported = true, true
	return valueless{ctx}, c.Bound(b)
}

// valueless is a context without the values of its parent, including the fiber.
type valueless struct{ context.Context } //nolint:containedctx // it is a context

// Value implements [context.Context].
func (valueless) Value(any) any { return nil }
