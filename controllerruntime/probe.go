package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/source"
)

// collection is what a list and watch are of.
type collection struct {
	namespace    string // "" is all
	label, field string
}

// errLooked is the answer to a request that was made to be looked at.
var errLooked = errors.New("the request was looked at, and not sent")

// lookKey is the key, in the context of a request that is to be looked at, of where to put its URL.
type lookKey struct{}

// looking is a transport that sends no request whose context asks for a look at it.
type looking struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l looking) RoundTrip(r *http.Request) (*http.Response, error) {
	look, ok := r.Context().Value(lookKey{}).(*url.URL)
	if !ok {
		return l.RoundTripper.RoundTrip(r)
	}
	*look = *r.URL
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, errLooked
}

// WrappedRoundTripper lets those who look for it find the transport beneath.
func (l looking) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// collectionOf finds out what a ListerWatcher lists: controller-runtime hands an informer nothing else. It is asked for
// a list, and the request ends at the transport of its client. base is the path of the server's URL.
func collectionOf(lw cache.ListerWatcher, base string) (collection, error) {
	var looked url.URL
	ctx := context.WithValue(context.Background(), lookKey{}, &looked)
	_, err := cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{})
	switch {
	case looked.Path != "":
		return parse(&looked, base)
	case err == nil:
		err = errors.New("it has made no request")
	}
	return collection{}, fmt.Errorf("cannot tell what an informer lists: %w", err)
}

// parse reads the URL of a list.
func parse(u *url.URL, base string) (collection, error) {
	q := u.Query()
	c := collection{label: q.Get("labelSelector"), field: q.Get("fieldSelector")}
	path, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(base, "/")+"/")
	segments := strings.Split(path, "/")
	switch segments[0] {
	case "api":
		segments = segments[1:]
	case "apis":
		segments = segments[min(2, len(segments)):]
	default:
		ok = false
	}
	switch { // what is left are version and resource, perhaps with a namespace between them
	case ok && len(segments) == 2:
	case ok && len(segments) == 4 && segments[1] == "namespaces":
		c.namespace = segments[2]
	default:
		return collection{}, fmt.Errorf("cannot tell what is listed at %s", u.Path)
	}
	return c, nil
}

// options are those of the source of a collection.
func (of collection) options() []source.Option {
	options := []source.Option{source.Labels(of.label), source.Fields(of.field)}
	if of.namespace != "" {
		options = append(options, source.Namespaces(of.namespace))
	}
	return options
}
