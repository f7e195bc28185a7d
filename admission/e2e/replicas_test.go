package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	xmaps "maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// hasty are certificates that end within a test. Those of X.509 count whole seconds.
var hasty = admission.Certificates{
	Authority: 16 * time.Second, Leaf: 8 * time.Second, Overlap: 9 * time.Second, Settle: 2 * time.Second,
	Look: 250 * time.Millisecond,
}

// A rotation loses no request: neither of the API server, nor of who knows the configuration of a moment ago and makes
// a new connection each time, to one of two replicas.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	var log testlog.Book
	var asked atomic.Int64
	declare := func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, func(context.Context, *hookbed.Maps) error {
			asked.Add(1)
			return nil
		})
	}
	h := admissiontest.StartWith(t, env.Config(t), admission.Options{Certificates: hasty}, declare,
		fairlead.WithLogger(log.Logger()))
	second := h.Options
	var err error
	if second.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	other := fairlead.New(env.Config(t))
	replica := admission.Serve(other, second)
	declare(replica)
	hookbed.Run(t, other)
	<-replica.Ready()
	addresses := []string{h.Options.Listener.Addr().String(), second.Listener.Addr().String()}
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	var all sync.WaitGroup
	var sent atomic.Int64
	for i := range 2 {
		all.Go(func() { // the API server
			for n := 0; ctx.Err() == nil; n++ {
				_, err := b.API.CoreV1().ConfigMaps(h.Namespace).Create(b.Ctx, hookbed.ConfigMap(fmt.Sprintf("m-%d-%d", i, n)),
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil {
					t.Errorf("after %d requests: %v", n, err)
					return
				}
				sent.Add(1)
			}
		})
	}
	leaves, authorities := map[string]bool{}, map[string]bool{}
	all.Go(func() { // until there were enough rotations and requests
		defer cancel()
		type known struct {
			at     time.Time
			bundle []byte
		}
		var history []known
		for n := 0; ctx.Err() == nil && (len(leaves) < 8 || len(authorities) < 3 || sent.Load() < 50); n++ {
			history = append(history, known{time.Now(), b.Bundle(h.Options.Name)})
			history = slices.DeleteFunc(history, func(k known) bool { return time.Since(k.at) > 1500*time.Millisecond })
			if len(history) == 0 { // it took too long to read
				continue
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(history[0].bundle)
			conn, err := tls.Dial("tcp", addresses[n%2], &tls.Config{RootCAs: roots})
			if time.Since(history[0].at) > hasty.Settle { // it took too long to connect
				if err == nil {
					conn.Close()
				}
				continue
			}
			if err != nil {
				t.Errorf("who knows the configuration of a moment ago: %v", err)
				return
			}
			chain := conn.ConnectionState().VerifiedChains[0]
			conn.Close()
			leaves[chain[0].SerialNumber.String()], authorities[chain[1].SerialNumber.String()] = true, true
		}
	})
	all.Wait()
	if len(leaves) < 8 || len(authorities) < 3 || sent.Load() < 50 || asked.Load() < sent.Load() {
		t.Errorf("%d certificates of %d authorities were served, %d requests sent, %d asked", len(leaves), len(authorities),
			sent.Load(), asked.Load())
	}
	t.Logf("%d certificates of %d authorities, %d requests", len(leaves), len(authorities), sent.Load())
	secret, err := b.API.CoreV1().Secrets(h.System).Get(b.Ctx, h.System+"-webhook-ca", metav1.GetOptions{})
	if err != nil || len(secret.Data) > 6 {
		t.Errorf("the Secret has %d entries: %v", len(secret.Data), err)
	}
}

// balancer passes connections on to several addresses, in turns, as a Service does.
type balancer struct {
	net.Listener
	next atomic.Int64
	to   []net.Listener
	all  sync.WaitGroup
}

func newBalancer(t *testing.T, n int) *balancer {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	b := &balancer{Listener: listen()}
	for range n {
		b.to = append(b.to, listen())
	}
	b.all.Go(func() {
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			b.all.Go(func() { b.pass(c) })
		}
	})
	t.Cleanup(func() {
		b.Close()
		b.all.Wait()
	})
	return b
}

// pass connects to the next one that is there.
func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	for range b.to {
		at := b.to[int(b.next.Add(1))%len(b.to)].Addr().String()
		up, err := net.Dial("tcp", at)
		if err != nil {
			continue
		}
		defer up.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(up, c)
			_ = up.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, up)
		c.Close()
		<-done
		return
	}
}

