package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// menu returns the pages that a reader may see. A page of which the reader may see the part of some namespaces only leads
// to that namespace, if there is one, or to the choice.
func (c *console) menu(ctx context.Context, rd *reader, at *url.URL) (all []link) {
	for _, v := range c.views() {
		path := "/console/" + v.name
		switch {
		case v.access != nil:
			if allowed(c.everywhere(ctx, rd, v.access)) {
				break
			}
			in := c.namespaces(ctx, rd, v.access)
			if here := at.Query().Get("namespace"); slices.Contains(in, here) {
				in = []string{here}
			}
			if len(in) == 0 {
				continue
			}
			if len(in) == 1 {
				path += "?" + url.Values{"namespace": in}.Encode()
			}
		case v.allow == nil && !allowed(rd.mayRun(ctx, v.name)):
			continue
		}
		all = append(all, link{Name: v.name, Title: v.title, Path: path})
	}
	return all
}

// allowed reports whether an error does not refuse an access. One that cannot be decided now may be tried.
func allowed(err error) bool { return err == nil || !refused(err) }

// everywhere wants a right in all namespaces that are served.
func (c *console) everywhere(ctx context.Context, rd *reader, in func(namespace string) httpapi.Access) error {
	for _, namespace := range c.served() {
		if err := rd.may(ctx, in(namespace)); err != nil {
			return err
		}
	}
	return nil
}

// namespaces returns those in which a reader has a right: of those that are served or, if all are, of the one of the
// reader's service account and of those that have operations or Webhooks. No more than maxAsked are asked about.
func (c *console) namespaces(ctx context.Context, rd *reader, in func(namespace string) httpapi.Access) (all []string) {
	candidates := c.Operations.Namespaces
	if len(candidates) == 0 {
		candidates = shared(c.shown, "namespaces", c.inUse)
	}
	candidates = slices.Clone(candidates)
	if own, ok := strings.CutPrefix(rd.name, "system:serviceaccount:"); ok {
		if own, _, ok = strings.Cut(own, ":"); ok && c.serves(own) {
			candidates = slices.Insert(candidates, 0, own)
		}
	}
	for i, namespace := range candidates[:min(len(candidates), maxAsked)] {
		if !slices.Contains(candidates[:i], namespace) && rd.may(ctx, in(namespace)) == nil {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return all
}

// inUse returns the namespaces that have operations or Webhooks.
func (c *console) inUse() []string {
	names := map[string]bool{}
	for k := range c.Operations.Operations.Snapshot().All() {
		names[k.Key().Namespace] = true
	}
	for k := range c.Operations.Webhooks.Snapshot().All() {
		names[k.Key().Namespace] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// land leads to the first page that the reader may see.
func (c *console) land(w http.ResponseWriter, r *http.Request) {
	rd, ok := c.enter(w, r)
	if !ok {
		return
	}
	pages := c.menu(httpapi.WithClient(r.Context(), r), rd, r.URL)
	http.Redirect(w, r, pages[0].Path, http.StatusSeeOther) // everybody may see Why
}

// choiceData are the namespaces of a page that a reader may see.
type choiceData struct {
	Path       string
	Namespaces []link
}

// choose asks which namespace is to be shown.
func (c *console) choose(w http.ResponseWriter, r *http.Request, rd *reader, v view) {
	d := choiceData{Path: r.URL.Path}
	for _, namespace := range c.namespaces(httpapi.WithClient(r.Context(), r), rd, v.access) {
		q := r.URL.Query()
		q.Set("namespace", namespace)
		d.Namespaces = append(d.Namespaces, link{Title: namespace, Path: r.URL.Path + "?" + q.Encode()})
	}
	c.render(w, http.StatusForbidden, c.page(r, rd, view{name: "namespace", title: "Which namespace?"}, d))
}
