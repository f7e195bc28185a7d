package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgets    = schema.GroupVersionResource{Group: "example.fairlead.io", Version: "v1", Resource: "widgets"}
)

const configMapPath = "/api/v1/namespaces/a/configmaps"

// raw is a client without any knowledge of Kubernetes.
type raw struct {
	t *testing.T
	s *apiserver.Server
	c *http.Client
}

func newRaw(t *testing.T, s *apiserver.Server) raw {
	tr := &http.Transport{DialContext: s.Dial}
	t.Cleanup(tr.CloseIdleConnections)
	return raw{t, s, &http.Client{Transport: tr}}
}

// reply is an answer whose body is JSON, or not.
type reply struct {
	Code   int
	Header http.Header
	Body   string
	Obj    struct {
		metav1.TypeMeta
		Metadata struct {
			ResourceVersion, Continue, Name string
			RemainingItemCount              *int64
			Generation                      int64
		}
		Items []struct {
			Kind     string
			Metadata struct{ Name, ResourceVersion string }
		}
		Reason  metav1.StatusReason
		Message string
		Details *metav1.StatusDetails
	}
}

func (r reply) names() string {
	var names []string
	for _, i := range r.Obj.Items {
		names = append(names, i.Metadata.Name)
	}
	return strings.Join(names, " ")
}

func (c raw) do(method, path, contentType, body string) (reply, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.s.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.c.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	out := reply{Code: res.StatusCode, Header: res.Header, Body: string(b)}
	if err != nil {
		return out, err
	}
	if len(b) < 1<<20 {
		_ = json.Unmarshal(b, &out.Obj) // a body that is not JSON is compared as text
	}
	return out, nil
}

func (c raw) get(path string) reply {
	c.t.Helper()
	r, err := c.do(http.MethodGet, path, "", "")
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return r
}

// frames is an open watch, read line by line.
type frames struct {
	t      *testing.T
	cancel context.CancelFunc
	code   int
	r      *bufio.Reader
}

func (c raw) watch(path string) *frames {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.s.URL()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := c.c.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { res.Body.Close() })
	return &frames{c.t, cancel, res.StatusCode, bufio.NewReader(res.Body)}
}

// next returns the next frame in short form: TYPE name@version, or the end of the stream.
func (f *frames) next() string {
	f.t.Helper()
	line, err := f.r.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return "END"
	}
	if err != nil {
		return fmt.Sprintf("BROKEN after %d bytes", len(line))
	}
	var e struct {
		Type   string
		Object struct {
			Kind, APIVersion string
			Metadata         struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
			Code   int
			Reason string
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "UNDECODABLE " + string(line)
	}
	switch {
	case e.Type == "ERROR":
		return fmt.Sprintf("ERROR %d %s", e.Object.Code, e.Object.Reason)
	case e.Type == "BOOKMARK" && e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true":
		return "BOOKMARK end@" + e.Object.Metadata.ResourceVersion
	}
	return e.Type + " " + e.Object.Metadata.Name + "@" + e.Object.Metadata.ResourceVersion
}

func (f *frames) expect(want ...string) {
	f.t.Helper()
	for i, w := range want {
		if got := f.next(); got != w {
			f.t.Fatalf("frame %d is %q, want %q", i, got, w)
		}
	}
}

// fill puts ConfigMaps of these names into namespace a; a fresh server is at revision 1, so the first one gets 2.
func fill(t *testing.T, s *apiserver.Server, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := s.Put(configMap(n, "1")); err != nil {
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, s *apiserver.Server, name, data string) {
	t.Helper()
	if _, err := s.Put(configMap(name, data)); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, s *apiserver.Server, done func(apiserver.Log) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	if err := s.WaitFor(ctx, done); err != nil {
		t.Fatal(err)
	}
}
