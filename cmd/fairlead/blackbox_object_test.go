package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestBlackboxObjects sends objects of unusual form, in a list, as initial events and as changes. The program prints
// them unchanged.
func TestBlackboxObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		raw    string // %[1]s is the version
	}{
		"MetadataLast": {
			"Members come in any order.",
			`{"data":{"a":"b"},"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%[1]s","uid":"u",` +
				`"namespace":"a","name":"x"}}`,
		},
		"Escapes": {
			"Names of members may be escaped, and values too.",
			`{"kind":"ConfigMap","apiVersion":"v1","m\u0065tadata":{"n\u0061me":"\u0078","namespace":"\u0061",` +
				`"uid":"u","resourceVersion":"%[1]s","labels":{"\u0061\/b":"\ud83d\ude00"}},` +
				`"data":{"k\"\\\n":"\u0000\u2028"}}`,
		},
		"Spaces": {
			"White space may be anywhere.",
			" {\t\"kind\" : \"ConfigMap\" ,\r \"apiVersion\":\"v1\", \"metadata\" :  { \"name\" : \"x\" , " +
				"\"namespace\" : \"a\" , \"uid\":\"u\",\"resourceVersion\" : \"%[1]s\" } , \"data\" : { } } ",
		},
		"LineEnds": {
			"And line ends within a frame.",
			"{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"name\": \"x\",\n    " +
				"\"namespace\": \"a\",\n    \"uid\": \"u\",\n    \"resourceVersion\": \"%[1]s\"\n  },\n  \"data\": " +
				"{\n    \"a\": \"b\"\n  }\n}",
		},
		"Numbers": {
			"Numbers are not rounded.",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u",` +
				`"resourceVersion":"%[1]s","generation":9007199254740993},"n":[123456789012345678901234567890,1e400,` +
				`-0.0,1.10,5E-7]}`,
		},
		"Deep": {
			"Nesting is deep.",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u",` +
				`"resourceVersion":"%[1]s"},"d":` + strings.Repeat(`{"d":[`, 2000) + strings.Repeat(`]}`, 2000) + `}`,
		},
		"Decoys": {
			"Members of other objects have the same names.",
			`{"spec":{"metadata":{"name":"decoy","uid":"no"},"object":{"type":"DELETED"}},"kind":"ConfigMap",` +
				`"apiVersion":"v1","metadata":{"annotations":{"name":"decoy","k8s.io/initial-events-end":"true"},` +
				`"name":"x","namespace":"a","uid":"u","resourceVersion":"%[1]s"},"type":"DELETED",` +
				`"object":{"metadata":{"name":"decoy"}}}`,
		},
		"Nulls": {
			"null is nothing.",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u",` +
				`"resourceVersion":"%[1]s","labels":null,"ownerReferences":null,"managedFields":null,` +
				`"deletionTimestamp":null,"finalizers":null},"data":null}`,
		},
		"NoKind": {
			"Items of a list need no kind.",
			`{"metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"%[1]s"},"data":{}}`,
		},
		"Brackets": {
			"Brackets within strings are no brackets.",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u",` +
				`"resourceVersion":"%[1]s"},"data":{"}":"]}\\","{\"":"\\\"}}\\"}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, flag := range []string{"--no-watch-list", "--no-watch-list=false"} {
				s := newWire(t)
				var want any
				if err := json.Unmarshal([]byte(strings.ReplaceAll(fmt.Sprintf(tc.raw, "1003"), "1e400", `"1e400"`)),
					&want); err != nil {
					t.Fatal(err)
				}
				at := func(version, _ string) string { return fmt.Sprintf(tc.raw, version) }
				s.putRaw("a/x", at)
				p := startProgram(t, s.url, flag)
				if l := p.event("ADDED", "a/x"); l.uid != "u" || l.version != "1003" ||
					!sameJSON(t, l.members["object"], at("1003", "")) {
					t.Errorf("%s\n%v", tc.reason, l)
				}
				p.synced()
				s.putRaw("a/x", at)
				if l := p.event("MODIFIED", "a/x"); l.version != "1006" ||
					l.text("previousResourceVersion") != "1003" ||
					!sameJSON(t, l.members["object"], at("1006", "")) {
					t.Errorf("%s\n%v", tc.reason, l)
				}
				p.finish()
			}
		})
	}
}

// sameJSON compares without rounding numbers. kind and apiVersion may have been added, and managedFields left out.
func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	read := func(raw []byte) string {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		delete(v, "kind")
		delete(v, "apiVersion")
		delete(v["metadata"].(map[string]any), "managedFields")
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return read(got) == read([]byte(want))
}

// TestBlackboxFrames sends frames of unusual form.
func TestBlackboxFrames(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	cm := wireConfigMap
	frames := `{"object":` + cm("a/object-first", "1010", "u1", "") + `,"type":"ADDED"}` + "\n" +
		"\n\n \r\n" + `{ "type" : "ADDED" , "object" : ` + cm("a/spaces", "1011", "u2", "") + ` }` + "\r\n" +
		frame("ADDED",
			cm("a/same-line-1", "1012", "u3", ""))[:len(frame("ADDED", cm("a/same-line-1", "1012", "u3", "")))-1] +
		frame("ADDED", cm("a/same-line-2", "1013", "u4", "")) +
		`{"extra":{"type":"DELETED"},"type":"ADDED","more":[1,2],"object":` + cm("a/extra", "1014", "u5", "") + "}\n" +
		`{"ty\u0070e":"ADD\u0045D","o\u0062ject":` + cm("a/escaped", "1015", "u6", "") + "}\n" +
		frame("MODIFIED", cm("a/unknown-modified", "1016", "u7", "")) +
		frame("DELETED", cm("a/unknown-deleted", "1017", "u8", "")) +
		frame("ADDED", cm("a/extra", "1018", "u5", "again"))
	s.take = func(w http.ResponseWriter, r *wireRequest) bool {
		if !r.initial() {
			return false
		}
		_, _ = fmt.Fprint(w, bookmark(1000, true), frames)
		s.hold(w, r)
		return true
	}
	p := startProgram(t, s.url)
	p.event("MODIFIED", "a/extra")
	for _, key := range []string{
		"object-first", "spaces", "same-line-1", "same-line-2", "extra", "escaped",
		"unknown-modified",
	} {
		if _, is := p.state["a/"+key]; !is {
			t.Errorf("no %s in %v", key, p.state)
		}
	}
	if len(p.state) != 7 {
		t.Errorf("%d objects, want 7", len(p.state))
	}
	p.finish()
}

// TestBlackboxHuge sends an object of 20 MB, in a list and as a change. It runs alone, since it needs a gigabyte with
// the race detector.
func TestBlackboxHuge(t *testing.T) {
	s := newWire(t)
	huge := strings.Repeat("0123456789abcdef", 20<<20/16)
	s.put("a/huge", huge+"1")
	s.put("a/small", "first")
	p := startProgram(t, s.url, "--no-watch-list")
	if l := p.event("ADDED", "a/huge"); l.value() != huge+"1" {
		t.Errorf("it came with %d bytes", len(l.value()))
	}
	p.synced()
	s.put("a/huge", huge+"2")
	if l := p.event("MODIFIED", "a/huge"); l.value() != huge+"2" {
		t.Errorf("it came with %d bytes", len(l.value()))
	}
	s.put("a/small", "second")
	p.event("MODIFIED", "a/small")
	p.finish()
}

// TestBlackboxPoison puts unreadable objects among good ones, and then repairs them.
func TestBlackboxPoison(t *testing.T) {
	t.Parallel()
	metadata := `"namespace":"a","uid":"bad-uid","resourceVersion":"%s"`
	tests := map[string]struct {
		reason, raw string
		key         string // as reported
		malformed   bool   // not JSON at all, which only a watch survives
	}{
		"LabelsNumber": {
			"Labels are a map.", `{"metadata":{"name":"bad","labels":17,` + metadata + `}}`, "a/bad",
			false,
		},
		"LabelNumber": {
			"Of strings.", `{"metadata":{"name":"bad","labels":{"a":1},` + metadata + `}}`, "a/bad",
			false,
		},
		"NameNumber": {"A name is a string.", `{"metadata":{"name":17,` + metadata + `}}`, "", false},
		"NoName":     {"And there is one.", `{"metadata":{` + metadata + `}}`, "", false},
		"OwnersString": {
			"Owners are a list.", `{"metadata":{"name":"bad","ownerReferences":"me",` + metadata + `}}`,
			"a/bad", false,
		},
		"GenerationBig": {
			"Generations are integers.", `{"metadata":{"name":"bad","generation":1.5,` + metadata + `}}`,
			"a/bad", false,
		},
		"Malformed": {
			"A value that is not JSON.", `{"metadata":{"name":"bad",` + metadata + `},"data":{"a":nope}}`, "a/bad",
			true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, early := range []bool{true, false} {
				if early && tc.malformed {
					continue
				}
				s := newWire(t)
				bad := func(version, _ string) string { return fmt.Sprintf(tc.raw, version) }
				s.put("a/good", "first")
				if early {
					s.putRaw("a/bad", bad)
				}
				p := startProgram(t, s.url)
				if !early {
					p.synced()
					s.putRaw("a/bad", bad)
				}
				q := p.await("QUARANTINED", func(l printed) bool { return l.kind == "QUARANTINED" })
				if q.uid != "bad-uid" || q.text("error") == "" || q.key != tc.key && tc.key != "" {
					t.Errorf("%s\n%v", tc.reason, q)
				}
				s.put("a/next", "first")
				p.event("ADDED", "a/next")
				if _, is := p.state["a/good"]; !is {
					t.Errorf("%s\nno good object in %v", tc.reason, p.state)
				}
				s.put("a/bad", "well")
				if l := p.event("ADDED", "a/bad"); l.value() != "well" {
					t.Errorf("%s\n%v", tc.reason, l)
				}
				p.finish()
			}
		})
	}
}

// TestBlackboxPoisonKnown makes a known object unreadable: its known state stays.
func TestBlackboxPoisonKnown(t *testing.T) {
	t.Parallel()
	s := newWire(t)
	s.put("a/one", "first")
	s.put("a/two", "first")
	var expire expiry
	s.take = expire.refuses
	p := startProgram(t, s.url, "--max-watch", "300ms")
	p.synced()
	s.putRaw("a/one", func(version, uid string) string {
		return strings.Replace(wireConfigMap("a/one", version, uid, "bad"), `"uid"`, `"labels":1,"uid"`, 1)
	})
	p.await("QUARANTINED", func(l printed) bool { return l.kind == "QUARANTINED" && l.key == "a/one" })
	expire.Store(true)
	s.put("a/two", "second")
	p.event("MODIFIED", "a/two")
	p.until("listed again", func() bool { return s.relists() > 0 })
	s.put("a/one", "well")
	p.event("MODIFIED", "a/one")
	p.agrees(s)
	p.finish()
	if p.printed("DELETED") {
		t.Errorf("the object was lost: %v", p.all)
	}
}
