package call

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/binding"
)

// Verb is the operation of a request, as named in Kubernetes authorisation.
type Verb string

// The verbs.
const (
	VerbGet              Verb = "get"
	VerbList             Verb = "list"
	VerbCreate           Verb = "create"
	VerbUpdate           Verb = "update"
	VerbPatch            Verb = "patch"
	VerbApply            Verb = "apply" // server-side apply
	VerbDelete           Verb = "delete"
	VerbDeleteCollection Verb = "deletecollection"
)

// Content types of request bodies and answers.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// Request is one request to the API server. Calls do not modify a Request; they only read the values that it refers to
// (Object, Body, Query), until the call returns.
type Request struct {
	// Verb and Resource are required.
	Verb     Verb
	Resource schema.GroupVersionResource

	// Kind is the kind for errors and logs, and for typed bodies without a kind. It defaults to the object's kind, or
	// else to the resource.
	Kind string

	Namespace, Name, Subresource string

	// Object is the body, typed or unstructured. Body is an encoded body and takes precedence over Object.
	Object runtime.Object
	Body   []byte

	// ContentType is the type of the body: JSON (default) or Protobuf. A patch has the content type of its PatchType.
	ContentType string
	PatchType   types.PatchType

	// Accept is the requested content type of the answer; JSON by default.
	Accept string

	// Query holds parameters such as fieldManager, dryRun and labelSelector. The options of a delete must be either in
	// the query or in a body of DeleteOptions. For a delete with a body, the server ignores all of the query except
	// selectors. A request with options in both is therefore invalid.
	Query url.Values

	// NotFoundOK makes Do return a nil answer if the object is absent. Only the server's own 404 for the object counts. A
	// resource that is not served, or the 404 of a proxy, remains an error.
	NotFoundOK bool

	// Idempotent states that executing this write twice has the same result as executing it once. It may then be repeated
	// after an unknown outcome. Deletes, applies and merge patches are idempotent without it.
	Idempotent bool

	// OnConflict returns the next request after a 409, or after a 422 for a JSON patch, whose paths may have moved. It
	// runs after a back-off, on the goroutine of the call, at most Policy.Conflicts times. An error ends the call.
	// OnConflict does not run after the 409 of a create, which means that the object exists.
	OnConflict func(ctx context.Context, c Conflict) (Request, error)

	// ConflictsExpected states that the caller handles conflicts with another request. They are logged at Debug level, as
	// are those that OnConflict handles.
	ConflictsExpected bool
}

// Conflict is the argument of an OnConflict function.
type Conflict struct {
	Request Request // the refused request
	// The server's refusal. It matches ErrOutcomeUnknown if the request may have been executed and overwritten since.
	Err   *Error
	Count int // conflicts of this call so far, from 1
}

// Answer holds a successful answer of the server.
type Answer struct {
	// Raw is the body without transfer encodings. The caller owns it.
	Raw []byte
	// ContentType is the type of Raw, without parameters: JSON or Protobuf.
	ContentType string
	Code        int
	Header      http.Header
	// Tries is the number of requests sent.
	Tries int
	// Recovered states that an earlier try of this call, whose outcome was unknown, made the write, and the server
	// therefore refused the last try. Raw is then the live object, or empty after a delete.
	Recovered bool
}

// Policy controls the timeout and the retries of a call. Zero fields have the defaults given here.
type Policy struct {
	Timeout   time.Duration // of one try, from its start until its body is read; 10 s
	Retries   int           // tries after the first; 5; negative: none
	Base, Cap time.Duration // back-off: doubles from Base to Cap, with full jitter; 400 ms and 10 s
	Conflicts int           // runs of OnConflict; 5; negative: none
	PageSize  int64         // objects per page of Pages, List and Step; 50; negative: no paging

	// Budget replaces the client's retry budget for this call.
	Budget *Budget

	// Fence is called just before each try. An error ends the call, whose error matches it; for example, if this process
	// is no longer the leader. Fence must be quick and safe for concurrent use. If it is nil, every try is sent.
	Fence func() error

	// Waiting, if set, shows the call to others while it is being retried. Step does not use it, because its fiber shows
	// the call.
	Waiting *binding.Waiting
	// Reported states that the caller reports the error of the call and its consequences. The last try is then logged at
	// Debug level. Step sets Reported, because its fiber fails with the error.
	Reported bool
}

// Page sizes: smallPage for interactive lists, CachePage for filling caches.
const (
	smallPage = 50
	CachePage = 500
)

// resolved returns the policy with defaults filled in. It is idempotent.
func (p Policy) resolved() Policy {
	p.Timeout = orDefault(p.Timeout, 10*time.Second)
	p.Base = orDefault(p.Base, 400*time.Millisecond)
	p.Cap = max(orDefault(p.Cap, 10*time.Second), p.Base)
	if p.Retries == 0 {
		p.Retries = 5
	}
	if p.Conflicts == 0 {
		p.Conflicts = 5
	}
	if p.PageSize == 0 {
		p.PageSize = smallPage
	}
	return p
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// write reports whether the verb changes the server's state.
func (v Verb) write() bool { return v != VerbGet && v != VerbList }

func (r *Request) deletes() bool { return r.Verb == VerbDelete || r.Verb == VerbDeleteCollection }

func (v Verb) method() string {
	switch v {
	case VerbGet, VerbList:
		return http.MethodGet
	case VerbCreate:
		return http.MethodPost
	case VerbUpdate:
		return http.MethodPut
	case VerbPatch, VerbApply:
		return http.MethodPatch
	case VerbDelete, VerbDeleteCollection:
		return http.MethodDelete
	}
	return ""
}
