package console

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// loginData is the data of the login page.
type loginData struct {
	Next, Why string
	Private   bool
}

// startPath redirects to the first page that the reader may see.
const startPath = "/console/"

// maxForm bounds the body of a form in bytes.
const maxForm = 16 << 10

// toLogin redirects a person to the login page. It answers a program with 401.
func (c *console) toLogin(w http.ResponseWriter, r *http.Request, why error) {
	if !nobody(why) {
		c.message(w, r, nil, http.StatusServiceUnavailable, "This cannot be shown now", why.Error())
		return
	}
	if !byPerson(r) {
		http.Error(w, why.Error(), http.StatusUnauthorized)
		return
	}
	q := url.Values{"next": {r.URL.RequestURI()}}
	if why == errOver {
		q.Set("over", "1")
	}
	http.Redirect(w, r, "/console/login?"+q.Encode(), http.StatusSeeOther)
}

// byPerson reports whether a browser requests a page, as opposed to a program.
func byPerson(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && r.Method == http.MethodGet
}

// nextPath returns the target after the login: a page of the console, or below /debug/.
func nextPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil ||
		!strings.HasPrefix(u.Path, "/console/") && !strings.HasPrefix(u.Path, "/debug/") ||
		strings.ContainsAny(text, "\\\r\n") {
		return startPath
	}
	return u.RequestURI()
}

func (c *console) loginPage(w http.ResponseWriter, r *http.Request) {
	if c.known(r) {
		http.Redirect(w, r, startPath, http.StatusSeeOther)
		return
	}
	d := loginData{Next: nextPath(r.URL.Query().Get("next")), Private: private(r)}
	if r.URL.Query().Has("over") {
		d.Why = "The session has ended."
	}
	c.showLogin(w, r, http.StatusOK, d)
}

// known reports whether no login is required.
func (c *console) known(r *http.Request) bool {
	_, named := httpapi.Proxied(r.Context())
	return named || c.InsecureNoAuth
}

func (c *console) showLogin(w http.ResponseWriter, r *http.Request, status int, d loginData) {
	c.render(w, status, c.page(r, nil, view{name: "login", title: "Log in"}, d))
}

func (c *console) login(w http.ResponseWriter, r *http.Request) {
	if c.known(r) {
		http.Redirect(w, r, startPath, http.StatusSeeOther)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d := loginData{Next: nextPath(r.PostFormValue("next")), Private: private(r)}
	if !d.Private {
		c.showLogin(w, r, http.StatusForbidden, d)
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		d.Why = "Give a token."
	case len(token) > maxToken:
		d.Why = "The token is too long to be kept by a browser."
	default:
		// Any access will do: a valid token may be refused, but an invalid one is unknown.
		err := c.Authorizer.May(httpapi.WithClient(r.Context(), r), token, httpapi.Access{Verb: "get", Path: "/debug/overview"})
		switch {
		case unknown(err):
			d.Why = "The token is not valid in this cluster, or not meant for this program."
		case err != nil && !refused(err):
			d.Why = "It cannot be found out now whose token that is: " + err.Error()
		}
	}
	if d.Why != "" {
		c.showLogin(w, r, http.StatusUnauthorized, d)
		return
	}
	kept, err := c.seals.begin(token, r.TLS != nil, c.now())
	if err != nil {
		c.fail(w, r, nil, err)
		return
	}
	http.SetCookie(w, kept)
	c.log.InfoContext(r.Context(), "somebody has logged in to the console", "user", c.Authorizer.Caller(token))
	http.Redirect(w, r, d.Next, http.StatusSeeOther)
}

func (c *console) logout(w http.ResponseWriter, r *http.Request) {
	rd, ok := c.enter(w, r)
	if !ok {
		return
	}
	if !c.fromHere(w, r, rd) {
		return
	}
	var err error
	if rd.session != nil {
		err = c.logouts.end(r.Context(), rd.session)
	}
	gone := cookie(r.TLS != nil)
	gone.MaxAge = -1
	w.Header().Del("Set-Cookie") // of the renewal
	http.SetCookie(w, gone)
	if err != nil {
		c.log.WarnContext(r.Context(), "cannot tell other replicas that a session of the console has ended", "user", rd.name,
			"error", err)
		c.message(w, r, nil, http.StatusServiceUnavailable, "Logged out here only",
			"This browser is logged out. Other replicas cannot be told now, and take a copy of the session until it ends: "+err.Error())
		return
	}
	http.Redirect(w, r, "/console/login", http.StatusSeeOther)
}

// fromHere checks that a form was rendered for this reader.
func (c *console) fromHere(w http.ResponseWriter, r *http.Request, rd *reader) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if rd.csrf == "" || subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(rd.csrf)) != 1 {
		http.Error(w, "the form is not one of this page, or too old: go back and load it again", http.StatusForbidden)
		return false
	}
	return true
}
