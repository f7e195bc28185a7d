package pages

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/fairlead-io/fairlead/internal/access"
)

// loginPath is the path of the login page.
const loginPath = "/console/login"

// login begins and ends sessions.
type login struct {
	site    *Site
	readers *Readers
	log     *slog.Logger
}

// loginData is the data of the login page.
type loginData struct {
	Next, Why string
	Private   bool
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

// show answers with the form.
func (l *login) show(w http.ResponseWriter, r *http.Request) {
	if !l.readers.needLogin(r) {
		http.Redirect(w, r, startPath, http.StatusSeeOther)
		return
	}
	d := loginData{Next: nextPath(r.URL.Query().Get("next")), Private: private(r)}
	if r.URL.Query().Has("over") {
		d.Why = "The session has ended."
	}
	l.form(w, r, http.StatusOK, d)
}

func (l *login) form(w http.ResponseWriter, r *http.Request, status int, d loginData) {
	l.site.Render.page(w, status, l.site.view(r, nil, &Page{Name: "login", Title: "Log in"}, d))
}

// begin begins a session.
func (l *login) begin(w http.ResponseWriter, r *http.Request) {
	if !l.readers.needLogin(r) {
		http.Redirect(w, r, startPath, http.StatusSeeOther)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d := loginData{Next: nextPath(r.PostFormValue("next")), Private: private(r)}
	if !d.Private {
		l.form(w, r, http.StatusForbidden, d)
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		d.Why = "Enter a token."
	case len(token) > maxToken:
		d.Why = "The token is too long for a cookie."
	default:
		switch err := l.readers.check(access.WithClient(r.Context(), r), token); {
		case Unknown(err):
			d.Why = "The token is not valid in this cluster, or not meant for this program."
		case err != nil:
			d.Why = "The token cannot be checked now: " + err.Error()
		}
	}
	if d.Why != "" {
		l.form(w, r, http.StatusUnauthorized, d)
		return
	}
	name, err := l.readers.logIn(w, r, token)
	if err != nil {
		l.site.fail(w, r, nil, err)
		return
	}
	l.log.InfoContext(r.Context(), "a user has logged in to the console", "user", name)
	http.Redirect(w, r, d.Next, http.StatusSeeOther)
}

// end ends the session.
func (l *login) end(w http.ResponseWriter, r *http.Request) {
	rd, ok := l.site.enter(w, r)
	if !ok || !fromHere(w, r, rd) {
		return
	}
	if err := l.readers.logOut(w, r, rd); err != nil {
		l.log.WarnContext(r.Context(), "cannot tell other replicas that a session of the console has ended",
			"user", rd.Name(),
			"error", err)
		l.site.message(w, r, nil, &Message{
			Status: http.StatusServiceUnavailable, Title: "Logged out in this browser only",
			Text: "Other replicas cannot be informed now. They accept a copy of the session until it expires: " + err.Error(),
		})
		return
	}
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}
