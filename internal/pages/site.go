package pages

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
)

// SiteOptions are the parts of a Site. All are required, except Proxy.
type SiteOptions struct {
	Readers *Readers
	Render  *Render
	Live    *Live
	Proxy   *access.Proxy
	// Replicated means that other replicas have consoles of their own, to which a page of all replicas links.
	Replicated bool
	// Health returns the state of the program.
	Health func() *Health
	Log    *slog.Logger
}

// Site serves pages and actions to readers with the right. It is safe for concurrent use after the last Add.
type Site struct {
	SiteOptions
	mux  *http.ServeMux
	menu []*Page
}

// NewSite returns a Site with a login and the static files.
func NewSite(o SiteOptions) *Site {
	s := &Site{SiteOptions: o, mux: http.NewServeMux()}
	s.mux.Handle("GET "+staticPath, serveStatic())
	s.mux.HandleFunc("GET "+startPath+"{$}", s.land)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.nothing(w, r, nil) })
	l := &login{site: s, readers: o.Readers, log: o.Log}
	s.mux.HandleFunc("GET "+loginPath, l.show)
	s.mux.HandleFunc("POST "+loginPath, l.begin)
	s.mux.HandleFunc("POST /console/logout", l.end)
	return s
}

// Handler returns the handler of the console.
func (s *Site) Handler() http.Handler { return s.Proxy.Handler(secure(s.Readers.isOpen(), s.mux)) }

// Guard restricts the pages below /debug/ to authorized readers.
func (s *Site) Guard(pages http.Handler) http.Handler {
	return s.Proxy.Handler(secure(s.Readers.isOpen(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rd, err := s.Readers.identify(r)
		if err == nil {
			err = rd.mayPass(r)
		}
		switch {
		case err == nil:
			rd.renew(w, r)
			w.Header().Del("Content-Security-Policy") // these pages have their own scripts and styles
			pages.ServeHTTP(w, r)
		case !byPerson(r):
			refuse(w, err)
		case rd == nil:
			s.toLogin(w, r, err)
		default:
			s.fail(w, r, rd, err)
		}
	})))
}

// sendToken is the advice to a program without a valid token.
const sendToken = "send the header Authorization: Bearer with a token of this cluster"

// refuse answers a program without access.
func refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*access.Problem](err)
	switch status := access.StatusOf(err); {
	case ok:
		access.WriteProblem(w, p.Status, p.Detail)
	case status != 0:
		access.WriteProblem(w, status, err.Error())
	case loggedOut(err):
		access.WriteProblem(w, http.StatusUnauthorized, sendToken)
	default:
		access.WriteProblem(w, http.StatusServiceUnavailable, err.Error())
	}
}

// AddAPI adds an endpoint for programs, which answers with the JSON of a value. get checks the rights of the reader.
func (s *Site) AddAPI(path string, get func(ctx context.Context, rd *Reader, r *http.Request) (any, error)) {
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		rd, err := s.Readers.identify(r)
		var answer any
		if err == nil {
			answer, err = get(access.WithClient(r.Context(), r), rd, r)
		}
		switch {
		case err == nil:
			access.WriteJSON(w, http.StatusOK, "application/json", answer)
		case loggedOut(err):
			access.WriteProblem(w, http.StatusUnauthorized, sendToken)
		case Unknown(err):
			access.WriteProblem(w, http.StatusUnauthorized,
				"the token is not valid in this cluster, or not meant for this program")
		case errors.Is(err, ErrNothing):
			access.WriteProblem(w, http.StatusNotFound, "the object does not exist, or you may not get it")
		case access.StatusOf(err) == http.StatusBadRequest, Refused(err):
			refuse(w, err)
		default:
			access.WriteProblem(w, http.StatusServiceUnavailable, err.Error())
		}
	})
}

// AddPage adds a page and its stream of updates.
func (s *Site) AddPage(p Page) {
	pattern := p.path()
	if p.Menu {
		s.menu = append(s.menu, &p)
	}
	s.mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
		rd, ok := s.enter(w, r)
		if !ok {
			return
		}
		data, err := s.data(access.WithClient(r.Context(), r), rd, &p, r)
		if err != nil {
			s.refuse(w, r, rd, &p, err)
			return
		}
		v := s.view(r, rd, &p, data)
		v.Live = "/console/live" + r.URL.EscapedPath()[len("/console"):]
		if r.URL.RawQuery != "" {
			v.Live += "?" + r.URL.RawQuery
		}
		s.Render.page(w, http.StatusOK, v)
	})
	s.mux.HandleFunc("GET /console/live"+pattern[len("/console"):], func(w http.ResponseWriter, r *http.Request) {
		rd, err := s.Readers.identify(r)
		if err != nil {
			status := http.StatusUnauthorized
			if !loggedOut(err) {
				status = http.StatusServiceUnavailable
			}
			http.Error(w, err.Error(), status)
			return
		}
		rd.renew(w, r)
		s.Live.serve(w, r, stream{
			lasts: rd.streamFor(),
			stays: rd.Stays,
			allow: func(ctx context.Context) error { return p.allow(ctx, rd, r) },
			state: p.State,
			render: func(ctx context.Context) ([]byte, error) {
				data, err := s.data(ctx, rd, &p, r)
				if err != nil {
					return nil, err
				}
				var b bytes.Buffer
				err = s.Render.Part(&b, p.Name, "main", s.main(r, rd, &p, data))
				return b.Bytes(), err
			},
		})
	})
}

