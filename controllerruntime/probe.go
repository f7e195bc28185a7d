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

// collection is the target of a list and watch.
type collection struct {
	namespace    string // "": all namespaces
	label, field string
}

// lookKey is the context key of a probe request. Its value receives the URL of the request.
type lookKey struct{}

// looking is a transport that answers probe requests without sending them.
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
	// An error would count as a failed request in the metrics of clients.
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(emptyList)),
	}, nil
}

// emptyList is the answer to a probe request.
const emptyList = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`

// WrappedRoundTripper returns the underlying transport.
func (l looking) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// collectionOf determines the collection that a ListerWatcher lists. controller-runtime passes only the ListerWatcher
// to an informer, so collectionOf calls its list and the transport answers. base is the path of the server's URL.
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

// parse parses the URL of a list.
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
	switch { // the rest is version and resource, optionally with a namespace between them
	case ok && len(segments) == 2:
	case ok && len(segments) == 4 && segments[1] == "namespaces":
		c.namespace = segments[2]
	default:
		return collection{}, fmt.Errorf("cannot tell what is listed at %s", u.Path)
	}
	return c, nil
}

// options returns the source options of a collection.
func (of collection) options() []source.Option {
	options := []source.Option{source.Labels(of.label), source.Fields(of.field)}
	if of.namespace != "" {
		options = append(options, source.Namespaces(of.namespace))
	}
	return options
}
