package source_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/internal/source"
)

// TestRefusedAfterAnEvent: a server that sends something before each refusal gets no more requests than one that
// refuses at once.
func TestRefusedAfterAnEvent(t *testing.T) {
	for name, refusal := range map[string]string{
		"expired":          statusBody(410, "Expired", "x"),
		"store read error": statusBody(500, "StoreReadError", "x"),
		"too large":        statusBody(504, "Timeout", "Too large resource version: 9, current: 5"),
	} {
		t.Run(name, func(t *testing.T) {
			watches := []reply{watchThenEnd(bookmark(5), event("ERROR", refusal))}
			inBubble(t, []reply{list(5, object("a", 1))}, watches, time.Hour,
				func(t *testing.T, s *script, r *recorder, _ *source.Source) {
					within(t, "lists in an hour", counted(s.seen(), "LIST"), 100, 500)
					if st := r.status(); st.Phase != source.Degraded || st.Message == "" {
						t.Errorf("status %+v", st)
					}
				})
		})
	}
}

// TestStuckWatch: a watch that always fails at one version leads to a list, as long as the server answers. In an outage
// it is only repeated.
func TestStuckWatch(t *testing.T) {
	html := body("<html>log in</html>")
	t.Run("of a working server", func(t *testing.T) {
		inBubble(t, []reply{list(5, object("a", 1))}, []reply{html}, time.Hour,
			func(t *testing.T, s *script, r *recorder, _ *source.Source) {
				within(t, "lists", counted(s.seen(), "LIST limit=500")+counted(s.seen(), "LIST resourceVersion"), 20, 100)
				within(t, "probes", counted(s.seen(), "LIST limit=1"), 20, 100)
				if st := r.status(); st.Phase != source.Degraded || st.Reason != source.ReasonProtocolError {
					t.Errorf("status %+v", st)
				}
			})
	})
	t.Run("of a server that is down", func(t *testing.T) {
		down := status(503, "ServiceUnavailable", "later")
		inBubble(t, []reply{list(5, object("a", 1)), down}, []reply{down}, time.Hour,
			func(t *testing.T, s *script, _ *recorder, _ *source.Source) {
				within(t, "lists", counted(s.seen(), "LIST limit=500")+counted(s.seen(), "LIST resourceVersion"), 1, 1)
			})
	})
	t.Run("with an event that never ends", func(t *testing.T) {
		stuck := watch(`{"type":"ADDED","object":{`)
		inBubble(t, []reply{list(5, object("a", 1)), list(5, object("a", 1)), list(8, object("a", 1))},
			[]reply{stuck, stuck, stuck, stuck, watch()},
			10*time.Minute, func(t *testing.T, s *script, r *recorder, _ *source.Source) {
				if r.version != "8" || counted(r.lines(), "STATUS Degraded/Stalled") == 0 || r.status().Phase != source.Watching {
					t.Errorf("requests %q, log %q", s.seen(), r.lines())
				}
			})
	})
}

// TestSlowEvent: an event that takes longer than the silence budget is delivered, as long as bytes arrive.
func TestSlowEvent(t *testing.T) {
	slow := func(w http.ResponseWriter, _ *http.Request) {
		for text := event("ADDED", object("b", 7)); len(text) > 0; {
			n := min(20, len(text))
			_, _ = w.Write([]byte(text[:n]))
			w.(http.Flusher).Flush()
			text = text[n:]
			time.Sleep(time.Minute) // on the fake clock
		}
	}
	lists := []reply{list(5, object("a", 1)), list(7, object("a", 1), object("b", 7))}
	inBubble(t, lists, []reply{slow, watch()}, 14*time.Minute,
		func(t *testing.T, s *script, r *recorder, _ *source.Source) {
			if r.version != "7" || counted(s.seen(), "WATCH resourceVersion=5") != 1 ||
				counted(s.seen(), "LIST limit=500") != 1 {
				t.Errorf("version %s, requests %q", r.version, s.seen())
			}
		})
}

