package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// normaliser makes the answers of two servers comparable: uids and versions are told by the step that first showed
// them, so that it shows which are the same; times and texts for people are left out.
type normaliser struct {
	namespace string
	step      string            // whose answer is being normalised
	shown     map[string]int    // by that step, of a kind
	origins   map[string]string // uid or version → where it was met first
	answered  map[string]string // step.field → value
	drawn     []*regexp.Regexp  // names drawn by lot
}

func newNormaliser(namespace string) *normaliser {
	return &normaliser{
		namespace: namespace, origins: map[string]string{}, shown: map[string]int{},
		answered: map[string]string{"ns": namespace},
	}
}

var generateName = regexp.MustCompile(`"generateName":"([^"]+)"`)

func (n *normaliser) begin(s step) {
	n.step = s.name
	clear(n.shown)
	if m := generateName.FindStringSubmatch(s.body); m != nil {
		n.drawn = append(n.drawn, regexp.MustCompile(`("`+regexp.QuoteMeta(m[1][:min(len(m[1]), 58)])+`)[a-z0-9]{5}\b`))
	}
}

// fill puts in what earlier steps were answered: {ns}, {step.uid}, {step.rv}, {step.continue}, {step.name}.
func (n *normaliser) fill(s string) string {
	for k, v := range n.answered {
		s = strings.ReplaceAll(s, "{"+k+"}", v)
	}
	return s
}

// body normalises an answer and remembers what later steps may use of it.
func (n *normaliser) body(raw []byte) string {
	if bytes.HasPrefix(raw, []byte("k8s\x00")) {
		obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return "protobuf of an unknown type: " + err.Error()
		}
		obj.GetObjectKind().SetGroupVersionKind(*gvk)
		if raw, err = json.Marshal(obj); err != nil {
			return err.Error()
		}
	}
	var content map[string]any
	if json.Unmarshal(raw, &content) != nil {
		return "no JSON object" // a text, for people
	}
	if meta, ok := content["metadata"].(map[string]any); ok {
		for field, as := range map[string]string{
			"uid": "uid", "resourceVersion": "rv", "continue": "continue", "name": "name",
		} {
			if v, ok := meta[field].(string); ok {
				n.answered[n.step+"."+as] = v
			}
		}
	}
	return n.object(content)
}

func (n *normaliser) object(content map[string]any) string {
	n.walk(content)
	out, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err.Error()
	}
	text := strings.ReplaceAll(string(out), n.namespace, "{ns}")
	for _, drawn := range n.drawn {
		text = drawn.ReplaceAllString(text, "$1*****")
	}
	return text
}

func (n *normaliser) origin(kind, value string) string {
	if value == "" || value == "0" {
		return value
	}
	if n.origins[kind+value] == "" {
		n.shown[kind]++
		n.origins[kind+value] = fmt.Sprintf("%s %d of %s", kind, n.shown[kind], n.step)
	}
	return n.origins[kind+value]
}

func (n *normaliser) walk(m map[string]any) {
	if m["kind"] == "Status" {
		delete(m, "message")
		if meta, ok := m["metadata"].(map[string]any); ok && meta["continue"] != nil {
			meta["continue"] = "some"
		}
		if details, ok := m["details"].(map[string]any); ok {
			n.causes(details)
			if len(details) == 0 {
				delete(m, "details")
			}
		}
	}
	_, isList := m["items"].([]any)
	if rows, ok := m["rows"].([]any); ok {
		for _, r := range rows {
			delete(r.(map[string]any), "cells") // ages
		}
		isList = true
	}
	for _, key := range slices.Sorted(mapKeys(m)) {
		switch v := m[key].(type) {
		case string:
			switch {
			case key == "clusterIP" && v != "None":
				m[key] = "an address"
			case key == "uid" || key == "controller-uid" || strings.HasSuffix(key, "/controller-uid"):
				m[key] = n.origin("uid", v)
			case key == "resourceVersion" && !isList:
				m[key] = n.origin("version", v)
			case strings.HasSuffix(key, "Timestamp") || key == "time" || strings.HasSuffix(key, "Time"):
				m[key] = "a time"
			}
		case map[string]any:
			if key == "metadata" && isList {
				// the one of the collection, which others change as well
				for _, field := range []string{"resourceVersion", "continue"} {
					if s, there := v[field].(string); s != "" {
						v[field] = "some"
					} else if there {
						delete(v, field)
					}
				}
				break
			}
			if key != "fieldsV1" {
				n.walk(v)
			}
		case float64:
			if key == "nodePort" {
				m[key] = "a port" // drawn by lot
			}
		case []any:
			if key == "clusterIPs" && v[0] != "None" {
				v[0] = "an address" // drawn by lot
			}
			for _, item := range v {
				if o, ok := item.(map[string]any); ok {
					n.walk(o)
				}
			}
			if key == "managedFields" {
				slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
	}
}

// causes keeps what programs look at: type and field.
func (n *normaliser) causes(details map[string]any) {
	causes, _ := details["causes"].([]any)
	for _, c := range causes {
		delete(c.(map[string]any), "message")
	}
	slices.SortFunc(causes, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if causes != nil {
		details["causes"] = slices.CompactFunc(causes, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	}
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func mediaType(res *http.Response) string {
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return "nothing"
	}
	return media
}

func warnings(res *http.Response) string {
	if n := len(res.Header.Values("Warning")); n > 0 {
		return fmt.Sprintf(", %d warnings", n)
	}
	return ""
}

// watching is an open watch.
type watching struct{ lines *bufio.Reader }

func follow(t *testing.T, res *http.Response) *watching {
	t.Cleanup(func() { res.Body.Close() })
	return &watching{bufio.NewReader(res.Body)}
}

// read reads events: so many, or all until the end. Plain bookmarks come when they like and are not counted.
func (w *watching) read(n *normaliser, count int) string {
	if w == nil || w.lines == nil {
		return "not watching"
	}
	var out []string
	for count != 0 {
		line, err := w.lines.ReadBytes('\n')
		if err != nil {
			return strings.Join(append(out, "the end"), "\n")
		}
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return strings.Join(append(out, "no event: "+string(line)), "\n")
		}
		if meta, _ := e.Object["metadata"].(map[string]any); e.Type == "BOOKMARK" {
			if notes, _ := meta["annotations"].(map[string]any); notes[metav1.InitialEventsAnnotationKey] == nil {
				continue
			}
			meta["resourceVersion"] = "0" // of the whole server, or of what is selected
		}
		out = append(out, e.Type+" "+n.object(e.Object))
		count--
	}
	return strings.Join(out, "\n")
}
