package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/fair"
)

// Kubernetes decides about accesses by asking the API server. It authenticates by TokenReview and authorizes by
// SubjectAccessReview. It caches positive answers for ten seconds and refusals for a shorter time. It is a
// prometheus.Collector and safe for concurrent use. Create it with [NewKubernetes].
//
// Reviews of unknown tokens have a separate limit of 50 a second, shared fairly between client addresses. A client that
// sends many invalid tokens delays only itself, and callers with a recently valid token are not delayed. All other
// reviews are shared fairly between the users they are about. All service accounts of a namespace count as one user.
type Kubernetes struct {
	// Now is the clock by which answers are cached. A test may replace it before the first use.
	Now func() time.Time

	calls     *call.Client
	audiences []string
	reviews   *prometheus.CounterVec

	strangers, guests *fair.Semaphore

	mu     sync.Mutex
	tokens *fair.Cache[tokenSum, *caller] // tokens that were valid at their last review
	junk   *fair.Cache[tokenSum, verdict] // tokens that were not
	rights *fair.Cache[question, verdict]

	asking   flights[tokenSum, *caller]
	deciding flights[question, struct{}]
}

type tokenSum [sha256.Size]byte

// caller is the user of a valid token.
type caller struct {
	user   authenticationv1.UserInfo
	sum    [sha256.Size]byte // of all user attributes
	tenant string            // the group that shares a quota of reviews
	until  time.Time
}

type question struct {
	caller [sha256.Size]byte
	Access
}

// verdict is a cached decision: nil or a problem.
type verdict struct {
	err   error
	until time.Time
}

const (
	keepAllowed = 10 * time.Second
	keepJunk    = 5 * time.Second
	keepRefused = 2 * time.Second
	keepMost    = 4096

	// maxToken bounds the length of a token in bytes.
	maxToken = 16 << 10

	strangersPerSecond, strangersBurst = 50, 100
	guestsPerSecond, guestsBurst       = 200, 400
	// reviewsWait bounds the waiting reviews per client address or tenant, and reviewPatience the time they wait.
	reviewsWait    = 32
	reviewPatience = 5 * time.Second
)

// NewKubernetes returns a Kubernetes that sends reviews through calls. A token must be valid for one of the audiences.
// Without audiences, or for the empty one, it must be valid for the API server itself.
func NewKubernetes(calls *call.Client, audiences ...string) *Kubernetes {
	if len(audiences) == 0 {
		audiences = []string{""}
	}
	lane := func(slots, perSecond, burst int) *fair.Semaphore {
		return &fair.Semaphore{
			Slots: slots, Rate: rate.NewLimiter(rate.Limit(perSecond), burst), Waiting: reviewsWait,
			Wait: reviewPatience,
		}
	}
	return &Kubernetes{
		calls: calls, audiences: audiences, Now: time.Now,
		strangers: lane(16, strangersPerSecond, strangersBurst), guests: lane(32, guestsPerSecond, guestsBurst),
		tokens: fair.NewCache[tokenSum, *caller](keepMost), junk: fair.NewCache[tokenSum, verdict](keepMost),
		rights: fair.NewCache[question, verdict](keepMost),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_reviews_total",
			Help: "Reviews of callers of the HTTP API, by kind and result.",
		}, []string{"review", "result"}),
	}
}

// May decides whether the user named by a proxy (see [Proxy]), or else the bearer of the token, has an access. It
// returns nil, a [*Problem] with status 401 or 403, or another error when it cannot decide.
func (k *Kubernetes) May(ctx context.Context, token string, a Access) error {
	if who := proxied(ctx); who != nil {
		return k.may(ctx, who, a)
	}
	if token == "" {
		return &Problem{
			Status: http.StatusUnauthorized, Title: "Unauthorized",
			Detail: "send the header Authorization: Bearer with a token of this cluster",
		}
	}
	who, err := k.callerOf(ctx, token)
	if err != nil {
		return err
	}
	return k.may(ctx, who, a)
}

// Caller returns the name of the token's user.
func (k *Kubernetes) Caller(token string) string {
	sum := sha256.Sum256([]byte(token))
	k.mu.Lock()
	defer k.mu.Unlock()
	if who, ok := k.tokens.Get(sum); ok {
		return who.user.Username
	}
	return fmt.Sprintf("%x", sum[:8]) // evicted from the cache
}

var notValid = &Problem{
	Status: http.StatusUnauthorized, Title: "Unauthorized",
	Detail: "the token is not valid in this cluster, or not meant for this server",
}

// callerOf returns the caller of a token.
func (k *Kubernetes) callerOf(ctx context.Context, token string) (*caller, error) {
	if len(token) > maxToken {
		return nil, notValid
	}
	sum := tokenSum(sha256.Sum256([]byte(token)))
	who, before, err := k.remembered(sum)
	if who != nil || err != nil {
		return who, err
	}
	lane, from := k.strangers, fair.Party{Group: clientOf(ctx)}
	if before != nil {
		lane, from = k.guests, fair.Party{Group: before.tenant, Member: before.user.Username}
	}
	return k.asking.do(ctx, sum, func() (*caller, error) {
		if who, _, err := k.remembered(sum); who != nil || err != nil { // another request has decided meanwhile
			return who, err
		}
		who, err := k.review(ctx, lane, from, token)
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case err == nil:
			k.tokens.Put(sum, who.tenant, who)
		case errors.Is(err, notValid):
			k.tokens.Drop(sum)
			k.junk.Put(sum, clientOf(ctx), verdict{err, k.Now().Add(keepJunk)})
		}
		return who, err
	})
}