// data returns the data of a page if the reader has the right.
func (s *Site) data(ctx context.Context, rd *Reader, p *Page, r *http.Request) (any, error) {
	if err := p.allow(ctx, rd, r); err != nil {
		return nil, err
	}
	return p.Data(ctx, rd, r)
}

// refuse answers a request for a page that cannot be shown.
func (s *Site) refuse(w http.ResponseWriter, r *http.Request, rd *Reader, p *Page, err error) {
	if errors.Is(err, errWhich) {
		s.choose(w, r, rd, p)
		return
	}
	s.fail(w, r, rd, err)
}

// enter identifies the sender of a request, or redirects to the login page.
func (s *Site) enter(w http.ResponseWriter, r *http.Request) (*Reader, bool) {
	rd, err := s.Readers.identify(r)
	if err != nil {
		s.toLogin(w, r, err)
		return nil, false
	}
	rd.renew(w, r)
	return rd, true
}

// maxForm bounds the body of a form in bytes.
const maxForm = 16 << 10

// fromHere checks that a form was rendered for this reader.
func fromHere(w http.ResponseWriter, r *http.Request, rd *Reader) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if !rd.owns(r.PostFormValue("csrf")) {
		http.Error(w, "this form is too old or was made for another session: go back and reload the page",
			http.StatusForbidden)
		return false
	}
	return true
}

// main returns the input for the main element of a page. rd may be nil.
func (s *Site) main(r *http.Request, rd *Reader, p *Page, data any) *View {
	v := &View{Title: p.Title, Name: p.Name, At: time.Now(), Health: &Health{}, Data: data, URL: urlOf(r)}
	if rd != nil {
		rd.describe(v)
		v.Health = s.Health()
		namespace := r.PathValue("namespace")
		if namespace == "" {
			namespace = r.URL.Query().Get("namespace")
		}
		v.Refused = v.Health.Refused(p, namespace)
		v.OneReplica = s.Replicated && p.ofProcess()
	}
	return v
}

// view returns the input for a complete page.
func (s *Site) view(r *http.Request, rd *Reader, p *Page, data any) *View {
	v := s.main(r, rd, p, data)
	if rd != nil {
		v.Nav = s.links(access.WithClient(r.Context(), r), rd, r.URL)
		for i := range v.Nav {
			v.Nav[i].Here = v.Nav[i].Name == v.Name
		}
	}
	return v
}

// plainHost matches hosts that need no quoting in a shell.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// urlOf returns the scheme and host by which the reader reached the console, or "" if the host is not plain.
func urlOf(r *http.Request) string {
	if !plainHost.MatchString(r.Host) {
		return ""
	}
	scheme := "http"
	// A client can forge the header, but only that client sees the result.
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// Message is an error that becomes a page with a text.
type Message struct {
	Status      int
	Title, Text string
	RetryAfter  time.Duration
}

// Error returns the text.
func (m *Message) Error() string { return m.Text }

// notNow is the title for temporary errors.
const notNow = "Temporarily unavailable"

// fail answers with an error.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, rd *Reader, err error) {
	m, isMessage := errors.AsType[*Message](err)
	switch {
	case isMessage:
		s.message(w, r, rd, m)
	case errors.Is(err, errOver), Unknown(err) && rd.logsInHere():
		s.toLogin(w, r, errOver)
	case errors.Is(err, ErrNothing), Refused(err):
		s.nothing(w, r, rd)
	default:
		status := access.StatusOf(err)
		if status == 0 {
			status = http.StatusServiceUnavailable
		}
		title := notNow
		if status == http.StatusBadRequest {
			title = http.StatusText(status)
		}
		s.message(w, r, rd, &Message{Status: status, Title: title, Text: err.Error()})
	}
}

func (s *Site) nothing(w http.ResponseWriter, r *http.Request, rd *Reader) {
	if rd == nil {
		var err error
		if rd, err = s.Readers.identify(r); err != nil {
			s.toLogin(w, r, err)
			return
		}
	}
	s.message(w, r, rd, &Message{
		Status: http.StatusNotFound, Title: "Not found", Text: "There is no such page or object, or you may not see it.",
	})
}

// message answers with a page that has a single message.
func (s *Site) message(w http.ResponseWriter, r *http.Request, rd *Reader, m *Message) {
	if m.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(m.RetryAfter/time.Second)))
	}
	s.Render.page(w, m.Status, s.view(r, rd, &Page{Name: "message", Title: m.Title}, m.Text))
}

// toLogin redirects a person to the login page. It answers a program with 401.
func (s *Site) toLogin(w http.ResponseWriter, r *http.Request, why error) {
	if !loggedOut(why) {
		s.message(w, r, nil, &Message{Status: http.StatusServiceUnavailable, Title: notNow, Text: why.Error()})
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
	http.Redirect(w, r, loginPath+"?"+q.Encode(), http.StatusSeeOther)
}

// byPerson reports whether a browser requests a page, as opposed to a program.
func byPerson(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && r.Method == http.MethodGet
}
