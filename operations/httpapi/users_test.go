package httpapi_test

import (
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// users are the users of an API server, with their tokens and their rights on operations.
type users struct {
	mu     sync.Mutex
	tokens map[string]string   // user by token
	verbs  map[string][]string // by user, or by group with a colon before it
}

// add creates a user with rights on operations and returns a token.
func (u *users) add(name string, verbs []string) (token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	token = "token-of-" + name
	if u.tokens == nil {
		u.tokens, u.verbs = make(map[string]string), make(map[string][]string)
	}
	u.tokens[token], u.verbs[name] = name, verbs
	return token
}

// bind gives users, and groups with a colon before them, the rights of another user.
func (u *users) bind(as string, subjects ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range subjects {
		u.verbs[name] = u.verbs[as]
	}
}

// authenticate answers a TokenReview.
func (u *users) authenticate(review authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	name, ok := u.tokens[review.Token]
	if !ok {
		status.Error = "invalid bearer token"
		return status
	}
	status.Authenticated = true
	status.User.Username, status.User.Groups = name, []string{"system:authenticated"}
	return status
}

// authorize answers a SubjectAccessReview.
func (u *users) authorize(
	review authorizationv1.SubjectAccessReviewSpec,
) (status authorizationv1.SubjectAccessReviewStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := review.ResourceAttributes
	if r == nil || r.Group != v1alpha1.GroupVersion.Group || r.Resource != "operations" {
		return status
	}
	may := slices.Contains(u.verbs[review.User], r.Verb)
	for _, group := range review.Groups {
		may = may || slices.Contains(u.verbs[":"+group], r.Verb)
	}
	status.Allowed = may && r.Subresource == "" && strings.HasPrefix(r.Namespace, "team-")
	return status
}
