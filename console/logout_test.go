package console_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
)

const sessionsName = "fairlead-console-sessions"

// replicas are programs that share a session key and an API server, in the bubble of a synctest. They serve without
// being run, so that hours pass quickly.
type replicas struct {
	t      *testing.T
	server *apiserver.Server
	all    []*fairlead.Runtime
}

func newReplicas(t *testing.T, n int, change func(*console.Options)) *replicas {
	t.Helper()
	server, err := apiserver.New(apiserver.Options{Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	p := &replicas{t: t, server: server}
	for range n {
		o := console.Options{Authorizer: anyReader, SessionKey: bytes.Repeat([]byte("k"), 32), SessionNamespace: "system"}
		if change != nil {
			change(&o)
		}
		p.all = append(p.all, fairlead.New(server.Config(), fairlead.WithConsole(o)))
	}
	return p
}

// send sends a request of a browser to a replica, over TLS.
func (p *replicas) send(at int, method, path string, form url.Values, kept *http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(p.t.Context(), method, "https://console.example"+path,
		strings.NewReader(form.Encode()))
	r.TLS = &tls.ConnectionState{}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if kept != nil {
		r.AddCookie(kept)
	}
	rec := httptest.NewRecorder()
	p.all[at].Handler().ServeHTTP(rec, r)
	return rec
}

// login returns the cookie of a new session.
func (p *replicas) login(at int) *http.Cookie {
	p.t.Helper()
	rec := p.send(at, http.MethodPost, "/console/login", url.Values{"token": {"all"}}, nil)
	if got := rec.Result().Cookies(); rec.Code == http.StatusSeeOther && len(got) == 1 {
		return got[0]
	}
	p.t.Fatalf("the answer to the login is %d %s", rec.Code, rec.Body)
	return nil
}

// knows reports whether a replica accepts a session, and returns the cookie that renews it.
func (p *replicas) knows(at int, kept *http.Cookie) (bool, *http.Cookie) {
	p.t.Helper()
	rec := p.send(at, http.MethodGet, "/console/flows", nil, kept)
	if rec.Code != http.StatusOK &&
		(rec.Code != http.StatusSeeOther || !strings.HasPrefix(rec.Header().Get("Location"), "/console/login")) {
		p.t.Errorf("the answer of the page is %d %s", rec.Code, rec.Body)
	}
	for _, renewed := range rec.Result().Cookies() {
		return rec.Code == http.StatusOK, renewed
	}
	return rec.Code == http.StatusOK, nil
}

func (p *replicas) logout(at int, kept *http.Cookie) *httptest.ResponseRecorder {
	p.t.Helper()
	token, found := consolebed.FormToken(p.send(at, http.MethodGet, "/console/flows", nil, kept).Body.String())
	if !found {
		p.t.Fatal("the page has no form")
	}
	return p.send(at, http.MethodPost, "/console/logout", url.Values{"csrf": {token}}, kept)
}

// entries returns the number of entries of the ConfigMap.
func (p *replicas) entries() int {
	p.t.Helper()
	object, err := p.server.Object(configMaps, "system", sessionsName)
	if err != nil {
		p.t.Fatal(err)
	}
	data, _ := object.Object["data"].(map[string]any)
	return len(data)
}

// TestLogoutEverywhere: all replicas refuse an ended session within five seconds, even if they have just accepted it.
// Other sessions continue.
func TestLogoutEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 2, nil)
		stolen, other := p.login(0), p.login(1)
		for at := range p.all {
			for _, kept := range []*http.Cookie{stolen, other} {
				if ok, renewed := p.knows(at, kept); !ok || renewed != nil {
					t.Fatalf("replica %d: %v, renewed %v", at, ok, renewed)
				}
			}
		}
		if rec := p.logout(0, stolen); rec.Code != http.StatusSeeOther {
			t.Fatalf("the answer to the logout is %d %s", rec.Code, rec.Body)
		}
		if ok, _ := p.knows(0, stolen); ok {
			t.Error("the replica itself still accepts the session")
		}
		time.Sleep(5 * time.Second)
		for at := range p.all {
			if ok, _ := p.knows(at, stolen); ok {
				t.Errorf("replica %d accepts an ended session", at)
			}
			if ok, _ := p.knows(at, other); !ok {
				t.Errorf("replica %d refuses another session", at)
			}
		}
		time.Sleep(7 * time.Hour)
		if ok, _ := p.knows(1, other); !ok {
			t.Error("a session lasts less than eight hours")
		}
		time.Sleep(2 * time.Hour)
		if ok, _ := p.knows(1, other); ok {
			t.Error("a session lasts longer than eight hours")
		}
		p.logout(0, p.login(0))
		if n := p.entries(); n != 1 {
			t.Errorf("%d entries, one of a session that has not expired", n)
		}
	})
}

