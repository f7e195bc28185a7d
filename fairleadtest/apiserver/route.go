package apiserver

import (
	"context"
	stderrors "errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// exchange is the processing of one request.
type exchange struct {
	s     *Server
	r     *http.Request
	req   *Request // shown in the log; constant after the start
	query url.Values
	plan  *plan
	out   *out
	table *table
	enc   encoding

	oversized bool     // the body is too large
	warnings  []string // of the answer
}

// ServeHTTP implements http.Handler, so the server can also be mounted elsewhere.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.reqs.Done()
	req, oversized := parseRequest(r), false
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch ||
		r.Method == http.MethodDelete {
		var err error
		if req.Body, oversized, err = readBody(r); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	entry := s.log.start(req)
	defer entry.end()
	req = entry.req
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	x := &exchange{s: s, r: r, req: &req, query: req.Query, plan: s.planFor(&req), oversized: oversized}
	x.out = newOut(w, r, x, entry)
	defer x.rescue()
	x.run()
}

// enter counts a request for Close and returns false if the server is closed. With HTTP/2 a handler may start after its
// connection has ended. Close may then already wait, so the count must not grow.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.reqs.Add(1)
	return true
}

// rescue turns a panic of a user's function (a hook, a validation, a field) into a 500 and an entry in the log. After
// the start of the answer it can only abort the request.
func (x *exchange) rescue() {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	x.out.entry.panicked(fmt.Sprintf("%v\n%s", v, debug.Stack()))
	if x.out.begun {
		x.out.abort()
	}
	x.plan = &plan{cut: -1}
	x.fail(errors.NewInternalError(fmt.Errorf("a function given to the server panicked: %v", v)))
}

func (x *exchange) run() {
	p, ctx := x.plan, x.r.Context()
	for _, fn := range p.before {
		fn(ctx, *x.req)
	}
	if ctx.Err() != nil || p.dropBefore {
		x.out.abort()
	}
	if p.blackHole {
		<-ctx.Done()
		x.out.abort()
	}
	x.table = x.s.store.table(schema.GroupVersionResource{
		Group: x.req.Group, Version: x.req.Version, Resource: x.req.Resource,
	})
	var acceptable bool
	x.enc, acceptable = negotiate(x.r.Header.Get("Accept"), x.table,
		x.req.Verb == "list" || x.req.Verb == "deletecollection")
	switch {
	case p.respond != nil:
		h := x.out.w.Header()
		for k, v := range p.respond.header {
			h.Set(k, v)
		}
		x.out.whole(p.respond.code, p.respond.contentType, p.respond.body)
		return
	case p.answer != nil:
		x.fail(&errors.StatusError{ErrStatus: *p.answer})
		return
	}
	if want := x.s.currentToken(); want != "" && x.r.Header.Get("Authorization") != "Bearer "+want {
		x.fail(errors.NewUnauthorized("Unauthorized"))
		return
	}
	if len(p.query) > 0 {
		x.query = url.Values{}
		for k, v := range x.req.Query {
			x.query[k] = append([]string(nil), v...)
		}
		for _, fn := range p.query {
			fn(x.query)
		}
	}
	if err := x.dispatch(acceptable); err != nil {
		x.fail(err)
	}
}

