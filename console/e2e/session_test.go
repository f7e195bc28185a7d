package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brief returns a short-lived token of a service account. The API server issues none for less than ten minutes, so the
// test signs with the cluster's key.
func (w *world) brief(name string, life time.Duration) string {
	w.t.Helper()
	account, err := w.clients.CoreV1().ServiceAccounts(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, "pki", "service-account.key"))
	if err != nil {
		w.t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			w.t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	now := time.Now()
	signed := part(map[string]string{"alg": "ES256", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": "https://kubernetes.default.svc", "aud": []string{"fairlead"}, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(life).Unix(), "sub": "system:serviceaccount:" + w.namespace + ":" + name,
		"kubernetes.io": map[string]any{
			"namespace": w.namespace, "serviceaccount": map[string]string{"name": name, "uid": string(account.UID)},
		},
	})
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		w.t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

const sessionOver = `document.querySelector('main > .notice[role="alert"] a[href^="/console/login?over=1"]')`

// sessions: an open page whose session ends says so, links to the login, and sends no further requests.
func sessions(chromium context.Context, t *testing.T, w *world, path string) {
	live := func(t *testing.T, token func() string, path string) *tab {
		b := open(chromium, t, w.base, desk)
		b.expect("401")
		b.logIn(token())
		b.visit(path)
		b.until("is it live", `document.getElementById("live-state").innerText === "Updated live."`)
		return b
	}
	over := func(b *tab) {
		b.t.Helper()
		b.until("does it say that the session has ended", sessionOver)
		sent := b.requests()
		// Longer than a browser waits before it reconnects twice.
		eval[bool](b, "new Promise(done => setTimeout(() => done(true), 11000))")
		if more := b.requests()[len(sent):]; len(more) > 0 {
			b.t.Errorf("after the end of the session it requests %q", more)
		}
		if text := b.text(); !strings.Contains(text, "No longer updated.") {
			b.t.Errorf("it does not say that it is outdated: %s", text)
		}
		b.axe("a session that has ended")
		b.run(chromedp.Click(`main > .notice a`), chromedp.WaitVisible("#token"))
		if text := b.text(); !strings.Contains(text, "The session has ended.") {
			b.t.Errorf("the login does not give the reason: %s", text)
		}
	}
	t.Run("Revoked", func(t *testing.T) {
		t.Parallel()
		for name, path := range map[string]string{
			"overview":   "/console/overview",
			"operations": "/console/operations?q=app",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				name := "revoked-" + name
				b := live(t, func() string { return w.account(name, "cluster-admin", time.Hour) }, path)
				if err := w.clients.CoreV1().ServiceAccounts(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				over(b)
				b.run(chromedp.SetValue("#token", w.admin), chromedp.Submit("#token"),
					chromedp.WaitVisible(`form[action="/console/logout"]`))
				if at := eval[string](b, "location.pathname + location.search"); at != path {
					t.Errorf("after the login the page is %s, not %s", at, path)
				}
			})
		}
	})
	t.Run("Expired", func(t *testing.T) {
		t.Parallel()
		w.account("brief", "cluster-admin", time.Hour)
		// The page is live before the token expires, since the token is issued when the browser is ready.
		over(live(t, func() string { return w.brief("brief", 30*time.Second) }, path))
	})
	t.Run("EndedWhileHidden", func(t *testing.T) {
		t.Parallel()
		b := live(t, func() string { return w.admin }, "/console/flows")
		hide := func(hidden bool) {
			b.run(chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %v, configurable: true});
				document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil))
		}
		hide(true)
		b.run(network.ClearBrowserCookies())
		hide(false)
		over(b)
	})
}