// Replicas that start at once make one authority, and the API server trusts each of them; one of them can go.
func TestReplicas(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	const n = 3
	lb := newBalancer(t, n)
	system, tested := env.Namespace(t), env.Namespace(t)
	only := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: tested}}
	var asked [n]atomic.Int64
	var replicas [n]*admission.Hooks
	var stops [n]func()
	for i := range n {
		rt := fairlead.New(env.Config(t), fairlead.WithStopTimeout(testlimit.Wait))
		replicas[i] = admission.Serve(rt, admission.Options{
			Name: system, Namespace: system, URL: "https://" + lb.Addr().String(), Listener: lb.to[i], Only: only,
			Linger: 200 * time.Millisecond,
		})
		admission.Validate(replicas[i], admission.Rule{OnFailure: admission.FailClosed}, func(context.Context, *hookbed.Maps) error {
			asked[i].Add(1)
			return errors.New("refused")
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(b.Ctx))
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		stops[i] = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
		t.Cleanup(stops[i])
	}
	for _, r := range replicas {
		<-r.Ready()
	}
	config, err := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Ctx, system,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle := config.Webhooks[0].ClientConfig.CABundle
	if got := strings.Count(string(bundle), "BEGIN CERTIFICATE"); got != 1 {
		t.Errorf("%d authorities are trusted, want one", got)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for i, l := range lb.to {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots})
		if err != nil {
			t.Errorf("replica %d: %v", i, err)
			continue
		}
		conn.Close()
	}
	ask := func() string {
		_, err := b.API.CoreV1().ConfigMaps(tested).Create(b.Ctx, hookbed.ConfigMap("x"),
			metav1.CreateOptions{DryRun: []string{"All"}})
		return hookbed.Text(err)
	}
	b.Eventually("the API server asks", func() string {
		if got := ask(); !strings.Contains(got, "refused") {
			return "got: " + got
		}
		return ""
	})
	for i := range n - 1 { // whoever has the connection of the API server says good-bye
		stops[i]()
		for range 5 {
			if got := ask(); !strings.Contains(got, "denied the request: refused") {
				t.Errorf("after replica %d has stopped: %s", i, got)
			}
		}
	}
	if asked[n-1].Load() == 0 {
		t.Error("the last replica was not asked")
	}
	stops[n-1]()
}

// A Secret that is edited, or gone, is mended, and who is served meanwhile notices nothing.
func TestBrokenSecret(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	var log testlog.Book
	certificates := admission.Certificates{Settle: time.Second, Look: 50 * time.Millisecond}
	h := admissiontest.StartWith(t, env.Config(t), admission.Options{Certificates: certificates},
		func(h *admission.Hooks) {
			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed}, func(context.Context,
				*hookbed.Maps,
			) error {
				return nil
			})
		}, fairlead.WithLogger(log.Logger()))
	secrets := b.API.CoreV1().Secrets(h.System)
	name := h.System + "-webhook-ca"
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if _, err := b.API.CoreV1().ConfigMaps(h.Namespace).Create(b.Ctx, hookbed.ConfigMap("m"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("while the Secret is broken: %v", err)
				return
			}
		}
	})
	entry := func(suffix string) string {
		s, err := secrets.Get(b.Ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range s.Data {
			if strings.HasSuffix(k, ".key") {
				return strings.TrimSuffix(k, ".key") + suffix
			}
		}
		t.Fatalf("no key in the Secret")
		return ""
	}
	for _, tc := range []struct {
		reason string
		breaks func() error
		says   string // of the log
	}{
		{"a key of junk", func() error {
			_, err := secrets.Patch(b.Ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:"anVuaw=="}}`,
				entry(".key")),
				metav1.PatchOptions{})
			return err
		}, "cannot use the authority in"},
		{"a certificate of junk", func() error {
			_, err := secrets.Patch(b.Ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:"anVuaw=="}}`,
				entry(".crt")),
				metav1.PatchOptions{})
			return err
		}, "there is no PEM block"},
		{"empty", func() error {
			_, err := secrets.Patch(b.Ctx, name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/data"}]`),
				metav1.PatchOptions{})
			return err
		}, "a new authority"},
		{"gone", func() error { return secrets.Delete(b.Ctx, name, metav1.DeleteOptions{}) }, "a new authority"},
	} {
		before := entry(".key")
		log.Take()
		if err := tc.breaks(); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		b.Eventually(tc.reason, func() string { // mended, and signed by the new one
			s, err := secrets.Get(b.Ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			keys := slices.DeleteFunc(slices.Collect(xmaps.Keys(s.Data)), func(k string) bool {
				return !strings.HasSuffix(k, ".key") || k == before
			})
			if len(keys) != 1 || string(s.Data[keys[0]]) == "junk" {
				return fmt.Sprintf("the Secret has the keys %v", keys)
			}
			id := strings.TrimSuffix(strings.TrimPrefix(keys[0], "ca-"), ".key")
			if !strings.Contains(log.String(), "authority="+id+" hosts") {
				return "the new authority does not sign: " + log.String()
			}
			return ""
		})
		if !strings.Contains(log.String(), tc.says) {
			t.Errorf("%s: the log is\n%s", tc.reason, log.String())
		}
	}
	cancel()
	all.Wait()
}