func (x *exchange) dispatch(acceptable bool) error {
	if x.req.Resource == "" {
		return x.discovery()
	}
	if handled, err := x.review(); handled {
		return err
	}
	if err := x.route(); err != nil {
		return err
	}
	if !acceptable {
		return notAcceptable()
	}
	if x.oversized {
		return errors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if x.req.Subresource == "scale" {
		return x.scale()
	}
	switch x.req.Verb {
	case "get":
		return x.get()
	case "list":
		return x.list()
	case "watch":
		return x.watch()
	case "create":
		switch x.req.Subresource {
		case "token":
			return x.tokenRequest()
		case "binding":
			return x.bind()
		}
		return x.create()
	case "update":
		return x.update()
	case "patch":
		return x.patch()
	case "delete":
		return x.delete()
	case "deletecollection":
		return x.deleteCollection()
	}
	return x.wrongMethod()
}

// route refuses unknown paths and unsupported methods.
func (x *exchange) route() error {
	if x.table == nil {
		if x.req.Group != "" && !x.s.store.builtIn(x.req.Group, x.req.Version) {
			return errNoPage
		}
		return errPathNotFound()
	}
	res, one := x.table.res, x.req.Name != ""
	method := x.req.Method
	switch {
	case !res.Namespaced && x.req.Namespace != "":
		if c := x.table.custom; c != nil && c.definition != "" {
			return errNoPage
		}
		return errPathNotFound()
	case res.Namespaced && x.req.Namespace == "" && (one || method != http.MethodGet):
		if !x.table.typed {
			return errNoPage
		}
		if one {
			return errPathNotFound()
		}
		return x.wrongMethod()
	case x.req.Subresource != "" && !res.has(x.req.Subresource):
		if !x.table.typed {
			return errors.NewNotFound(x.groupResource(), x.req.Name)
		}
		return errPathNotFound()
	case !one && !x.table.typed && (method == http.MethodPut || method == http.MethodPatch):
		return errors.NewBadRequest("name must be provided")
	case x.req.Subresource == "finalize" && method != http.MethodPut,
		x.req.Subresource == "binding" && method != http.MethodPost,
		(x.req.Subresource == "status" || x.req.Subresource == "scale") &&
			(method == http.MethodPost || method == http.MethodDelete),
		x.req.Subresource == "" && one && x.table.typed && method == http.MethodPost,
		!one && (method == http.MethodPut || method == http.MethodPatch),
		x.req.Verb == "deletecollection" && x.table.rules().noCollection:
		return x.wrongMethod()
	}
	return nil
}

func (x *exchange) wrongMethod() error {
	if !x.table.typed {
		return errors.NewMethodNotSupported(x.groupResource(), x.req.Verb)
	}
	return &errors.StatusError{ErrStatus: failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")}
}

func (x *exchange) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: x.req.Group, Resource: x.req.Resource}
}

// errNoPage is the 404 of a path outside all APIs.
var errNoPage = stderrors.New("404 page not found")

// fail answers with the Status of err.
func (x *exchange) fail(err error) {
	if stderrors.Is(err, errNoPage) {
		x.out.whole(http.StatusNotFound, "text/plain; charset=utf-8", []byte(err.Error()+"\n"))
		return
	}
	status := asStatus(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		x.out.w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	x.out.whole(int(status.Code), x.enc.contentType(false), x.enc.status(status))
}

func asStatus(err error) metav1.Status {
	var api errors.APIStatus
	if stderrors.As(err, &api) {
		return api.Status()
	}
	return failure(http.StatusInternalServerError, metav1.StatusReasonUnknown, err.Error())
}

func errPathNotFound() error {
	return &errors.StatusError{ErrStatus: failure(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource")}
}

// parseRequest parses /api/v1/…, /apis/group/version/… and other paths like the real server.
func parseRequest(r *http.Request) Request {
	req := Request{
		Method: r.Method, Path: r.URL.Path, Proto: r.Proto, Query: r.URL.Query(), Header: r.Header,
		Verb: strings.ToLower(r.Method),
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		req.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		req.Group, req.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return req
	}
	old := len(parts) >= 2 && parts[0] == "watch" // the deprecated path of watches
	if old {
		parts = parts[1:]
	}
	if len(parts) >= 3 && parts[0] == "namespaces" && !(len(parts) == 3 && parts[2] == "status") &&
		!(len(parts) == 3 && parts[2] == "finalize") {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = strings.Join(parts[2:], "/")
	}
	switch r.Method {
	case http.MethodGet:
		switch {
		case old || req.Name == "" && truth(req.Query.Get("watch")): // a get of one object is not a watch
			req.Verb = "watch"
		case req.Name == "":
			req.Verb, req.Page = "list", continuePage(req.Query.Get("continue"))
		}
	case http.MethodPost:
		req.Verb = "create"
	case http.MethodPut:
		req.Verb = "update"
	case http.MethodDelete:
		if req.Name == "" {
			req.Verb = "deletecollection"
		}
	}
	return req
}

// truth parses a boolean parameter like the real server.
func truth(s string) bool { return s != "" && s != "0" && strings.ToLower(s) != "false" }