// TestLogoutTogether: concurrent logouts at several replicas all take effect.
func TestLogoutTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 3, nil)
		var all []*http.Cookie
		for range 12 {
			all = append(all, p.login(0))
		}
		var together sync.WaitGroup
		for i, kept := range all {
			together.Go(func() { p.logout(i%len(p.all), kept) })
		}
		together.Wait()
		time.Sleep(5 * time.Second)
		for at := range p.all {
			for _, kept := range all {
				if ok, _ := p.knows(at, kept); ok {
					t.Errorf("replica %d accepts an ended session", at)
				}
			}
		}
		if n := p.entries(); n != len(all) {
			t.Errorf("%d of %d entries", n, len(all))
		}
	})
}

// TestLogoutNotKnown: a replica that cannot check whether a session has ended refuses it and gives the reason.
func TestLogoutNotKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 1, nil)
		kept := p.login(0)
		if ok, _ := p.knows(0, kept); !ok {
			t.Fatal("no session")
		}
		fault := p.server.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(500)))
		time.Sleep(10 * time.Second)
		if rec := p.send(0, http.MethodGet, "/console/flows", nil, kept); rec.Code != http.StatusServiceUnavailable ||
			!strings.Contains(rec.Body.String(), "cannot find out whether the session has ended") {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		fault.Off()
		if ok, _ := p.knows(0, kept); !ok {
			t.Error("the session does not continue")
		}
	})
}

// TestShortSessions: if replicas cannot share logouts, a session lasts 15 minutes after its last use, at most eight
// hours.
func TestShortSessions(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		change func(*console.Options)
		refuse string // the forbidden verb
	}{
		"nothing may be read":     {refuse: "get"},
		"nothing may be written":  {refuse: "create"},
		"there is no such object": {change: func(o *console.Options) { o.SessionNamespace = "" }},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newReplicas(t, 2, tc.change)
				if tc.refuse != "" {
					p.server.On(apiserver.Match{Resource: "configmaps", Verb: tc.refuse}, apiserver.Answer(apiserver.Failure(403)))
				}
				unused, used := p.login(0), p.login(0)
				begun := time.Now()
				for time.Since(begun) < 7*time.Hour {
					time.Sleep(10 * time.Minute)
					ok, renewed := p.knows(1, used)
					if !ok || renewed == nil {
						t.Fatalf("after %v: %v, renewed %v", time.Since(begun), ok, renewed)
					}
					used = renewed
					if ok, _ := p.knows(1, unused); ok != (time.Since(begun) < 15*time.Minute) {
						t.Fatalf("an unused session is accepted after %v: %v", time.Since(begun), ok)
					}
				}
				if rec := p.logout(0, used); rec.Code != http.StatusSeeOther {
					t.Errorf("the answer to the logout is %d %s", rec.Code, rec.Body)
				}
				if ok, _ := p.knows(0, used); ok {
					t.Error("the replica itself accepts the ended session")
				}
				time.Sleep(15 * time.Minute)
				if ok, _ := p.knows(1, used); ok {
					t.Error("another replica accepts the session 15 minutes after its last use")
				}
			})
		})
	}
}

// TestAlone: a program that generates its session key knows all logouts without the ConfigMap.
func TestAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 1, func(o *console.Options) { o.SessionKey = nil })
		kept := p.login(0)
		time.Sleep(7 * time.Hour)
		if ok, renewed := p.knows(0, kept); !ok || renewed != nil {
			t.Errorf("a session lasts less than eight hours: %v, renewed %v", ok, renewed)
		}
		p.logout(0, kept)
		if ok, _ := p.knows(0, kept); ok {
			t.Error("it accepts an ended session")
		}
		if _, err := p.server.Object(configMaps, "system", sessionsName); err == nil {
			t.Error("it has written the ConfigMap")
		}
	})
}

// TestSessionRights: the program declares the rights that it needs for the ConfigMap.
func TestSessionRights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 1, nil)
		var said []string
		for _, r := range p.all[0].Rights() {
			if r.Kind == corev1.SchemeGroupVersion.WithKind("ConfigMap") {
				said = append(said, r.Namespace+" "+strings.Join(r.Names, ",")+" "+strings.Join(r.Verbs, ","))
			}
		}
		if got := strings.Join(said, "; "); got != "system  create; system "+sessionsName+" get,update" {
			t.Errorf("rights: %q", got)
		}
	})
}

// TestLogoutEndsStreams: a logout ends the updates of a page that is open at another replica.
func TestLogoutEndsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newReplicas(t, 2, nil)
		kept := p.login(0)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://console.example/console/live/flows", nil)
		r.TLS = &tls.ConnectionState{}
		r.AddCookie(kept)
		read, write := io.Pipe()
		var serving sync.WaitGroup
		serving.Go(func() {
			p.all[1].Handler().ServeHTTP(&piped{header: http.Header{}, PipeWriter: write}, r)
			_ = write.Close()
		})
		defer serving.Wait()
		defer read.Close()
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		var ended time.Time
		for lines.Scan() {
			switch {
			case strings.HasPrefix(lines.Text(), "data: \""):
				p.logout(0, kept)
				ended = time.Now()
			case lines.Text() == "event: over":
				if took := time.Since(ended); ended.IsZero() || took > 5*time.Second {
					t.Errorf("the stream ends %v after the logout", took)
				}
				return
			}
		}
		t.Error("the stream does not say that the session is over")
	})
}