// TestListAtVersionTwice: after two failed lists at a version, the third list is consistent.
func TestListAtVersionTwice(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer reply
		at     int // lists at the version
	}{
		"too large":        {status(504, "Timeout", "Too large resource version: 9, current: 5"), 1},
		"too large, cause": {status(504, "Timeout", "x", `{"causes":[{"message":"Too large resource version"}]}`), 1},
		"too large, no body": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Too large resource version", 504)
		}, 1},
		"gateway":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 504) }, 2},
		"internal": {status(500, "InternalError", "x"), 2},
		"html":     {body("<html>"), 2},
		"broken":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 2},
		"expired":  {status(410, "Expired", "x"), 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lists := []reply{list(5, object("a", 1)), func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("resourceVersion") != "" {
					tc.answer(w, r)
					return
				}
				list(7, object("a", 1))(w, r)
			}}
			watches := []reply{watch(event("ERROR", statusBody(410, "Expired", "x"))), watch(bookmark(9))}
			serveInBubble(t, lists, watches, func(s *script, r *recorder) {
				s.http.SetKeepAlivesEnabled(false) // a used connection would let the transport itself repeat a broken request
				s.run(r)
				r.wait("the last version", func() bool { return r.version == "9" })
				r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
				want := []string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "LIST", "WATCH 7"}
				if tc.at == 2 {
					want = []string{"LIST", "WATCH 5", "LIST 5 NotOlderThan", "LIST 5 NotOlderThan", "LIST", "WATCH 7"}
				}
				if diff := cmp.Diff(want, s.short()); diff != "" {
					s.t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// protoItems returns a list of config maps in protobuf whose items have these fields.
func protoItems(t *testing.T, fields ...[]byte) string {
	t.Helper()
	raw, err := (&corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		raw = append(raw, f...)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(b)
}

// TestOddItemsInProtobuf: a malformed item does not hide the others.
func TestOddItemsInProtobuf(t *testing.T) {
	t.Parallel()
	item := func(name string) []byte {
		cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "3"}}
		raw, err := cm.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{2<<3 | 2, byte(len(raw))}, raw...)
	}
	odd := map[string][]byte{
		"empty":          {2<<3 | 2, 0},
		"number":         {2 << 3, 17},
		"fixed":          {2<<3 | 5, 1, 2, 3, 4},
		"cut within":     {2<<3 | 2, 2, 1<<3 | 2, 9},
		"empty metadata": {2<<3 | 2, 2, 1<<3 | 2, 0},
	}
	for name, field := range odd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := protoItems(t, item("a"), field, item("b"))
			r := newRecorder(t)
			s := serve(t, []reply{func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
				_, _ = w.Write([]byte(answer))
			}}, []reply{watch()})
			src := s.run(r, func(c *source.Config) { c.Encoding = source.Protobuf })
			r.wait("Watching", func() bool { return r.status().Phase == source.Watching })
			if len(r.snapshot()) != 2 || len(r.quarantined) != 1 {
				t.Errorf("objects %v, quarantined %v", r.snapshot(), r.quarantined)
			}
			if st := src.Status()[0]; st.Err != nil || !strings.HasPrefix(st.Message, "1 object could not be read") {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// TestNamelessItemsHideDeletions: beside unnamed items, a missing object is deleted only if a second list lacks it,
// too.
func TestNamelessItemsHideDeletions(t *testing.T) {
	t.Parallel()
	var lists atomic.Int32
	withNull := listBody(9, "", "null", object("b", 2))
	r := newRecorder(t)
	s := serve(t, []reply{list(5, object("a", 1), object("b", 2)), func(w http.ResponseWriter, q *http.Request) {
		if lists.Add(1) == 1 {
			body(withNull)(w, q)
			return
		}
		list(10, object("a", 1), object("b", 2))(w, q)
	}}, []reply{watch(event("ERROR", statusBody(410, "Expired", "x"))), watch(bookmark(12))})
	s.run(r)
	r.wait("the last version", func() bool { return r.version == "12" })
	if len(r.snapshot()) != 2 || lists.Load() != 2 || r.commits != 2 {
		t.Errorf("objects %v after %d lists, log %q", r.snapshot(), lists.Load(), r.lines())
	}
}
