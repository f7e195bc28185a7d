package console

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/why"
)

// explainer answers why an object makes no progress, as far as a reader may know.
type explainer struct {
	explain  func(ctx context.Context, of why.Object) (why.Answer, error)
	resource pages.ResourceOf
}

// answer returns why an object makes no progress. A cause about an object that the reader may not get is replaced by a
// notice. It returns ErrNothing for an object that is missing or hidden.
func (e *explainer) answer(ctx context.Context, rd *pages.Reader, of why.Object) (why.Answer, error) {
	of, err := e.mayGet(ctx, rd, of)
	if err != nil {
		return why.Answer{}, err
	}
	answer, err := e.explain(ctx, pages.Exact(of))
	if errors.Is(err, why.ErrNotFound) {
		return answer, pages.ErrNothing
	}
	if err != nil {
		return answer, err
	}
	var causes []why.Cause
	visible := math.MaxInt // maximum depth; deeper causes may explain a hidden one
	for _, cause := range answer.Causes {
		hidden := cause.Depth > visible
		if cause.About != nil && !hidden {
			_, err := e.mayGet(ctx, rd, e.meant(*cause.About))
			if hidden = errors.Is(err, pages.ErrNothing); err != nil && !hidden {
				return answer, err
			}
		}
		if hidden {
			visible = min(visible, cause.Depth)
			cause = why.Cause{
				Type: why.Hidden, Message: "There is a cause about an object that you may not see.",
				Advice: "Ask a user with the right to see it.", Progress: cause.Progress,
			}
		}
		causes = append(causes, cause)
	}
	return why.NewAnswer(of, causes), nil
}

// mayGet checks the right to get an object, and returns it with its real kind. It returns ErrNothing for an unknown
// kind and for a missing right alike.
func (e *explainer) mayGet(ctx context.Context, rd *pages.Reader, of why.Object) (why.Object, error) {
	resource, real, err := e.resource(of)
	if err != nil {
		return of, pages.ErrNothing
	}
	err = rd.May(ctx, access.Access{
		Verb: "get", Group: resource.Group, Resource: resource.Resource, Namespace: real.Namespace, Name: real.Name,
	})
	if pages.Refused(err) && !pages.Unknown(err) {
		return of, pages.ErrNothing
	}
	return real, err
}

// meant is Exact for an object named by a program, which may have omitted the group.
func (e *explainer) meant(of why.Object) why.Object {
	core := pages.Exact(of)
	if _, _, err := e.resource(core); err != nil {
		return of
	}
	return core
}

// whyPage is the page Why, and its JSON.
type whyPage struct {
	answer  func(ctx context.Context, rd *pages.Reader, of why.Object) (why.Answer, error)
	objects []*pages.Objects
}

// whyData is the data of the page.
type whyData struct {
	Asked              why.Object
	KindHint, NameHint string
	Answer             *why.Answer // nil: no object was named, or none was found
	Link               pages.Link  // the page of the object; empty: it has none
	Error              string
}

func (p *whyPage) page() pages.Page {
	return pages.Page{Name: "why", Title: "Why?", Menu: true, Allow: pages.Anybody, Data: p.data}
}

// asked returns the requested object: kind, namespace and name.
func (p *whyPage) asked(r *http.Request) (of why.Object) {
	q := r.URL.Query()
	of = why.Object{
		Kind: strings.TrimSpace(q.Get("kind")), Namespace: strings.TrimSpace(q.Get("namespace")),
		Name: strings.TrimSpace(q.Get("name")), Group: strings.TrimSpace(q.Get("group")),
	}
	for _, o := range p.objects {
		of.Name = o.Rename(of.Name)
	}
	return of
}

// api answers GET /api/why.
func (p *whyPage) api(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	of := p.asked(r)
	if of.Kind == "" || of.Name == "" {
		return nil, &access.Problem{
			Status: http.StatusBadRequest, Title: http.StatusText(http.StatusBadRequest),
			Detail: "name the object: kind, namespace and name",
		}
	}
	return p.answer(ctx, rd, of)
}

func (p *whyPage) data(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	of := p.asked(r)
	d := whyData{Asked: of, KindHint: "Deployment, pod, …"}
	d.Asked.Name = r.URL.Query().Get("name")
	for _, o := range p.objects {
		d.KindHint, d.NameHint = o.KindHint, o.NameHint
	}
	if d.Asked.Kind == "" && d.Asked.Name == "" {
		// The empty form requires any valid token.
		if err := rd.May(ctx, access.Access{Verb: "get", Path: "/debug/why"}); pages.Unknown(err) {
			return nil, err
		}
		return d, nil
	}
	answer, err := p.answer(ctx, rd, of)
	switch {
	case err == nil:
		d.Answer = &answer
		for _, o := range p.objects {
			if path, title := o.Link(why.Object{Kind: answer.Kind, Namespace: answer.Namespace, Name: answer.Name}); path != "" {
				d.Link = pages.Link{Path: path, Title: title}
			}
		}
	case pages.Unknown(err):
		return nil, err
	case errors.Is(err, pages.ErrNothing):
		d.Error = "There is no such object, or you may not get it."
	default:
		d.Error = err.Error()
	}
	return d, nil
}
