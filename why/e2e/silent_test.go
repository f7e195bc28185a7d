package e2e_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/why"
)

// muted is the response to a watch that at some time delivers no more events, and does not end.
type muted struct {
	io.ReadCloser
	silent *atomic.Bool
	ended  <-chan struct{}
}

func (m muted) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if m.silent.Load() {
		<-m.ended
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestSilentWatch: the events of a watch are lost, while other requests are answered.
func TestSilentWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("x")
	var silent atomic.Bool
	w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") != "" {
			answer.Body = muted{answer.Body, &silent, r.Context().Done()}
		}
		return answer, err
	})
	rt := w.program(well)
	w.expect(rt, "x", why.Ended, nil)
	silent.Store(true)
	if _, err := w.kube.CoreV1().ConfigMaps(w.ns).Patch(t.Context(), "x", types.MergePatchType,
		[]byte(`{"data":{"a":"b"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect(rt, "x", why.SourceStale, map[string]string{"resource": "configmaps", "known": "", "server": ""})
}
