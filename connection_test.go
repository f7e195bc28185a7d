package fairlead_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

// countedConn is a connection that counts when it closes.
type countedConn struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// TestThreeConnections: discovery, reads and writes share one connection, lists and watches another one. The Lease has
// the third. All are closed when Run returns.
func TestThreeConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := apiserver.New(apiserver.Options{Pipe: true, HTTP2: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var open atomic.Int32
		cfg := s.Config()
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &countedConn{Conn: conn, open: &open}, nil
		}
		rt := fairlead.New(cfg, fairlead.WithLeaderElection("default", "operator"))
		observe.Source[corev1.ConfigMap](rt, Maps)
		observe.Source[corev1.Secret](rt, "secrets")
		nothing := func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil }
		observe.On(rt, Maps, nothing)
		observe.On(rt, "secrets", func(context.Context, observe.Event[corev1.Secret]) error { return nil })
		r := run(rt)
		time.Sleep(time.Second)
		var writes sync.WaitGroup
		for i := range 20 {
			writes.Go(func() {
				c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("c", i)}}
				if err := rt.Client().Create(t.Context(), c); err != nil {
					t.Error(err)
				}
				var pods corev1.PodList // not watched, so the client asks the server
				if err := rt.Client().List(t.Context(), &pods); err != nil {
					t.Error(err)
				}
			})
		}
		writes.Wait()
		time.Sleep(time.Minute)
		if n := open.Load(); n != 3 {
			t.Errorf("%d connections are open, want one for requests, one for watches and one for the Lease", n)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after Run", n)
		}
	})
}
