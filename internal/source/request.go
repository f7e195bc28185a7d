package source

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/shard"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// Values of resourceVersionMatch.
const (
	notOlderThan = metav1.ResourceVersionMatchNotOlderThan
	exactly      = metav1.ResourceVersionMatchExact
)

// query is a request for a collection. Zero fields are omitted.
type query struct {
	limit             int
	next              string // continue
	version           string
	match             metav1.ResourceVersionMatch // of version
	watch             bool
	sendInitialEvents bool
	timeout           time.Duration
	slots             *shard.Set // restrict to these slots; nil: all objects

	resource        schema.GroupVersionResource // zero: the resource of the source
	metadata        bool                        // request only the metadata of objects
	namespace, name string
	selectors       *Selectors // nil: no restriction
	beside          bool       // a request beside list and watch: a survey, or the namespaces of gained slots
}

func (q query) values(shardSelector string) url.Values {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.selectors != nil {
		set("labelSelector", q.selectors.Label)
		set("fieldSelector", q.selectors.Field)
	}
	set("shardSelector", shardSelector)
	if q.limit > 0 {
		set("limit", strconv.Itoa(q.limit))
	}
	set("continue", q.next)
	set("resourceVersion", q.version)
	set("resourceVersionMatch", string(q.match))
	if q.watch {
		set("watch", "true")
		set("allowWatchBookmarks", "true")
		set("timeoutSeconds", strconv.Itoa(int(q.ends()/time.Second)))
	}
	if q.sendInitialEvents {
		set("sendInitialEvents", "true")
	}
	return v
}

// ends returns the timeout in whole seconds, as the server requires, at least one.
func (q query) ends() time.Duration { return max(time.Second, q.timeout.Truncate(time.Second)) }

// isUrgent reports whether the Limiter lets the request pass before lists.
func (q query) isUrgent() bool {
	return q.watch && !q.sendInitialEvents || q.limit == 1 || q.beside && q.next == ""
}

// openFunc opens the response of a request for the content of a scope. Without slots and selectors in the query, it
// adds those that the scope holds.
type openFunc func(context.Context, query) (*stream, error)

// requester sends the requests of one scope and opens their responses. It is safe for concurrent use.
type requester struct {
	cfg           *Config
	conn          *connection.Conn
	namespace     string // "": all
	log           *slog.Logger
	spans         *spans
	shardSelector *shardSelector                        // shared by the scopes of a source
	used          atomic.Pointer[connection.Generation] // of the last request
}

// open waits for the Limiter, then opens a stream. The wait does not count toward the response timeout of the stream.
func (r *requester) open(ctx context.Context, q query) (*stream, error) {
	if err := r.admit(ctx, q.isUrgent()); err != nil {
		return nil, err
	}
	return openStream(ctx, q.ends(), r.opener(q)), nil
}

// admit waits for the Limiter.
func (r *requester) admit(ctx context.Context, urgent bool) error {
	return r.conn.Limiter().Wait(ctx, r.cfg.Budget, urgent)
}

// reconnect retires the connection of the last request, so that the next one opens a new connection.
func (r *requester) reconnect() {
	if g := r.used.Load(); g != nil {
		r.conn.Abandon(g)
	}
}

// opener returns the function that sends the request of a stream.
func (r *requester) opener(q query) opener {
	return func(ctx context.Context, st *stream) (io.ReadCloser, decoder, error) {
		g, err := r.conn.Acquire()
		if err != nil {
			return nil, nil, err
		}
		st.connected(func() { r.conn.Abandon(g) })
		r.used.Store(g)
		gvr := q.resource
		if gvr.Empty() {
			gvr = r.cfg.Resource
		}
		u := collectionURL(r.conn.Base(), gvr, cmp.Or(q.namespace, r.namespace))
		send := func(shardSelector string) (*http.Response, error) {
			u.RawQuery = q.values(shardSelector).Encode()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
			if err != nil {
				return nil, err
			}
			req.Header.Set("Accept", r.accepts(q))
			return g.Stream(req)
		}
		var span trace.Span
		if q.watch && !q.sendInitialEvents { // otherwise the request is part of a list or a probe
			ctx, span = r.spans.start(ctx, "watch")
		}
		res, err := r.sendSelecting(ctx, q.slots, send)
		defer func() { endSpan(ctx, span, err) }()
		if err != nil {
			g.Release()
			return nil, nil, err
		}
		res.Body = decompressed(res)
		body := connection.OnClose(res.Body, g.Release)
		if res.StatusCode != http.StatusOK {
			defer body.Close()
			err = refusal(res)
			return nil, nil, err
		}
		contentType := res.Header.Get("Content-Type")
		st.answered(contentType)
		d := newDecoder(q.watch, contentType)
		switch {
		case r.onlyMetadata(q):
			d = metadataDecoder{discreetDecoder{d}}
		case r.cfg.NoExcerpts:
			d = discreetDecoder{d}
		}
		return body, d, nil
	}
}

// accepts returns the Accept header.
func (r *requester) accepts(q query) string {
	switch {
	case r.onlyMetadata(q):
		return acceptMetadata(q.watch)
	case r.cfg.Encoding == Protobuf:
		return protobufType + ",application/json"
	}
	return "application/json"
}

// onlyMetadata reports whether the request is for metadata only.
func (r *requester) onlyMetadata(q query) bool { return q.metadata || r.cfg.Metadata }

// collectionURL returns the URL of a collection on the server at base.
func collectionURL(base *url.URL, r schema.GroupVersionResource, namespace string) *url.URL {
	segments := []string{"api", r.Version}
	if r.Group != "" {
		segments = []string{"apis", r.Group, r.Version}
	}
	if namespace != "" {
		segments = append(segments, "namespaces", namespace)
	}
	return base.JoinPath(append(segments, r.Resource)...)
}

func newDecoder(watch bool, contentType string) decoder {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	proto := mediaType == protobufType
	switch {
	case watch && proto:
		return &protoWatch{}
	case watch:
		return &jsonWatch{}
	case proto:
		return &protoList{}
	}
	return &jsonList{}
}

// maxRefusal bounds the bytes read from the body of an error response.
const maxRefusal = 64 << 10

// refusal returns the error of a response with a status other than 200. Its body is a Status, or text or HTML from a
// proxy.
func refusal(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	var s metav1.Status
	contentType := res.Header.Get("Content-Type")
	if res.StatusCode < http.StatusBadRequest {
		return &ProtocolError{
			What: "HTTP status " + res.Status + " instead of 200", ContentType: contentType,
			Excerpt: excerpt(body),
		}
	}
	switch {
	case strings.HasPrefix(contentType, protobufType):
		if _, kind, raw, err := envelope(body); err != nil || string(kind) != "Status" || s.Unmarshal(raw) != nil {
			s = metav1.Status{}
		}
	default:
		if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
			s = metav1.Status{Message: proxyMessage(contentType, body)}
		}
	}
	// API servers send this text for unknown paths.
	if res.StatusCode == http.StatusNotFound && s.Message == "404 page not found" {
		s.Message = "the server does not serve this resource in this version: " +
			"is its CustomResourceDefinition installed?"
	}
	e := newAPIError(res.StatusCode, s)
	if d, ok := backoff.RetryAfter(res.Header, time.Now()); ok {
		e.RetryAfter = d
	}
	return e
}

// proxyMessage returns the text of a proxy's response, or "" if it is HTML.
func proxyMessage(contentType string, body []byte) string {
	text := strings.TrimSpace(excerpt(body))
	if strings.HasPrefix(text, "<") || strings.Contains(contentType, "html") {
		return ""
	}
	return text
}
