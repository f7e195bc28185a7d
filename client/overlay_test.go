package client_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/disturb"
)

// canned is a prepared response of a transport.
type canned struct {
	code   int
	media  string // JSON by default
	body   []byte
	gzip   bool
	length int64 // -1: unknown
	end    error // replaces the end of the body
}

func (a canned) response(r *http.Request) *http.Response {
	media := a.media
	if media == "" {
		media = "application/json"
	}
	res := &http.Response{
		StatusCode: a.code, Header: http.Header{"Content-Type": {media}}, Request: r, ContentLength: int64(len(a.body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if a.gzip {
		res.Header.Set("Content-Encoding", "gzip")
	}
	if a.length != 0 {
		res.ContentLength = a.length
	}
	body := io.Reader(bytes.NewReader(a.body))
	if a.end != nil {
		body = io.MultiReader(body, broken{a.end})
	}
	res.Body = io.NopCloser(body)
	return res
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// zipped compresses b. The compressions of two contents can be concatenated.
func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

func asJSON(o any) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

// asProtobuf encodes a message in the envelope of the API.
func asProtobuf(apiVersion, kind string, o interface{ Marshal() ([]byte, error) }) []byte {
	raw, err := o.Marshal()
	if err != nil {
		panic(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	out, err := u.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte("k8s\x00"), out...)
}

const protobufMedia = "application/vnd.kubernetes.protobuf"

// Each response reaches the caller unchanged. Then it is shown, or the store asks for the object, or neither.
func TestOverlayAnswers(t *testing.T) {
	t.Parallel()
	const web = "/api/v1/namespaces/a/configmaps/web"
	const all = "/api/v1/namespaces/a/configmaps"
	// The version that is shown afterwards: that of the response, the previous one, or no object.
	const answered, old, gone = "1000", "old", ""
	made := func(change ...func(*corev1.ConfigMap)) func(types.UID) *corev1.ConfigMap {
		return func(uid types.UID) *corev1.ConfigMap {
			cm := foreign("web", "k", "new")
			cm.UID, cm.ResourceVersion = uid, answered
			for _, fn := range change {
				fn(cm)
			}
			return cm
		}
	}
	deleting := func(finalizers ...string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) {
			at, zero := metav1.Unix(1_700_000_000, 0), int64(0)
			cm.DeletionTimestamp, cm.DeletionGracePeriodSeconds, cm.Finalizers = &at, &zero, finalizers
		}
	}
	inJSON := func(of func(types.UID) *corev1.ConfigMap) func(types.UID) canned {
		return func(uid types.UID) canned { return canned{code: 200, body: asJSON(of(uid))} }
	}
	inProtobuf := func(of func(types.UID) *corev1.ConfigMap) func(types.UID) canned {
		return func(uid types.UID) canned {
			return canned{code: 200, media: protobufMedia, body: asProtobuf("v1", "ConfigMap", of(uid))}
		}
	}
	but := func(a func(types.UID) canned, change func(*canned)) func(types.UID) canned {
		return func(uid types.UID) canned { c := a(uid); change(&c); return c }
	}
	status := func(code int, s metav1.Status) func(types.UID) canned {
		return func(uid types.UID) canned {
			out := s.DeepCopy() // the tests run in parallel
			out.Kind, out.APIVersion, out.Code = "Status", "v1", int32(code)
			if out.Details != nil && out.Details.UID == "its own" {
				out.Details.UID = uid
			}
			return canned{code: code, body: asJSON(out)}
		}
	}
	refused := func(code int, reason metav1.StatusReason, name string) func(types.UID) canned {
		of := &metav1.StatusDetails{Name: name, Kind: "configmaps"}
		return status(code, metav1.Status{Status: "Failure", Reason: reason, Details: of})
	}
	text := func(code int, media, body string) func(types.UID) canned {
		return func(types.UID) canned { return canned{code: code, media: media, body: []byte(body)} }
	}
	plain := func(code int, body string) func(types.UID) canned { return text(code, "application/json", body) }
	itself := &metav1.StatusDetails{Name: "web", UID: "its own"}
	success := status(200, metav1.Status{Status: "Success", Details: itself})
	successProtobuf := func(uid types.UID) canned {
		return canned{code: 200, media: protobufMedia, body: asProtobuf("v1", "Status", &metav1.Status{
			Status: "Success", Details: &metav1.StatusDetails{Name: "web", UID: uid},
		})}
	}
	partial := func(uid types.UID) canned {
		return canned{code: 200, body: asJSON(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
			ObjectMeta: made()(uid).ObjectMeta,
		})}
	}
	dry := metav1.DeleteOptions{DryRun: []string{"All"}}
	impersonated := http.Header{"Impersonate-User": {"somebody"}}

	for _, tc := range []struct {
		reason string
		method string // PUT by default
		path   string // of the object by default
		server string // of the request; that of the cache by default
		header http.Header
		body   []byte
		answer func(types.UID) canned
		shows  string
		asked  bool // the store asked for the object
	}{
		{reason: "an update", answer: inJSON(made()), shows: answered},
		{reason: "an update in protobuf", answer: inProtobuf(made()), shows: answered},
		{
			reason: "compressed",
			answer: but(inJSON(made()), func(c *canned) { c.body, c.gzip = zipped(c.body), true }),
			shows:  answered,
		},
		{
			reason: "protobuf, compressed",
			answer: but(inProtobuf(made()), func(c *canned) { c.body, c.gzip = zipped(c.body), true }),
			shows:  answered,
		},
		{
			reason: "of unknown length", answer: but(inJSON(made()), func(c *canned) { c.length = -1 }),
			shows: answered,
		},
		{
			reason: "with a parameter of the content type",
			answer: but(inJSON(made()), func(c *canned) { c.media = "application/json; charset=utf-8" }),
			shows:  answered,
		},
		{reason: "a patch", method: "PATCH", answer: inJSON(made()), shows: answered},
		{
			reason: "an apply that creates", method: "PATCH",
			answer: but(inJSON(made()), func(c *canned) { c.code = 201 }), shows: answered,
		},
		{
			reason: "a create", method: "POST", path: all,
			answer: but(inJSON(made()), func(c *canned) { c.code = 201 }), shows: answered,
		},
		{reason: "the status", path: web + "/status", answer: inJSON(made()), shows: answered},
		{reason: "a trailing slash", path: web + "/", answer: inJSON(made()), shows: answered},
		{reason: "with an explicit port", server: "http://apiserver.pipe:80", answer: inJSON(made()), shows: answered},
		{
			reason: "older than the known version",
			answer: inJSON(made(func(cm *corev1.ConfigMap) { cm.ResourceVersion = "1" })), shows: old,
		},

		{
			reason: "not compressed, against its header", answer: but(inJSON(made()), func(c *canned) { c.gzip = true }),
			shows: old, asked: true,
		},
		{
			reason: "compressed with an unknown algorithm",
			answer: but(inJSON(made()), func(c *canned) {
				c.body, c.gzip = bytes.Repeat(zipped(make([]byte, 1<<20)), 65),
					true
			}),
			shows: old, asked: true,
		},
		{reason: "a page of a proxy", answer: text(200, "text/html", "<html>"), shows: old, asked: true},
		{
			reason: "cut JSON that looks complete",
			answer: but(inJSON(made()), func(c *canned) { c.body = c.body[:len(c.body)/2] }), shows: old,
			asked: true,
		},
		{reason: "no body", answer: text(200, "application/json", ""), shows: old, asked: true},
		{
			reason: "the connection breaks",
			answer: but(inJSON(made()), func(c *canned) { c.body, c.end = c.body[:20], io.ErrUnexpectedEOF }),
			shows:  old, asked: true,
		},
		{reason: "yaml", answer: text(200, "application/yaml", "kind: ConfigMap"), shows: old, asked: true},
		{reason: "metadata alone", answer: partial, shows: old, asked: true},
		{
			reason: "a table",
			answer: plain(200, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1000"}}`),
			shows:  old, asked: true,
		},
		{
			reason: "another version of the API", path: "/api/v2/namespaces/a/configmaps/web",
			answer: inJSON(made(func(cm *corev1.ConfigMap) { cm.APIVersion = "v2" })), shows: old, asked: true,
		},
		{
			reason: "another kind, of a subresource", path: web + "/scale",
			answer: plain(200, `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{
				"name":"web","namespace":"a","resourceVersion":"1000"}}`),
			shows: old, asked: true,
		},
		{
			reason: "an action without an effect on the object", method: "POST", path: web + "/token",
			answer: plain(201, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{}}`),
			shows:  old,
		},
		{
			reason: "an action that streams", method: "POST", path: web + "/console",
			answer: but(text(200, "text/plain", "x"), func(c *canned) { c.end = errors.New("it was read") }),
			shows:  old,
		},

		{reason: "a dry run", path: web + "?dryRun=All", answer: inJSON(made()), shows: old},
		{
			reason: "a dry create", method: "POST", path: all + "?dryRun=All&fieldManager=x",
			answer: inJSON(made()), shows: old,
		},
		{reason: "a dry delete", method: "DELETE", body: asJSON(dry), answer: success, shows: old},
		{
			reason: "a dry delete in protobuf", method: "DELETE", body: asProtobuf("v1", "DeleteOptions", &dry),
			answer: success, shows: old,
		},
		{
			reason: "a dry delete by query", method: "DELETE", path: web + "?dryRun=All", answer: success,
			shows: old,
		},
		{
			reason: "a delete whose body overrides its query", method: "DELETE", path: web + "?dryRun=All",
			body: []byte(`{}`), answer: success, shows: gone,
		},
		{
			reason: "a delete with options that cannot be read", method: "DELETE", body: []byte("dryRun: [All]"),
			answer: success, shows: old, asked: true,
		},
		{
			reason: "a dry delete of many", method: "DELETE", path: all, body: asJSON(dry), answer: success,
			shows: old,
		},
		{
			reason: "a dry eviction", method: "POST", path: web + "/eviction",
			body:   []byte(`{"kind":"Eviction","apiVersion":"policy/v1","deleteOptions":{"dryRun":["All"]}}`),
			answer: success, shows: old,
		},
		{reason: "as another user", header: impersonated, answer: inJSON(made()), shows: old},
		{reason: "a delete as another user", method: "DELETE", header: impersonated, answer: success, shows: old},
		{reason: "another server", server: "http://elsewhere", answer: inJSON(made()), shows: old},
		{reason: "another port", server: "http://apiserver.pipe:81", answer: inJSON(made()), shows: old},
		{reason: "another scheme", server: "https://apiserver.pipe:80", answer: inJSON(made()), shows: old},
		{reason: "a read", method: "GET", answer: inJSON(made()), shows: old},
		{
			reason: "an old form of a proxy", path: "/api/v1/proxy/namespaces/a/configmaps/web",
			answer: inJSON(made()), shows: old,
		},
		{
			reason: "a proxy", method: "POST", path: web + "/proxy/api/v1/namespaces/a/configmaps/web",
			answer: inJSON(made()), shows: old,
		},
		{reason: "exec", method: "POST", path: web + "/exec", answer: inJSON(made()), shows: old},
		{reason: "no resource", path: "/healthz", answer: inJSON(made()), shows: old},
		{reason: "not below the API", path: "/k8s" + web, answer: inJSON(made()), shows: old},
		{
			reason: "a resource of that name in another group",
			path:   "/apis/example.com/v1/namespaces/a/configmaps/web", answer: inJSON(made()), shows: old,
		},

		{reason: "a conflict", answer: refused(409, metav1.StatusReasonConflict, "web"), shows: old},
		{
			reason: "the object exists", method: "POST", path: all,
			answer: refused(409, metav1.StatusReasonAlreadyExists, "web"), shows: old,
		},
		{
			reason: "forbidden", method: "DELETE", answer: refused(403, metav1.StatusReasonForbidden, "web"),
			shows: old,
		},
		{reason: "invalid", answer: refused(422, metav1.StatusReasonInvalid, "web"), shows: old},
		{
			reason: "an update of an absent object", answer: refused(404, metav1.StatusReasonNotFound, "web"),
			shows: old,
		},
		{
			reason: "a delete of an absent object", method: "DELETE",
			answer: refused(404, metav1.StatusReasonNotFound, "web"), shows: gone,
		},
		{
			reason: "a delete with another absent object", method: "DELETE",
			answer: refused(404, metav1.StatusReasonNotFound, "other"), shows: old,
		},
		{
			reason: "a delete of a resource that is not served", method: "DELETE",
			answer: text(404, "text/plain", "404 page not found"), shows: old,
		},
		{reason: "too many requests", answer: refused(429, metav1.StatusReasonTooManyRequests, "web"), shows: old},
		{
			reason: "an internal error", answer: refused(500, metav1.StatusReasonInternalError, "web"),
			shows: old, asked: true,
		},
		{
			reason: "a timeout", method: "DELETE", answer: refused(504, metav1.StatusReasonTimeout, "web"),
			shows: old, asked: true,
		},
		{reason: "a bad gateway", answer: text(502, "text/html", "<html>"), shows: old, asked: true},

		{reason: "a delete", method: "DELETE", answer: success, shows: gone},
		{reason: "a delete in protobuf", method: "DELETE", answer: successProtobuf, shows: gone},
		{
			reason: "an accepted delete", method: "DELETE",
			answer: status(202, metav1.Status{Status: "Success"}), shows: old, asked: true,
		},
		{reason: "a delete that returns the object", method: "DELETE", answer: inJSON(made()), shows: gone},
		{reason: "a delete that returns the object in protobuf", method: "DELETE", answer: inProtobuf(made()), shows: gone},
		{reason: "a delete that returns the metadata", method: "DELETE", answer: partial, shows: gone},
		{
			reason: "a delete that waits for a finalizer", method: "DELETE", answer: inJSON(made(deleting("f"))),
			shows: answered,
		},
		{
			reason: "a delete that waits, in protobuf", method: "DELETE",
			answer: inProtobuf(made(deleting("f"))), shows: answered,
		},
		{reason: "an update during the deletion", answer: inJSON(made(deleting("f"))), shows: answered},
		{reason: "the last finalizer", answer: inJSON(made(deleting())), shows: gone},
		{reason: "the last finalizer, in protobuf", answer: inProtobuf(made(deleting())), shows: gone},
		{
			reason: "a delete of many", method: "DELETE", path: all,
			answer: plain(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`),
			shows:  old, asked: true,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				had := c.put(foreign("web", "k", "old"))
				c.seen(configMaps, had)
				answer := tc.answer(had.GetUID())
				var sent *http.Request
				next := disturb.Func(func(r *http.Request) (*http.Response, error) {
					if r.Body != nil {
						got, err := io.ReadAll(r.Body)
						if err != nil || !bytes.Equal(got, tc.body) {
							t.Errorf("the body arrives as %q, %v", got, err)
						}
					}
					return answer.response(r), nil
				})
				transport := client.Overlay(next, c.cache, client.OverlayOptions{})
				server, path, method := c.server.URL(), tc.path, tc.method
				if tc.server != "" {
					server = tc.server
				}
				if path == "" {
					path = web
				}
				if method == "" {
					method = "PUT"
				}
				var body io.Reader
				if tc.body != nil {
					body = io.MultiReader(bytes.NewReader(tc.body)) // can be read only once
				}
				sent, err := http.NewRequestWithContext(c.ctx, method, server+path, body)
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range tc.header {
					sent.Header[k] = v
				}
				asks := c.requests("list")
				res, err := transport.RoundTrip(sent)
				if err != nil {
					t.Fatal(err)
				}
				st := c.cache.Lookup(configMaps)[0]
				shows := gone
				if r, ok := st.Get(key("web")); ok {
					if shows = r.Version(); shows == had.GetResourceVersion() {
						shows = old
					}
				}
				if shows != tc.shows {
					t.Errorf("%q is shown, want %q", shows, tc.shows)
				}
				if asked := c.requests("list") > asks; asked != tc.asked {
					t.Errorf("the store asked the server: %v", asked)
				}
				if tc.shows == old && st.OverlayStats().Entries != 0 {
					t.Errorf("the overlay is not empty: %+v", st.OverlayStats())
				}
				got, err := io.ReadAll(res.Body)
				if !bytes.Equal(got, answer.body) || !errors.Is(err, answer.end) {
					t.Errorf("the caller gets %.100q, %v", got, err)
				}
				if err := res.Body.Close(); err != nil || res.Request != sent {
					t.Errorf("%v; the response belongs to another request: %v", err, res.Request != sent)
				}
			})
		})
	}
}

