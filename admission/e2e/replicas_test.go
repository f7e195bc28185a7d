package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// clock is a clock that a test advances. It is at most authority.Backdate, five minutes, ahead of the clock by which
// the API server checks certificates.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// hasty returns lifetimes so short that several certificates succeed each other within five minutes of the clock.
func hasty(c *clock) admission.Certificates {
	return admission.Certificates{
		Authority: 90 * time.Second, Leaf: 45 * time.Second, Overlap: time.Minute, Settle: 20 * time.Second,
		Look: 100 * time.Millisecond, Now: c.now,
	}
}

// informed is a hook without a server. It shows which configuration the API server knows.
type informed struct {
	b         *hookbed.Bench
	namespace string
	n         int
}

// wait returns when the API server knows all configurations of hooks that were written before. It learns of them in
// their order, so wait writes one more, and waits until that has an effect.
func (i *informed) wait() error {
	i.n++
	name, url := fmt.Sprintf("probe-%d.example.com", i.n), "https://127.0.0.1:1"
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: i.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: i.namespace},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
		}},
	}
	raw, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	raw = bytes.Replace(raw, []byte("{"), []byte(`{"apiVersion":"admissionregistration.k8s.io/v1",`+
		`"kind":"ValidatingWebhookConfiguration",`), 1)
	force := true
	if _, err := i.b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(i.b.Ctx, i.namespace,
		types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "test", Force: &force}); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := i.b.API.CoreV1().ConfigMaps(i.namespace).Create(i.b.Ctx, hookbed.ConfigMap("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if strings.Contains(hookbed.Text(err), name) {
			return nil
		}
		select {
		case <-tick.C:
		case <-i.b.Ctx.Done():
			return fmt.Errorf("the API server does not know %s: %w", name, err)
		}
	}
}

func newInformed(b *hookbed.Bench) *informed {
	i := &informed{b: b, namespace: env.Namespace(b.T)}
	b.T.Cleanup(func() {
		if err := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.WithoutCancel(b.Ctx),
			i.namespace, metav1.DeleteOptions{}); err != nil {
			b.T.Error(err)
		}
	})
	return i
}

// TestRotation rotates certificates and authorities without losing a request. Requests come from the API server, and
// from a client with a new connection each time, to two replicas. The configuration of that client is at most
// Certificates.Settle old. The clock advances when the API server knows the configuration.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	var clock clock
	certificates := hasty(&clock)
	var log testlog.Book
	var asked atomic.Int64
	declare := func(_ *fairlead.Runtime, h *admission.Hooks) {
		rule := admission.Rule{OnFailure: admission.FailClosed, Timeout: hookbed.Long}
		admission.Validate(h, rule, func(context.Context, *hookbed.Maps) error {
			asked.Add(1)
			return nil
		})
	}
	h := admissiontest.StartWith(t, env.Config(t), admission.Options{Certificates: certificates}, declare,
		fairlead.WithLogger(log.Logger()))
	second := h.Options
	var err error
	if second.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	other := fairlead.New(env.Config(t))
	replica := admission.Serve(other, second)
	declare(other, replica)
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
	api := newInformed(b)
	all.Go(func() { // the clock
		pause := time.NewTicker(2 * certificates.Look) // time for a look of the replicas
		defer pause.Stop()
		for ctx.Err() == nil && clock.ahead.Load() < int64(4*time.Minute) {
			if err := api.wait(); err != nil {
				t.Error(err)
				return
			}
			clock.advance(certificates.Settle / 4)
			<-pause.C
		}
	})
	leaves, authorities := map[string]bool{}, map[string]bool{}
	all.Go(func() { // until there were enough rotations and requests
		defer cancel()
		type known struct {
			at     time.Time
			bundle []byte
		}
		var history []known
		for n := 0; ctx.Err() == nil && (len(leaves) < 8 || len(authorities) < 3 || sent.Load() < 50); n++ {
			history = append(history, known{clock.now(), b.Bundle(h.Options.Name)})
			history = slices.DeleteFunc(history, func(k known) bool { return clock.now().Sub(k.at) > certificates.Settle*3/4 })
			if len(history) == 0 { // reading took too long
				continue
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(history[0].bundle)
			conn, err := tls.Dial("tcp", addresses[n%2], &tls.Config{RootCAs: roots})
			if clock.now().Sub(history[0].at) > certificates.Settle { // connecting took too long
				if err == nil {
					conn.Close()
				}
				continue
			}
			if err != nil {
				t.Errorf("a client with a recent configuration: %v", err)
				return
			}
			chain := conn.ConnectionState().VerifiedChains[0]
			conn.Close()
			leaves[chain[0].SerialNumber.String()], authorities[chain[1].SerialNumber.String()] = true, true
		}
	})
	all.Wait()
	if len(leaves) < 8 || len(authorities) < 3 || sent.Load() < 50 || asked.Load() < sent.Load() {
		t.Errorf("%d certificates of %d authorities were served, %d requests were sent, %d calls of hooks",
			len(leaves), len(authorities),
			sent.Load(), asked.Load())
	}
	t.Logf("%d certificates of %d authorities, %d requests", len(leaves), len(authorities), sent.Load())
	secret, err := b.API.CoreV1().Secrets(h.System).Get(b.Ctx, h.System+"-webhook-ca", metav1.GetOptions{})
	if err != nil || len(secret.Data) > 6 {
		t.Errorf("the Secret has %d entries: %v", len(secret.Data), err)
	}
}

// balancer forwards connections to several addresses in turn, as a Service does.
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

// pass connects to the next available address.
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

// Replicas that start at once create one authority, and the API server trusts each of them. One of them can stop.
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
		rule := admission.Rule{OnFailure: admission.FailClosed, Timeout: hookbed.Long}
		admission.Validate(replicas[i], rule, func(context.Context, *hookbed.Maps) error {
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
	b.Eventually("the API server calls the hook", func() string {
		if got := ask(); !strings.Contains(got, "refused") {
			return "got: " + got
		}
		return ""
	})
	for i := range n - 1 { // the replica with the API server's connection closes it gracefully
		stops[i]()
		for range 5 {
			if got := ask(); !strings.Contains(got, "denied the request: refused") {
				t.Errorf("after replica %d has stopped: %s", i, got)
			}
		}
	}
	if asked[n-1].Load() == 0 {
		t.Error("the last replica was not called")
	}
	stops[n-1]()
}

// TestBrokenSecret edits and deletes the Secret. It is repaired, and no request fails meanwhile.
func TestBrokenSecret(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	var log testlog.Book
	var clock clock
	certificates := admission.Certificates{Settle: 20 * time.Second, Look: 50 * time.Millisecond, Now: clock.now}
	h := admissiontest.StartWith(t, env.Config(t), admission.Options{Certificates: certificates},
		func(_ *fairlead.Runtime, h *admission.Hooks) {
			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed, Timeout: hookbed.Long}, hookbed.Allow)
		}, fairlead.WithLogger(log.Logger()))
	api, secrets := newInformed(b), b.API.CoreV1().Secrets(h.System)
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
		}, "authority issued"},
		{"gone", func() error { return secrets.Delete(b.Ctx, name, metav1.DeleteOptions{}) }, "authority issued"},
	} {
		before := entry(".key")
		log.Take()
		if err := tc.breaks(); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		b.Eventually(tc.reason, func() string { // repaired, and signed by the new authority
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
				if err := api.wait(); err != nil {
					return err.Error()
				}
				clock.advance(certificates.Settle / 4)
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
