package admission

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
)

// served returns the handler for the API server, without a server.
func served(declare func(*Hooks)) http.Handler {
	h := Serve(fairlead.New(&rest.Config{Host: "127.0.0.1:1"}), Options{Name: "fuzz", Namespace: "fuzz", Service: "fuzz"})
	declare(h)
	return h.server.handler(h.declared.all())
}

// FuzzReview sends arbitrary bodies. Each is answered as invalid, or with a review.
func FuzzReview(f *testing.F) {
	rule := Rule{OnFailure: FailClosed}
	handler := served(func(h *Hooks) {
		all := rule
		all.Operations = []Operation{Create, Update, Delete}
		Validate(h, all, func(_ context.Context, r *Request[corev1.Pod]) error {
			if r.Operation != Delete && r.Object == nil || r.Operation != Create && r.Old == nil {
				panic("no object")
			}
			return errors.New("no")
		})
		Mutate(h, rule, func(_ context.Context, r *Request[corev1.Pod]) error {
			r.Object.Spec.Containers = append(r.Object.Spec.Containers, corev1.Container{Name: "more"})
			return nil
		})
	})
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`
	for _, body := range []string{
		"", "{", "null", "[]", head + `null}`, head + `{"uid":"1"}}`,
		head + `{"uid":"1","operation":"CREATE","object":{"kind":"Pod","apiVersion":"v1",` +
			`"spec":{"containers":[{"name":"a","x":1}]}}}}`,
		head + `{"uid":"1","operation":"DELETE","oldObject":{"kind":"Pod","apiVersion":"v1"}}}`,
		head + `{"uid":"1","operation":"CREATE","object":{"kind":"Pod","apiVersion":"v1","spec":null}}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/validate/validate.pod.v1.core", "/mutate/mutate.pod.v1.core"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body)))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			switch w.Code {
			case http.StatusBadRequest:
			case http.StatusOK:
				var tree any
				if err := decodeTree(w.Body.Bytes(), &tree); err != nil || !strings.Contains(w.Body.String(), `"uid"`) {
					t.Fatalf("%s: %v %s", path, err, w.Body)
				}
			default:
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	})
}
