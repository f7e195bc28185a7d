package call

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Verb is what a request does, in the words of Kubernetes authorisation.
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

// Request is one request to the API server. It is a value: a Request is not changed by the calls made with it, and what
// it points to (Object, Body, Query) is only read, until the call has returned.
type Request struct {
	// Verb and Resource are required.
	Verb     Verb
	Resource schema.GroupVersionResource

	// Kind names the kind in errors and logs (default: the object's kind, or without one the resource) and is written
	// into typed bodies that do not carry their own.
	Kind string

	Namespace, Name, Subresource string

	// Object is the body, typed or unstructured; Body is a body that is encoded already and wins over Object.
	Object runtime.Object
	Body   []byte

	// ContentType is that of the body: JSON (default) or Protobuf. A patch has the content type of its PatchType.
	ContentType string
	PatchType   types.PatchType

	// Accept is the content type wanted for the answer, JSON by default.
	Accept string

	// Query holds parameters such as fieldManager, dryRun, labelSelector. The options of a delete stand either all in
	// the query or all in a body of DeleteOptions: of one with a body the server takes nothing but selectors from the
	// query, so that such a request is invalid.
	Query url.Values

	// NotFoundOK makes the absence of the object a nil answer. It is the server's own word that counts: a resource
	// that is not served, or a proxy that knows nothing of it, stays an error.
	NotFoundOK bool

	// Idempotent says that executing this write twice is the same as executing it once, so that it may be repeated when
	// the outcome of a try is unknown. Deletes, applies and merge patches are idempotent without saying so.
	Idempotent bool

	// OnConflict is asked for the next request after a 409 (and after a 422 for a JSON patch, whose paths may have
	// moved). It runs after a back-off, on the goroutine of the call, at most Policy.Conflicts times; an error ends
	// the call. Not for the 409 of a create: what exists does not conflict, it is there.
	OnConflict func(ctx context.Context, c Conflict) (Request, error)

	// ConflictsExpected says that the caller deals with conflicts, by another request: they are logged at Debug level,
	// as those are that OnConflict answers.
	ConflictsExpected bool
}

// Conflict is what an OnConflict function is given.
type Conflict struct {
	Request Request // the one that was refused
	// with the server's message; it matches ErrOutcomeUnknown if the request may have been executed, and overwritten since
	Err   *Error
	Count int // conflicts of this call so far, from 1
}

// Answer is a successful answer of the server.
type Answer struct {
	// Raw is the body as it came, without transfer encodings. It belongs to the caller.
	Raw []byte
	// ContentType is that of Raw, without parameters: JSON or Protobuf.
	ContentType string
	Code        int
	Header      http.Header
	// Tries is how many requests it took.
	Tries int
	// Recovered says that the server refused or no longer knew the last try because an earlier try of this call, whose
	// outcome was unknown, had done the work. Raw is then the live object, or empty when it was deleted.
	Recovered bool
}

// Policy says how long and how often a call tries. Zero fields have the defaults named here.
type Policy struct {
	Timeout   time.Duration // of one try, from its start until its body has been read; 10 s
	Retries   int           // tries after the first; 5; negative: none
	Base, Cap time.Duration // back-off: doubles from Base to Cap, with full jitter; 400 ms and 10 s
	Conflicts int           // runs of OnConflict; 5; negative: none
	PageSize  int64         // objects per page of Pages, List and Step; 50; negative: no paging

	// Budget replaces the client's retry budget for this call.
	Budget *Budget

	// Fence is asked just before each try is sent, and an error of it ends the call, which matches that error: for one,
	// that this process does not lead any more. It must be quick and safe for concurrent use. Nil: every try is sent.
	Fence func() error

	// Waiting, if set, shows the call to others while it is being tried again; not those of Step, whose fiber shows them.
	Waiting *Waiting
	// Reported says that the caller reports the error of the call, and what comes of it: the try that ends the call is
	// logged at Debug level. So is that of Step, whose fiber fails by it.
	Reported bool
}

// Page sizes: smallPage for things that are looked at once, CachePage for filling caches.
const (
	smallPage = 50
	CachePage = 500
)

// resolved returns the policy with the defaults filled in. Resolving twice changes nothing.
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

// write says whether the verb changes the server's state.
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
