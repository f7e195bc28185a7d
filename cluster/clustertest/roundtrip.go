package clustertest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// roundTrips is the number of random objects of each version.
const roundTrips = 500

// RoundTrip tests the functions of admission.Convert. It converts random objects of each version to the other version
// and back. The test fails if the result differs from the object, since a write would then lose data. The seed is
// constant, so a failure repeats.
func RoundTrip[S, H any](
	t testing.TB, toHub func(context.Context, *S) (*H, error), fromHub func(context.Context, *H) (*S, error),
) {
	t.Helper()
	there(t, toHub, fromHub)
	there(t, fromHub, toHub)
}

// source is a random source of math/rand with the algorithm of math/rand/v2.
type source struct{ *rand.PCG }

// Int63 implements Source of math/rand.
func (s source) Int63() int64 { return int64(s.Uint64() >> 1) }

// Seed implements Source of math/rand.
func (s source) Seed(seed int64) { s.PCG.Seed(uint64(seed), 0) }

// equal compares objects. A time is compared as an instant, since its fields are not exported.
var equal = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(time.Time.Equal); err != nil {
		panic(err)
	}
	return e
}()

// there converts random objects of type A to B and back.
func there[A, B any](
	t testing.TB, to func(context.Context, *A) (*B, error), back func(context.Context, *B) (*A, error),
) {
	t.Helper()
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	random := fuzzer.FuzzerFor(metafuzzer.Funcs, source{rand.NewPCG(1, 2)}, codecs).NumElements(1, 3)
	for range roundTrips {
		was := new(A)
		random.Fill(was)
		if o, ok := any(was).(metav1.Object); ok {
			o.SetManagedFields(nil) // conversions do not change them
		}
		other, err := to(t.Context(), was)
		if err != nil {
			t.Fatalf("cannot convert %T to another version: %v", was, err)
		}
		is, err := back(t.Context(), other)
		if err != nil {
			t.Fatalf("cannot convert %T to another version: %v", other, err)
		}
		if !equal.DeepEqual(was, is) {
			before, _ := yaml.Marshal(was) // an object that cannot be encoded has an empty text
			after, _ := yaml.Marshal(is)
			t.Fatalf("%T and back is another object (-before +after):\n%s", other,
				cmp.Diff(strings.Split(string(before), "\n"), strings.Split(string(after), "\n")))
		}
	}
}
