package console

import (
	"context"
	"time"

	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// sight decides which objects a reader may see on a page about the whole program: those that the reader may get. It
// checks the broadest right first, so that a reader with full access costs one review per kind.
type sight struct {
	c     *console
	rd    *reader
	known map[why.Object]bool
	asked int
}

const (
	// maxAsked bounds the reviews for one page. Objects beyond it are not shown.
	maxAsked = 64
	// keepRefused is how long a refusal is cached for a page with live updates.
	keepRefused = 30 * time.Second
)

func (c *console) sight(rd *reader) *sight { return &sight{c: c, rd: rd, known: map[why.Object]bool{}} }

// may reports whether the reader may get an object. An error means that the check failed or the session is over.
func (s *sight) may(ctx context.Context, of why.Object) (bool, error) {
	if s.rd.open {
		return true, nil
	}
	if of.Kind == "" { // not an object of the API server
		return false, nil
	}
	for _, part := range []why.Object{
		{Group: of.Group, Kind: of.Kind}, {Group: of.Group, Kind: of.Kind, Namespace: of.Namespace}, of,
	} {
		may, known := s.known[part]
		if !known {
			var err error
			if may, err = s.ask(ctx, part); err != nil {
				return false, err
			}
			s.known[part] = may
		}
		if may {
			return true, nil
		}
	}
	return false, nil
}

func (s *sight) ask(ctx context.Context, of why.Object) (bool, error) {
	now := s.c.now()
	if until, ok := s.rd.refused[of]; ok && now.Before(until) {
		return false, nil
	}
	if s.asked++; s.asked > maxAsked {
		return false, nil
	}
	resource, real, err := s.c.Runtime.ResourceOf(exact(of))
	if err != nil {
		return false, nil //nolint:nilerr // an unknown kind is hidden
	}
	err = s.rd.may(ctx, httpapi.Access{
		Verb: "get", Group: resource.Group, Resource: resource.Resource, Namespace: real.Namespace, Name: of.Name,
	})
	if refused(err) && !unknown(err) {
		if s.rd.refused == nil || len(s.rd.refused) > 4*maxAsked {
			s.rd.refused = map[why.Object]time.Time{}
		}
		s.rd.refused[of] = now.Add(keepRefused)
		return false, nil
	}
	return err == nil, err
}
