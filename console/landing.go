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

// menu returns the pages that the reader may see. If the reader may see only the part of some namespaces, the link
// leads to a single namespace or to the choice.
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

// allowed reports whether an error does not deny access. A failed check counts as allowed.
func allowed(err error) bool { return err == nil || !refused(err) }

// everywhere checks a right in all served namespaces.
func (c *console) everywhere(ctx context.Context, rd *reader, in func(namespace string) httpapi.Access) error {
	for _, namespace := range c.served() {
		if err := rd.may(ctx, in(namespace)); err != nil {
			return err
		}
	}
	return nil
}

// namespaces returns the namespaces in which the reader has a right. If all namespaces are served, it checks that of
// the reader's service account and those with operations or Webhooks. It checks at most maxAsked.
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

// inUse returns the namespaces with operations or Webhooks.
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

// land redirects to the first page that the reader may see.
func (c *console) land(w http.ResponseWriter, r *http.Request) {
	rd, ok := c.enter(w, r)
	if !ok {
		return
	}
	pages := c.menu(httpapi.WithClient(r.Context(), r), rd, r.URL)
	http.Redirect(w, r, pages[0].Path, http.StatusSeeOther) // every reader may see the page Why
}

// choiceData lists the namespaces of a page that a reader may see.
type choiceData struct {
	Path       string
	Namespaces []link
}

// choose asks for the namespace to show.
func (c *console) choose(w http.ResponseWriter, r *http.Request, rd *reader, v view) {
	d := choiceData{Path: r.URL.Path}
	for _, namespace := range c.namespaces(httpapi.WithClient(r.Context(), r), rd, v.access) {
		q := r.URL.Query()
		q.Set("namespace", namespace)
		d.Namespaces = append(d.Namespaces, link{Title: namespace, Path: r.URL.Path + "?" + q.Encode()})
	}
	c.render(w, http.StatusForbidden, c.page(r, rd, view{name: "namespace", title: "Which namespace?"}, d))
}