// The server's URL may have a path before that of the API, and may differ from that of the cache.
func TestOverlayServer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		server, request string
		shown           bool
	}{
		{"https://lb.example.com/k8s/one", "https://lb.example.com/k8s/one/api/v1/namespaces/a/configmaps", true},
		{"https://lb.example.com/k8s/one/", "https://LB.example.com:443/k8s/one/api/v1/namespaces/a/configmaps", true},
		{"https://lb.example.com/k8s/one", "https://lb.example.com/k8s/one-more/api/v1/namespaces/a/configmaps", false},
		{"https://lb.example.com/k8s/one", "https://lb.example.com/k8s/two/api/v1/namespaces/a/configmaps", false},
		{"https://lb.example.com/k8s/one", "https://lb.example.com/api/v1/namespaces/a/configmaps", false},
		{"", "http://apiserver.pipe/api/v1/namespaces/a/configmaps", true},
		{"", "http://apiserver.pipe/api/v1/namespaces/%61/configmaps", true},
	} {
		t.Run(fmt.Sprint(tc.server, " ", tc.request), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				cm := foreign("web")
				cm.UID, cm.ResourceVersion = "u", "1000"
				next := disturb.Func(func(r *http.Request) (*http.Response, error) {
					return canned{code: 201, body: asJSON(cm)}.response(r), nil
				})
				var o client.OverlayOptions
				if tc.server != "" {
					o.Server, _ = url.Parse(tc.server)
				}
				r, err := http.NewRequestWithContext(c.ctx, "POST", tc.request, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.Overlay(next, c.cache, o).RoundTrip(r); err != nil {
					t.Fatal(err)
				}
				if _, shown := c.cache.Lookup(configMaps)[0].Get(key("web")); shown != tc.shown {
					t.Errorf("the write is shown: %v", shown)
				}
			})
		})
	}
}
