package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/internal/source"
)

// counted counts how often it is decoded, and blocks decoding until the test releases it.
type counted struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
}

func (c *counted) DeepCopyObject() runtime.Object { return c }

var decoding struct {
	count atomic.Int32
	begun chan struct{}
	gate  chan error
}

func (c *counted) UnmarshalJSON(raw []byte) error {
	decoding.count.Add(1)
	decoding.begun <- struct{}{}
	if err := <-decoding.gate; err != nil {
		return err
	}
	type plain counted
	return json.Unmarshal(raw, (*plain)(c))
}

// Concurrent readers of one object wait for a single decoding and get the same result.
func TestConcurrentReadersDecodeOnce(t *testing.T) {
	for _, hot := range []int64{0, -1} {
		decoding.count.Store(0)
		decoding.begun, decoding.gate = make(chan struct{}, 100), make(chan error, 100)
		s := New(Options{Namespaced: true, HotBytes: hot})
		defer s.Close()
		raw := fmt.Appendf(nil,
			`{"kind":"C","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"1"}}`)
		o := source.Object{Raw: raw, Encoding: source.JSON}
		if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
			t.Fatal(err)
		}
		if err := s.Sink("").Apply(source.Added, &o); err != nil {
			t.Fatal(err)
		}
		r, _ := s.Get(Key{"a", "x"})

		failed := errors.New("not now")
		decoding.gate <- failed
		decoding.gate <- failed // the fallback decoder decodes again if the fast one fails
		if _, err := As[counted](r); !errors.Is(err, failed) {
			t.Fatalf("error: %v", err)
		}
		<-decoding.begun
		<-decoding.begun

		const readers = 50
		var all sync.WaitGroup
		got := make([]*counted, readers)
		for i := range readers {
			all.Go(func() {
				var err error
				if got[i], err = As[counted](r); err != nil {
					t.Error(err)
				}
			})
		}
		<-decoding.begun // one reader decodes; the others arrive before or after its end
		decoding.gate <- nil
		all.Wait()
		if n := decoding.count.Load(); n != 3 {
			t.Errorf("hot set of %d bytes: decoded %d times after a failure, want once", hot, n-2)
		}
		for _, o := range got {
			if o != got[0] {
				t.Error("readers got different objects")
			}
		}
	}
}
