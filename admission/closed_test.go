package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAHookThatCannotDecideAllowsNothing: the answer is an error, so that the API server applies the failure policy.
func TestAHookThatCannotDecideAllowsNothing(t *testing.T) {
	t.Parallel()
	exit := runtime.Goexit
	for reason, decide := range map[string]func(*Request[corev1.Pod]) error{
		"it panics":             func(*Request[corev1.Pod]) error { panic("boom") },
		"it ends its goroutine": func(*Request[corev1.Pod]) error { exit(); return nil },
	} {
		handler := served(func(h *Hooks) {
			rule := Rule{OnFailure: FailClosed}
			fn := func(_ context.Context, r *Request[corev1.Pod]) error { return decide(r) }
			Validate(h, rule, fn)
			Mutate(h, rule, fn)
		})
		for _, path := range []string{"/validate/validate.pod.v1.core", "/mutate/mutate.pod.v1.core"} {
			body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",` +
				`"object":{"kind":"Pod","apiVersion":"v1"}}}`
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			answered := make(chan struct{})
			go func() { defer close(answered); handler.ServeHTTP(w, r) }() // the hook may end the goroutine
			<-answered
			var review admissionv1.AdmissionReview
			_ = json.Unmarshal(w.Body.Bytes(), &review) // an invalid review allows nothing
			if w.Code != http.StatusInternalServerError || review.Response != nil {
				t.Errorf("%s: %s answers %d %s", reason, path, w.Code, w.Body)
			}
		}
	}
}

// TestConversionOfAllOrNone: the metadata is carried over, and one object that cannot be converted fails the request.
func TestConversionOfAllOrNone(t *testing.T) {
	t.Parallel()
	handler := served(func(h *Hooks) {
		Convert(h, func(_ context.Context, in *autoscalingv1.HorizontalPodAutoscaler) (
			*autoscalingv2.HorizontalPodAutoscaler, error,
		) {
			switch in.Spec.MaxReplicas {
			case 13:
				return nil, errors.New("unlucky")
			case 14:
				panic("boom")
			}
			out := &autoscalingv2.HorizontalPodAutoscaler{}
			out.Spec.MaxReplicas = in.Spec.MaxReplicas
			return out, nil
		}, func(context.Context, *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
			return nil, errors.New("this conversion is not requested")
		})
	})
	object := func(replicas string) string {
		return `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"a","uid":"u",` +
			`"labels":{"l":"1"},"finalizers":["x/y"]},"spec":{"maxReplicas":` + replicas + `}}`
	}
	for _, tc := range []struct {
		reason, objects string
		want            []int32 // replicas; nil: a failure
	}{
		{"two objects, in their order", object("3") + "," + object("4"), []int32{3, 4}},
		{"the second fails", object("3") + "," + object("13"), nil},
		{"the second panics", object("3") + "," + object("14"), nil},
		{"the second is of a version that nothing converts", object("3") +
			`,{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v3","metadata":{"name":"b"}}`, nil},
	} {
		body := `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"1",` +
			`"desiredAPIVersion":"autoscaling/v2","objects":[` + tc.objects + `]}}`
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert/horizontalpodautoscaler.autoscaling",
			strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var review apiextensionsv1.ConversionReview
		if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil ||
			review.Response.UID != "1" {
			t.Errorf("%s: %d %s", tc.reason, w.Code, w.Body)
			continue
		}
		got := review.Response
		if (got.Result.Status == metav1.StatusSuccess) != (tc.want != nil) || len(got.ConvertedObjects) != len(tc.want) {
			t.Errorf("%s: %s", tc.reason, w.Body)
			continue
		}
		for i, raw := range got.ConvertedObjects {
			var o autoscalingv2.HorizontalPodAutoscaler
			if err := json.Unmarshal(raw.Raw, &o); err != nil || o.APIVersion != "autoscaling/v2" || o.UID != "u" ||
				o.Name != "a" || o.Labels["l"] != "1" || len(o.Finalizers) != 1 || o.Spec.MaxReplicas != tc.want[i] {
				t.Errorf("%s: object %d is %s, %v", tc.reason, i, raw.Raw, err)
			}
		}
	}
}
