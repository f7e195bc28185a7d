package call_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
)

// TestUnknownOutcome checks the result of a write whose first try may or may not have been executed.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	exists := status(409, "AlreadyExists", `configmaps "web" already exists`)
	changed := status(409, "Conflict", "the object has been modified")
	ok := answer(200, web)
	other := answer(200, strings.Replace(web, `"k":"v"`, `"k":"other"`, 1))
	more := answer(200, strings.Replace(web, `"k":"v"`, `"k":"v","added":"by admission"`, 1))

	write := func(verb call.Verb, body string, opts ...func(*call.Request)) call.Request {
		r := call.Request{Verb: verb, Resource: configMaps, Kind: "ConfigMap", Namespace: "a", Name: "web"}
		if body != "" {
			r.Body = []byte(body)
		}
		for _, o := range opts {
			o(&r)
		}
		return r
	}
	patch := func(t types.PatchType) func(*call.Request) {
		return func(r *call.Request) { r.PatchType = t }
	}
	by := func(manager string) func(*call.Request) {
		return func(r *call.Request) { r.Query = url.Values{"fieldManager": {manager}} }
	}
	setBy := func(manager string) http.HandlerFunc {
		fields := `"metadata":{"managedFields":[{"manager":"` + manager +
			`","operation":"Update","fieldsV1":{"f:data":{"f:k":{}}}}],`
		return answer(200, strings.Replace(web, `"metadata":{`, fields, 1))
	}
	dry := func(r *call.Request) { r.Query = url.Values{"dryRun": {"All"}} }
	idempotent := func(r *call.Request) { r.Idempotent = true }
	subresource := func(s string) func(*call.Request) { return func(r *call.Request) { r.Subresource = s } }
	typed := func(r *call.Request) {
		r.Object = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a"},
			Data:       map[string]string{"k": "v"},
		}
	}
	const (
		named     = `{"metadata":{"name":"web","creationTimestamp":null,"labels":{}},"data":{"k":"v"}}`
		versioned = `{"metadata":{"name":"web","resourceVersion":"6"},"data":{"k":"v"}}`
		create    = "POST /api/v1/namespaces/a/configmaps"
		path      = " /api/v1/namespaces/a/configmaps/web"
	)
	const (
		succeeds = iota
		recovers
		refused          // fails with the server's refusal; the outcome is known
		doubtful         // fails; the outcome is unknown
		doubtfulConflict // fails with the server's 409; the outcome is unknown
	)
	for _, tc := range []struct {
		reason  string
		request call.Request
		script  []http.HandlerFunc
		paths   []string
		want    int
	}{
		{
			"a named create is repeated", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, ok},
			[]string{create, create},
			succeeds,
		},
		{
			"an existing object with all written fields is ours", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, ok},
			[]string{create, create, "GET" + path},
			recovers,
		},
		{
			"further fields do not matter", write(call.VerbCreate, "", typed),
			[]http.HandlerFunc{reset, exists, more},
			[]string{create, create, "GET" + path},
			recovers,
		},
		{
			"an existing object with other values is not ours", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, other},
			[]string{create, create, "GET" + path},
			refused,
		},
		{
			"the read that decides is retried, too", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, status(503, "ServiceUnavailable", ""), ok},
			[]string{create, create, "GET" + path, "GET" + path},
			recovers,
		},
		{
			"the existing object was deleted: create again", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, status(404, "NotFound", ""), ok},
			[]string{create, create, "GET" + path, create},
			succeeds,
		},
		{
			"an existing object is no success when nothing was in doubt", write(call.VerbCreate, named),
			[]http.HandlerFunc{exists, ok},
			[]string{create},
			refused,
		},
		{
			"429 leaves no doubt", write(call.VerbCreate, named),
			[]http.HandlerFunc{status(429, "TooManyRequests", ""), exists, ok},
			[]string{create, create},
			refused,
		},
		{
			"a create with a generated name is not repeated", write(call.VerbCreate, `{"metadata":{"generateName":"x-"}}`),
			[]http.HandlerFunc{reset, ok},
			[]string{create},
			doubtful,
		},
		{
			"unless the generated name exists", write(call.VerbCreate, `{"metadata":{"generateName":"x-"}}`),
			[]http.HandlerFunc{exists, ok},
			[]string{create, create},
			succeeds,
		},
		{
			"an action is not repeated", write(call.VerbCreate, named, subresource("eviction")),
			[]http.HandlerFunc{status(500, "InternalError", ""), ok},
			[]string{"POST" + path + "/eviction"},
			doubtful,
		},
		{
			"unless the caller declares it idempotent", write(call.VerbCreate, named, subresource("eviction"), idempotent),
			[]http.HandlerFunc{status(500, "InternalError", ""), ok},
			[]string{"POST" + path + "/eviction", "POST" + path + "/eviction"},
			succeeds,
		},
		{
			"an update with a version is repeated", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{reset, ok},
			[]string{"PUT" + path, "PUT" + path},
			succeeds,
		},
		{
			"an update without one is not", write(call.VerbUpdate, named),
			[]http.HandlerFunc{reset, ok},
			[]string{"PUT" + path},
			doubtful,
		},
		{
			"a conflict after doubt is compared with the live object: done", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"PUT" + path, "PUT" + path, "GET" + path},
			recovers,
		},
		{
			"or not done", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{reset, changed, other},
			[]string{"PUT" + path, "PUT" + path, "GET" + path},
			doubtfulConflict, // it may have been executed, and overwritten
		},
		{
			"a conflict without doubt is a conflict", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{changed, ok},
			[]string{"PUT" + path},
			refused,
		},
		{
			"a merge patch is idempotent", write(call.VerbPatch, `{"data":{"k":"v"}}`, patch(types.MergePatchType)),
			[]http.HandlerFunc{reset, ok},
			[]string{"PATCH" + path, "PATCH" + path},
			succeeds,
		},
		{
			"an executed merge patch with a version",
			write(call.VerbPatch, `{"metadata":{"resourceVersion":"6"},"data":{"k":"v","x":null}}`, patch(types.MergePatchType)),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"PATCH" + path, "PATCH" + path, "GET" + path},
			recovers,
		},
		{
			"a merge patch counts if the live object has all its values, and managed fields name us",
			write(call.VerbPatch, `{"metadata":{"resourceVersion":"6"},"data":{"k":"v"}}`, patch(types.MergePatchType),
				by("us")),
			[]http.HandlerFunc{reset, changed, setBy("us")},
			[]string{"PATCH" + path, "PATCH" + path, "GET" + path},
			recovers,
		},
		{
			"but not if they name another client: both have counted from 1 to 2",
			write(call.VerbPatch, `{"metadata":{"resourceVersion":"6"},"data":{"k":"v"}}`, patch(types.MergePatchType),
				by("us")),
			[]http.HandlerFunc{reset, changed, setBy("them")},
			[]string{"PATCH" + path, "PATCH" + path, "GET" + path},
			doubtfulConflict,
		},
		{
			"a merge patch whose removal was not executed",
			write(call.VerbPatch, `{"metadata":{"resourceVersion":"6"},"data":{"k":null}}`, patch(types.MergePatchType)),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"PATCH" + path, "PATCH" + path, "GET" + path},
			doubtfulConflict, // it may have been executed, and overwritten
		},
		{
			"a json patch may not be repeated", write(call.VerbPatch, `[{"op":"add","path":"/data/l/-","value":1}]`,
				patch(types.JSONPatchType)),
			[]http.HandlerFunc{reset, ok},
			[]string{"PATCH" + path},
			doubtful,
		},
		{
			"unless it tests the version", write(call.VerbPatch,
				`[{"op":"test","path":"/metadata/resourceVersion","value":"6"}]`, patch(types.JSONPatchType)),
			[]http.HandlerFunc{reset, ok},
			[]string{"PATCH" + path, "PATCH" + path},
			succeeds,
		},
		{
			"a strategic patch without a version may not be repeated",
			write(call.VerbPatch, `{"data":{"k":"v"}}`, patch(types.StrategicMergePatchType)),
			[]http.HandlerFunc{reset, ok},
			[]string{"PATCH" + path},
			doubtful,
		},
		{
			"a server-side apply is idempotent", write(call.VerbApply, named),
			[]http.HandlerFunc{reset, ok},
			[]string{"PATCH" + path, "PATCH" + path},
			succeeds,
		},
		{
			"a delete is repeated, and 404 then means success", write(call.VerbDelete, ""),
			[]http.HandlerFunc{reset, status(404, "NotFound", "")},
			[]string{"DELETE" + path, "DELETE" + path},
			recovers,
		},
		{
			"a dry run of a delete deletes nothing, so 404 stays an error", write(call.VerbDelete, "", dry),
			[]http.HandlerFunc{reset, status(404, "NotFound", "")},
			[]string{"DELETE" + path, "DELETE" + path},
			refused,
		},
		{
			"so it does with options in the body",
			write(call.VerbDelete, `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`),
			[]http.HandlerFunc{reset, status(404, "NotFound", "")},
			[]string{"DELETE" + path, "DELETE" + path},
			refused,
		},
		{
			"a delete with other options deletes",
			write(call.VerbDelete, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`),
			[]http.HandlerFunc{reset, status(404, "NotFound", "")},
			[]string{"DELETE" + path, "DELETE" + path},
			recovers,
		},
		{
			"an existing object fails the dry run of a create", write(call.VerbCreate, named, dry),
			[]http.HandlerFunc{reset, exists, ok},
			[]string{create, create},
			refused,
		},
		{
			"a dry run of a write that must not be repeated is repeated",
			write(call.VerbCreate, `{"metadata":{"generateName":"x-"}}`, dry),
			[]http.HandlerFunc{reset, ok},
			[]string{create, create},
			succeeds,
		},
		{
			"the dry run of an update conflicts with any change", write(call.VerbUpdate, versioned, dry),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"PUT" + path, "PUT" + path},
			refused,
		},
		{
			"a delete of a missing object is an error", write(call.VerbDelete, ""),
			[]http.HandlerFunc{status(404, "NotFound", "")},
			[]string{"DELETE" + path},
			refused,
		},
		{
			"an update does not count as executed while a removed field exists",
			write(call.VerbUpdate, `{"metadata":{"resourceVersion":"6"},"data":{}}`),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"PUT" + path, "PUT" + path, "GET" + path},
			doubtfulConflict, // it may have been executed, and overwritten
		},
		{
			"without the right to read, the error says that it exists, and that the outcome is unknown",
			write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, status(403, "Forbidden", "you may not get")},
			[]string{create, create, "GET" + path},
			doubtfulConflict,
		},
		{
			"the same for an answer of a proxy", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, withHeader(func(w http.ResponseWriter, _ *http.Request) {
				w.Write([]byte("<html>"))
			}, "Content-Type", "text/html")},
			[]string{create, create, "GET" + path},
			doubtfulConflict,
		},
		{
			"and for a server that cannot be read", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{reset, changed, status(503, "ServiceUnavailable", "")},
			append([]string{"PUT" + path, "PUT" + path}, slices.Repeat([]string{"GET" + path}, 5)...),
			doubtfulConflict,
		},
		{
			"a read whose credentials have expired reloads them", write(call.VerbCreate, named),
			[]http.HandlerFunc{reset, exists, status(401, "Unauthorized", ""), ok},
			[]string{create, create, "GET" + path, "GET" + path},
			recovers,
		},
		{
			"the conflict of an action cannot be resolved by a read",
			write(call.VerbCreate, named, subresource("binding"), idempotent),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"POST" + path + "/binding", "POST" + path + "/binding"},
			doubtfulConflict,
		},
		{
			"nor that of a body without a readable name", write(call.VerbCreate, "name: web", idempotent),
			[]http.HandlerFunc{reset, exists, ok},
			[]string{create, create},
			doubtfulConflict,
		},
		{
			"an update whose object was deleted fails with not found", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{reset, changed, status(404, "NotFound", "")},
			[]string{"PUT" + path, "PUT" + path, "GET" + path},
			doubtful,
		},
		{
			"a delete with a precondition that finds another object", write(call.VerbDelete, `{"preconditions":{"uid":"u0"}}`),
			[]http.HandlerFunc{reset, changed, ok},
			[]string{"DELETE" + path, "DELETE" + path},
			doubtfulConflict,
		},
		{
			"a redirected create is not followed", write(call.VerbCreate, named),
			[]http.HandlerFunc{withHeader(answer(307, ""), "Location", "/elsewhere"), ok},
			[]string{create},
			refused,
		},
		{
			"nor turned into a read, whose answer would count as its own", write(call.VerbCreate, named),
			[]http.HandlerFunc{withHeader(answer(302, ""), "Location", "/api/v1/namespaces/a/configmaps/web"), ok},
			[]string{create},
			refused,
		},
		{
			"a page of a proxy leaves the outcome unknown", write(call.VerbUpdate, versioned),
			[]http.HandlerFunc{withHeader(func(w http.ResponseWriter, _ *http.Request) {
				w.Write([]byte("<html>"))
			}, "Content-Type", "text/html")},
			[]string{"PUT" + path},
			doubtful,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, tc.script...)
				a, err := call.Do(t.Context(), b.client, tc.request, call.Policy{})
				switch tc.want {
				case succeeds, recovers:
					if err != nil || a.Recovered != (tc.want == recovers) {
						t.Errorf("got %+v, %v", a, err)
					}
				case refused, doubtful, doubtfulConflict:
					if err == nil || errors.Is(err, call.ErrOutcomeUnknown) != (tc.want != refused) {
						t.Errorf("got %v; outcome unknown: want %v", err, tc.want != refused)
					}
					if e, ok := errors.AsType[*call.Error](err); tc.want == doubtfulConflict &&
						!(ok && e.Code == http.StatusConflict && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err))) {
						t.Errorf("got %v, want the refusal of the write", err)
					}
				}
				var paths []string
				for _, r := range b.seen() {
					method, rest, _ := strings.Cut(r, " ")
					uri, _, _ := strings.Cut(rest, " ")
					uri, _, _ = strings.Cut(uri, "?")
					paths = append(paths, method+" "+uri)
				}
				if diff := cmp.Diff(tc.paths, paths); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestProtobufCreateInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stored []byte
		b := newBench(t, call.Options{}, reset, status(409, "AlreadyExists", ""),
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", call.Protobuf)
				w.Write(stored)
			})
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a"}, Data: map[string]string{"k": "v"}}
		stored = protobuf(t, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a", UID: "u1", ResourceVersion: "7"},
			Data:       map[string]string{"k": "v"},
		}, "ConfigMap")
		a, err := call.Do(t.Context(), b.client, call.Request{
			Verb: call.VerbCreate, Resource: configMaps, Kind: "ConfigMap", Namespace: "a",
			Object: cm, ContentType: call.Protobuf, Accept: call.Protobuf,
		}, call.Policy{})
		if err != nil || !a.Recovered || a.ContentType != call.Protobuf {
			t.Fatalf("got %+v, %v", a, err)
		}
		var got corev1.ConfigMap
		if err := a.Into(&got); err != nil || got.UID != "u1" || got.Kind != "ConfigMap" {
			t.Errorf("got %+v, %v", got, err)
		}
		if cm.Kind != "" {
			t.Error("the caller's object was changed")
		}
	})
}

func TestJSONPatchConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, status(422, "Invalid", "the path does not exist"))
		_, err := call.Do(t.Context(), b.client,
			call.Request{
				Verb: call.VerbPatch, PatchType: types.JSONPatchType, Resource: configMaps, Namespace: "a", Name: "web",
				Body: []byte(`[]`),
			}, call.Policy{})
		if !apierrors.IsInvalid(err) || len(b.seen()) != 1 {
			t.Errorf("after %d requests: %v", len(b.seen()), err)
		}
	})
}

// A delete with a body and with options in its query is not sent, since kube-apiserver ignores these options.
func TestDeleteOptionsInTwoPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, call.Options{}, answer(200, web))
		r := call.Request{Verb: call.VerbDelete, Resource: configMaps, Namespace: "a", Name: "web"}
		for _, verb := range []call.Verb{call.VerbDelete, call.VerbDeleteCollection} {
			for _, option := range []string{"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents"} {
				r.Verb, r.Query, r.Body = verb, url.Values{option: {"x"}}, []byte(`{"preconditions":{"uid":"u"}}`)
				if _, err := call.Do(t.Context(), b.client, r, call.Policy{}); !isInvalid(err) {
					t.Errorf("%s with a body and %s: %v, want an invalid request", verb, option, err)
				}
			}
		}
		if n := len(b.seen()); n != 0 {
			t.Fatalf("%d requests were sent", n)
		}
		r.Query = url.Values{"labelSelector": {"app=web"}} // which is not one of the options
		if _, err := call.Do(t.Context(), b.client, r, call.Policy{}); err != nil {
			t.Error(err)
		}
		r.Query, r.Body = url.Values{"dryRun": {"All"}}, nil
		if _, err := call.Do(t.Context(), b.client, r, call.Policy{}); err != nil {
			t.Error(err)
		}
	})
}
