package httpapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/access"
)

const (
	// maxLogged bounds the path and the error in a log line, in bytes. Callers control both.
	maxLogged = 512
	// linger bounds how long the server reads the rest of an unwanted body, so that the answer arrives.
	linger = time.Second
)

// endpoint answers a request, or returns an error without an answer.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// frontend serves endpoints to clients that may be slow or hostile. It bounds the time for the body and the answer, and
// answers and logs errors. It has no state.
type frontend struct {
	timeout time.Duration // to read the body; writing the answer may take as long again
	log     *slog.Logger
}

// serve returns the handler of an endpoint. It drops clients that do not read the answer, and does not wait for a body
// that was not read.
func (f frontend) serve(next endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(access.WithClient(r.Context(), r))
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(2 * f.timeout)) // fails only with some test servers
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(now.Add(f.timeout))
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // until the body is read: the server would read it before it answers
			}
		}
		if err := next(w, r); err != nil {
			f.refuse(w, r, err)
		}
		if w.Header().Get("Connection") == "close" {
			_ = control.SetReadDeadline(time.Now().Add(linger))
		}
	})
}

func (f frontend) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, level := answerProblem(w, err), slog.LevelInfo
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
		http.StatusServiceUnavailable:
		level = slog.LevelDebug
	}
	f.log.Log(r.Context(), level, "request refused", "method", r.Method, "path", short(loggable(r.URL), maxLogged),
		"status", status,
		"error", short(err.Error(), maxLogged))
}

// routes serves the patterns of mux. It answers requests for unknown paths and methods with a problem, too.
func (f frontend) routes(mux *http.ServeMux) http.Handler {
	unknown := f.serve(func(w http.ResponseWriter, r *http.Request) error {
		next, _ := mux.Handler(r)
		probe := &statusOnly{header: w.Header()}
		next.ServeHTTP(probe, r)
		if probe.status == http.StatusMethodNotAllowed {
			detail := short(r.Method, 64) + " is not possible here; " + w.Header().Get("Allow") + " is"
			return &Problem{Status: probe.status, Title: http.StatusText(probe.status), Detail: detail}
		}
		return &Problem{Status: http.StatusNotFound, Title: "Not Found", Detail: "no such path: see /operations"}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			unknown.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// statusOnly records the status of an answer and drops its body.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// loggable returns the path without callback tokens.
func loggable(u *url.URL) string {
	if strings.HasPrefix(u.Path, "/callbacks/") {
		return "/callbacks/…"
	}
	return u.Path
}

// short truncates a text to the given number of bytes.
func short(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, status, "application/json", body)
}

// write sets Content-Length, so that clients detect truncated answers.
func write(w http.ResponseWriter, status int, contentType string, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // every body can be encoded
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // it fails only if the client has disconnected
}
