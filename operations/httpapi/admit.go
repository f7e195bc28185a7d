package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations"
)

// admission is a request whose caller has the required right.
type admission struct {
	namespace, token string
	query            url.Values
	party            fair.Party // shares the slots
	wrong            faults     // further problems of the request
}

// admitter finds the namespaces of requests and checks the rights of callers. It has no state.
type admitter struct {
	authorizer Authorizer
	namespace  string   // the default
	others     []string // namespaces that are served, too
	all        bool     // every namespace is served
	shared     bool     // several namespaces share the slots
}

func newAdmitter(o Options) *admitter {
	own := o.Scheduler.Namespace()
	return &admitter{
		authorizer: o.Authorizer, namespace: own, others: o.Namespaces, all: o.All,
		shared: o.All || slices.ContainsFunc(o.Namespaces, func(namespace string) bool { return namespace != own }),
	}
}

// admit finds the namespace of a request and checks the caller's right. The admission collects other problems, such as
// a query parameter that is neither the namespace nor one of parameters.
func (d *admitter) admit(r *http.Request, verb string, parameters ...string) (a admission, err error) {
	a.query, err = url.ParseQuery(r.URL.RawQuery)
	malformed := err != nil
	a.namespace, a.token = a.query.Get("namespace"), access.Bearer(r)
	if a.namespace == "" {
		a.namespace = d.namespace
	}
	served := a.namespace == d.namespace || slices.Contains(d.others, a.namespace)
	valid := served || len(validation.IsDNS1123Label(a.namespace)) == 0
	if valid { // an invalid name needs no request to the API server
		if err := d.authorize(r.Context(), a, verb); err != nil {
			return a, err
		}
		serve.Known(r.Context())
	}
	if !served && !(valid && d.all) {
		a.wrong.add(http.StatusNotFound, "Namespace not served", operations.FieldError{
			Field: "query namespace", Problem: "is " + strconv.Quote(short(a.namespace, maxName)) +
				", whose operations this server does not serve",
		})
	}
	if malformed {
		a.wrong.parameter("string", "is malformed: escape % and ;")
	}
	a.wrong.parameters(a.query, append([]string{"namespace"}, parameters...))
	if !valid {
		return a, a.wrong.problem()
	}
	if a.party.Member = callerOf(r.Context(), d.authorizer, a.token); a.party.Member != "" && d.shared {
		a.party.Group = a.namespace
	}
	return a, nil
}

// authorize checks a right of an admitted caller.
func (d *admitter) authorize(ctx context.Context, a admission, verb string) error {
	return d.authorizer.Authorize(ctx, a.token, verb, a.namespace)
}

// guard runs endpoints for callers with rights.
type guard struct {
	admitter *admitter
	requests *limit
	timeout  time.Duration // of a request
}

// require returns an endpoint for callers who have the right for verb. It bounds the time and the number of concurrent
// requests. It reads and looks up no data for other callers. It refuses query parameters other than the namespace and
// the given ones.
func (g guard) require(
	verb string, next func(w http.ResponseWriter, r *http.Request, a admission) error, parameters ...string,
) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), g.timeout)
		defer cancel()
		r = r.WithContext(ctx)
		a, err := g.admitter.admit(r, verb, parameters...)
		if err != nil {
			return err
		}
		leave, err := g.requests.enter(ctx, a.party)
		if err != nil {
			return err
		}
		defer leave()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		return next(w, r, a)
	}
}
