package console

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strings"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// explain returns why an object makes no progress. A cause about an object that the reader may not get is replaced by a
// notice.
func (c *console) explain(ctx context.Context, rd *reader, of why.Object) (why.Answer, error) {
	of, err := c.mayKnow(ctx, rd, of)
	if err != nil {
		return why.Answer{}, err
	}
	answer, err := c.Runtime.Why(ctx, exact(of))
	if errors.Is(err, why.ErrNotFound) {
		return answer, errNothing
	}
	if err != nil {
		return answer, err
	}
	var causes []why.Cause
	visible := math.MaxInt // maximum depth; deeper causes may explain a hidden one
	for _, cause := range answer.Causes {
		hidden := cause.Depth > visible
		if cause.About != nil && !hidden {
			_, err := c.mayKnow(ctx, rd, c.meant(*cause.About))
			if hidden = errors.Is(err, errNothing); err != nil && !hidden {
				return answer, err
			}
		}
		if hidden {
			visible = min(visible, cause.Depth)
			cause = why.Cause{
				Type: why.Hidden, Message: "There is a cause about an object that you may not see.",
				Advice: "Ask somebody who may.", Progress: cause.Progress,
			}
		}
		causes = append(causes, cause)
	}
	answer = why.NewAnswer(of, causes)
	return answer, nil
}

// mayKnow checks the right to get an object, and returns it with its real kind. It returns errNothing for an unknown
// kind and for a missing right alike.
func (c *console) mayKnow(ctx context.Context, rd *reader, of why.Object) (why.Object, error) {
	resource, real, err := c.Runtime.ResourceOf(of)
	if err != nil {
		return of, errNothing
	}
	err = rd.may(ctx, httpapi.Access{
		Verb: "get", Group: resource.Group, Resource: resource.Resource, Namespace: real.Namespace, Name: real.Name,
	})
	if refused(err) && !unknown(err) {
		return of, errNothing
	}
	return real, err
}

// exact qualifies the kind of an object without a group as a core kind. Otherwise a kind of the same name in another
// group could match.
func exact(of why.Object) why.Object {
	if of.Group == "" && !strings.Contains(of.Kind, ".") {
		of.Kind += ".v1"
	}
	return of
}

// meant is exact for an object named by a program, which may have omitted the group.
func (c *console) meant(of why.Object) why.Object {
	core := exact(of)
	if _, _, err := c.Runtime.ResourceOf(core); err != nil {
		return of
	}
	return core
}

// asked returns the requested object: kind, namespace and name. An operation may be named by its resource, as TYPE/ID.
func asked(r *http.Request) (of why.Object) {
	q := r.URL.Query()
	of = why.Object{
		Kind: strings.TrimSpace(q.Get("kind")), Namespace: strings.TrimSpace(q.Get("namespace")),
		Name: strings.TrimSpace(q.Get("name")), Group: strings.TrimSpace(q.Get("group")),
	}
	if kind, ids, ok := strings.Cut(of.Name, "/"); ok {
		of.Name = v1alpha1.OperationName(kind, ids)
	}
	return of
}

// whyAPI answers GET /api/why.
func (c *console) whyAPI(w http.ResponseWriter, r *http.Request) {
	rd, err := c.read(r)
	if err != nil && !nobody(err) {
		problem(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if err != nil {
		problem(w, http.StatusUnauthorized, "send the header Authorization: Bearer with a token of this cluster")
		return
	}
	of := asked(r)
	if of.Kind == "" || of.Name == "" {
		problem(w, http.StatusBadRequest, "name the object: kind, namespace and name")
		return
	}
	answer, err := c.explain(httpapi.WithClient(r.Context(), r), rd, of)
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, "application/json", answer)
	case unknown(err):
		problem(w, http.StatusUnauthorized, "the token is not valid in this cluster, or not meant for this program")
	case errors.Is(err, errNothing):
		problem(w, http.StatusNotFound, "the object does not exist, or you may not get it")
	default:
		problem(w, http.StatusServiceUnavailable, err.Error())
	}
}

func problem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, "application/problem+json", httpapi.Problem{
		Status: status, Title: http.StatusText(status), Detail: detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it fails only if the client has disconnected
}

// whyData is the data of the page Why.
type whyData struct {
	Asked  why.Object
	Answer *why.Answer // nil: no object was named, or none was found
	Error  string
}

func (c *console) whyPage(ctx context.Context, rd *reader, r *http.Request) (any, error) {
	d := whyData{Asked: asked(r)}
	d.Asked.Name = r.URL.Query().Get("name")
	if d.Asked.Kind == "" && d.Asked.Name == "" {
		// The empty form requires any valid token.
		if err := rd.may(ctx, httpapi.Access{Verb: "get", Path: "/debug/why"}); unknown(err) {
			return nil, err
		}
		return d, nil
	}
	answer, err := c.explain(ctx, rd, asked(r))
	switch {
	case err == nil:
		d.Answer = &answer
	case unknown(err):
		return nil, err
	case errors.Is(err, errNothing):
		d.Error = "There is no such object, or you may not get it."
	default:
		d.Error = err.Error()
	}
	return d, nil
}

// whyPath returns the page that explains an object.
func whyPath(kind string, of why.Object) string {
	q := url.Values{"kind": {kind}, "name": {of.Name}}
	if of.Namespace != "" {
		q.Set("namespace", of.Namespace)
	}
	if of.Group != "" {
		q.Set("group", of.Group)
	}
	return "/console/why?" + q.Encode()
}

// elsewhere returns the page of the replica that works on an object, from the answer of another replica. It returns ""
// if the answer contains no address.
func elsewhere(a why.Answer) string {
	for _, c := range a.Causes {
		if c.Type != why.HeldBy && c.Type != why.NotLeading || c.Depth != 0 {
			continue
		}
		at := c.Evidence["address"]
		if !strings.Contains(at, "://") {
			at = "//" + at // with the scheme of this page
		}
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
			return ""
		}
		return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() +
			whyPath(a.Kind, why.Object{Namespace: a.Namespace, Name: a.Name})
	}
	return ""
}

// whyCommand returns the command that asks the console at a URL the same question.
func whyCommand(kind, namespace, name, url string) string {
	text := "fairlead why " + kind + "/" + name + " -n " + namespace
	if url != "" {
		text += " --url " + url
	}
	return text
}

// splitKey parses namespace/name.
func splitKey(key string) why.Object {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return why.Object{Namespace: namespace, Name: name}
	}
	return why.Object{Name: key}
}

// objectPath returns the page that explains an object.
func objectPath(of why.Object) string { return whyPath(of.Kind, of) }
