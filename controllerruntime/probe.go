package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/internal/source"
)

// collection is what a list and watch are of.
type collection struct {
	namespace    string // "" is all
	label, field string
}

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
	// not an error, which the metrics of clients would count as a failed request
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(emptyList)),
	}, nil
}

// emptyList is the answer to a request that was made to be looked at.
const emptyList = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`

// WrappedRoundTripper lets those who look for it find the transport beneath.
func (l looking) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// collectionOf finds out what a ListerWatcher lists: controller-runtime hands an informer nothing else. It is asked for
// a list, and the transport of its client answers. base is the path of the server's URL.
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