// remembered returns the cached caller of a token, or the cached refusal, if still valid. before is the caller of the
// last successful review, even if it has expired.
func (k *Kubernetes) remembered(sum tokenSum) (who, before *caller, err error) {
	k.mu.Lock()
	before, good := k.tokens.Get(sum)
	known, bad := k.junk.Get(sum)
	k.mu.Unlock()
	switch now := k.Now(); {
	case good && now.Before(before.until):
		return before, before, nil
	case !good && bad && now.Before(known.until):
		return nil, nil, known.err
	}
	return nil, before, nil
}

// review sends a TokenReview.
func (k *Kubernetes) review(ctx context.Context, lane *fair.Semaphore, from fair.Party, token string) (*caller, error) {
	named := slices.DeleteFunc(slices.Clone(k.audiences), func(a string) bool { return a == "" })
	var asked [][]string
	if len(named) > 0 {
		asked = append(asked, named)
	}
	if len(named) < len(k.audiences) {
		asked = append(asked, nil)
	}
	for _, audiences := range asked {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
		err := k.ask(ctx, lane, from, "tokenreviews", authenticationv1.SchemeGroupVersion, review, func() bool {
			return review.Status.Authenticated &&
				(audiences == nil || slices.ContainsFunc(review.Status.Audiences, func(a string) bool {
					return slices.Contains(audiences, a) // otherwise the API server ignored the audiences
				}))
		})
		if errors.Is(err, errRefused) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot review the token: %w", err)
		}
		who := newCaller(review.Status.User)
		who.until = k.Now().Add(keepAllowed)
		return who, nil
	}
	return nil, notValid
}

func newCaller(user authenticationv1.UserInfo) *caller {
	all, err := json.Marshal(user)
	if err != nil {
		panic(err) // it contains only strings
	}
	who := &caller{user: user, sum: sha256.Sum256(all), tenant: user.Username}
	if account, ok := strings.CutPrefix(user.Username, "system:serviceaccount:"); ok {
		who.tenant, _, _ = strings.Cut(account, ":")
	}
	return who
}

// may decides whether a caller has an access.
func (k *Kubernetes) may(ctx context.Context, who *caller, a Access) error {
	q := question{who.sum, a}
	decided := func() (verdict, bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		known, ok := k.rights.Get(q)
		return known, ok && k.Now().Before(known.until)
	}
	if known, ok := decided(); ok {
		return known.err
	}
	_, err := k.deciding.do(ctx, q, func() (struct{}, error) {
		if known, ok := decided(); ok { // by another request meanwhile
			return struct{}{}, known.err
		}
		user := who.user
		extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for key, values := range user.Extra {
			extra[key] = authorizationv1.ExtraValue(values)
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		}}
		if a.Path != "" {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		} else {
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace,
				Name: a.Name,
			}
		}
		err := k.ask(ctx, k.guests, fair.Party{Group: who.tenant, Member: user.Username}, "subjectaccessreviews",
			authorizationv1.SchemeGroupVersion, review,
			func() bool { return review.Status.Allowed })
		keep := keepAllowed
		switch {
		case errors.Is(err, errRefused):
			err, keep = forbidden(user.Username, a), keepRefused
		case err != nil:
			return struct{}{}, fmt.Errorf("cannot review the access: %w", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.rights.Put(q, who.tenant, verdict{err, k.Now().Add(keep)})
		return struct{}{}, err
	})
	return err
}

func forbidden(user string, a Access) *Problem {
	return &Problem{Status: http.StatusForbidden, Title: "Forbidden", Detail: user + " may not " + a.String()}
}

// errRefused is a negative review.
var errRefused = errors.New("refused")

// ask sends a review when it is the caller's turn. The request is idempotent and may be sent twice.
func (k *Kubernetes) ask(
	ctx context.Context, lane *fair.Semaphore, from fair.Party, resource string, of schema.GroupVersion,
	review runtime.Object, says func() bool,
) error {
	leave, err := lane.Acquire(ctx, from)
	if busy := (*fair.BusyError)(nil); errors.As(err, &busy) {
		k.reviews.WithLabelValues(resource, "busy").Inc()
		return &Problem{
			Status: http.StatusTooManyRequests, Title: "Too many reviews",
			Detail: "this server has reached its limit of token and access reviews: try again in some seconds",
		}
	}
	if err != nil {
		return err
	}
	defer leave()
	answer, err := call.Do(ctx, k.calls, call.Request{
		Verb: call.VerbCreate, Resource: of.WithResource(resource), Object: review, Idempotent: true,
		Kind: strings.TrimPrefix(fmt.Sprintf("%T", review), "*v1."),
	}, call.Policy{})
	if err == nil {
		err = answer.Into(review)
	}
	switch {
	case err != nil:
		k.reviews.WithLabelValues(resource, "failed").Inc()
		return err
	case !says():
		k.reviews.WithLabelValues(resource, "refused").Inc()
		return errRefused
	}
	k.reviews.WithLabelValues(resource, "allowed").Inc()
	return nil
}

// Describe implements prometheus.Collector.
func (k *Kubernetes) Describe(ch chan<- *prometheus.Desc) { k.reviews.Describe(ch) }

// Collect implements prometheus.Collector.
func (k *Kubernetes) Collect(ch chan<- prometheus.Metric) { k.reviews.Collect(ch) }
