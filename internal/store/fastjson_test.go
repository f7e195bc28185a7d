package store

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"
)

// TestFastDecoderAgrees decodes random objects with both decoders.
func TestFastDecoderAgrees(t *testing.T) {
	t.Parallel()
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, randSource{rand.New(rand.NewPCG(1, 2))},
		serializer.NewCodecFactory(runtime.NewScheme()))
	for _, proto := range []runtime.Object{
		&corev1.Pod{}, &corev1.Service{}, &corev1.Node{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Event{},
		&corev1.PersistentVolume{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{},
		&batchv1.CronJob{},
		&networkingv1.Ingress{}, &networkingv1.NetworkPolicy{}, &rbacv1.ClusterRole{},
		&autoscalingv2.HorizontalPodAutoscaler{},
		&metav1.PartialObjectMetadata{},
	} {
		typ := reflect.TypeOf(proto).Elem()
		if hasInterface(typ, map[reflect.Type]bool{}) {
			t.Logf("%s has an interface: it is decoded slowly", typ)
		}
		for range 15 {
			o := reflect.New(typ).Interface()
			fill.Fill(o)
			raw, err := json.Marshal(o)
			if err != nil {
				continue // a random value without a JSON form
			}
			var d jsonDecoder
			got, want := reflect.New(typ).Interface(), reflect.New(typ).Interface()
			errGot, errWant := d.unmarshal(raw, got), kjson.UnmarshalCaseSensitivePreserveInts(raw, want)
			if (errGot == nil) != (errWant == nil) {
				t.Fatalf("%s: error %v, want %v\n%s", typ, errGot, errWant, raw)
			}
			if errWant == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: decoders differ (-sigs +fast):\n%s", typ, cmp.Diff(want, got))
			}
		}
	}
}

type randSource struct{ r *rand.Rand }

func (s randSource) Int63() int64 { return s.r.Int64() }
func (s randSource) Seed(int64)   {}

func TestFastDecoderFallsBack(t *testing.T) {
	t.Parallel()
	type loose struct{ Data map[string]any }
	var d jsonDecoder
	for reason, tc := range map[string]struct {
		raw  string
		into any
		want any
	}{
		"duplicate names: the last one counts": {
			`{"data":{"k":"1"},"data":{"k":"2"}}`, &corev1.ConfigMap{}, &corev1.ConfigMap{Data: map[string]string{"k": "2"}},
		},
		"invalid UTF-8 is replaced": {
			"{\"data\":{\"k\":\"\xff\"}}", &corev1.ConfigMap{},
			&corev1.ConfigMap{Data: map[string]string{"k": "\ufffd"}},
		},
		"names are case-sensitive": {`{"Data":{"k":"1"}}`, &corev1.ConfigMap{}, &corev1.ConfigMap{}},
		"null is nothing":          {`{"data":null,"metadata":null}`, &corev1.ConfigMap{}, &corev1.ConfigMap{}},
		"integers stay integers": {
			`{"Data":{"n":9007199254740993}}`, &loose{},
			&loose{Data: map[string]any{"n": int64(9007199254740993)}},
		},
	} {
		if err := d.unmarshal([]byte(tc.raw), tc.into); err != nil {
			t.Errorf("%s: %v", reason, err)
		} else if diff := cmp.Diff(tc.want, tc.into); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	if err := d.unmarshal([]byte(`{"data":1}`), &corev1.ConfigMap{}); err == nil {
		t.Error("a number was taken for a map")
	}
}

func TestFastDecoderReadsTimes(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`null`, `"2026-01-02T03:04:05Z"`, `"\u0032026-01-02T03:04:05Z"`,
		`"2026-01-02T03:04:05.5+02:00"`, `""`, `"x"`, `1`, `"2026-01-02"`,
	} {
		var d jsonDecoder
		object := []byte(`{"metadata":{"creationTimestamp":` + raw + `,"deletionTimestamp":` + raw + `}}`)
		var got, want corev1.ConfigMap
		errGot, errWant := d.unmarshal(object, &got), kjson.UnmarshalCaseSensitivePreserveInts(object, &want)
		if (errGot == nil) != (errWant == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v and %v, want %v and %v", raw, got.ObjectMeta, errGot, want.ObjectMeta, errWant)
		}
	}
}
