package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// View is the input of a template.
type View struct {
	Title, Name string
	Reader      string
	Open        bool // no login is required
	Named       bool // by a proxy, which handles logout
	CSRF        string
	Nav         []Link
	At          time.Time
	Health      *Health
	URL         string   // URL of the console as the reader reached it
	Refused     []string // resources of this page that the API server refuses
	Live        string   // path of the stream with updates
	// OneReplica means that the page shows this replica, and that there are others.
	OneReplica bool
	Data       any
}

// Link is a link to a page.
type Link struct {
	Name, Title, Path string
	Here              bool
}

// Render renders pages. After the last Add it is safe for concurrent use.
type Render struct {
	log   *slog.Logger
	base  *template.Template
	pages map[string]*template.Template
}

// NewRender returns a Render with the templates that all consoles have.
func NewRender(log *slog.Logger) (*Render, error) {
	own, err := fs.Sub(files, "templates")
	if err != nil {
		return nil, err
	}
	base, err := template.New("").Funcs(funcs).ParseFS(own, "layout.html", partsFile)
	if err != nil {
		return nil, err
	}
	r := &Render{log: log, base: base, pages: map[string]*template.Template{}}
	return r, r.Add(own, nil)
}

// partsFile is the file with the parts that the other templates of a directory share.
const partsFile = "parts.html"

// Add adds the template of each file to the pages, with further functions.
func (r *Render) Add(from fs.FS, further template.FuncMap) error {
	base, err := r.base.Clone()
	if err != nil {
		return err
	}
	base.Funcs(further)
	if _, err := fs.Stat(from, partsFile); err == nil {
		if _, err := base.ParseFS(from, partsFile); err != nil {
			return fmt.Errorf("cannot parse the parts of pages: %w", err)
		}
	}
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(from, e.Name())
		}
		if err != nil {
			return fmt.Errorf("cannot parse a page: %w", err)
		}
		r.pages[strings.TrimSuffix(e.Name(), ".html")] = t
	}
	return nil
}

// Part renders a part of a page.
func (r *Render) Part(w io.Writer, page, part string, data any) error {
	t := r.pages[page]
	if t == nil {
		return fmt.Errorf("there is no page %q", page)
	}
	return t.ExecuteTemplate(w, part, data)
}

// page answers with a complete page, or with an error.
func (r *Render) page(w http.ResponseWriter, status int, v *View) {
	var b bytes.Buffer
	if err := r.Part(&b, v.Name, "layout", v); err != nil {
		r.log.Error("cannot render a page of the console", "page", v.Name, "error", err)
		http.Error(w, "the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // it fails only if the client has disconnected
}
