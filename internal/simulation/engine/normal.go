package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Touched is the annotation that the conflicting client of fault Conflict writes. It is removed from all content.
const Touched = "simulate.fairlead.io/touched"

// A Normalizer rewrites objects so that two runs can be compared: it drops what the server assigns, and replaces
// generated names, uids and times by texts that are the same in each run. It learns names and uids from the objects of
// its run. It is not safe for concurrent use.
type Normalizer struct {
	names map[string]string // generated name → generateName and a star; random part of another name → a star
	exact map[string]string // uid or address → text with the canonical reference
	repl  *strings.Replacer // of names; nil after a new one
	own   random            // names that the subject makes up
}

// NewNormalizer returns a normalizer for one run. The names are those of its plan.
func NewNormalizer(names []string) *Normalizer {
	return &Normalizer{names: map[string]string{}, exact: map[string]string{}, own: newRandom(names)}
}

// Learn records the generated name and the uid of an object, and the addresses that the cluster gave it. It also
// records the random parts of a name that the subject has made up. The subject may use them elsewhere, as in a label.
func (n *Normalizer) Learn(res schema.GroupResource, obj *unstructured.Unstructured) {
	if name := obj.GetName(); isGenerated(name, obj.GetGenerateName()) {
		if _, known := n.names[name]; !known {
			n.names[name] = obj.GetGenerateName() + "*"
			n.repl = nil
		}
	}
	for _, part := range n.own.parts(obj.GetName()) {
		if _, known := n.names[part]; !known {
			n.names[part] = "*"
			n.repl = nil
		}
	}
	uid := string(obj.GetUID())
	if _, known := n.exact[uid]; !known {
		n.exact[uid] = "<uid of " + n.Ref(res, obj.GetNamespace(), obj.GetName()) + ">"
	}
	if res == configMaps && obj.GetName() == "kube-root-ca.crt" {
		if ca, _, _ := unstructured.NestedString(obj.Object, "data", "ca.crt"); ca != "" {
			n.exact[ca] = "<certificates of the cluster>"
		}
	}
	for _, path := range addresses[res] {
		if ip, _, _ := unstructured.NestedString(obj.Object, path...); ip != "" && ip != "None" {
			n.exact[ip] = "<address of " + n.Ref(res, obj.GetNamespace(), obj.GetName()) + ">"
		}
	}
}

// generated matches what the API server appends to a generateName, of which it takes up to longestPrefix characters.
var generated = regexp.MustCompile(`^` + alphabets[0] + `{5}$`)

const longestPrefix = 58

// isGenerated reports whether the API server has made a name from a generateName. A pod of a StatefulSet has a
// generateName, too, but its name ends with its ordinal.
func isGenerated(name, from string) bool {
	suffix, ok := strings.CutPrefix(name, from[:min(len(from), longestPrefix)])
	return from != "" && ok && generated.MatchString(suffix)
}

// configMaps have the certificates of the cluster, one in each namespace.
var configMaps = schema.GroupResource{Resource: "configmaps"}

// addresses holds the fields in which the cluster assigns an address. Others copy it into their own objects.
var addresses = map[schema.GroupResource][][]string{
	{Resource: "pods"}:     {{"status", "podIP"}},
	{Resource: "services"}: {{"spec", "clusterIP"}},
}

// Ref returns the canonical reference of an object: resource[.group]/[namespace/]name, with generated names replaced.
func (n *Normalizer) Ref(res schema.GroupResource, namespace, name string) string {
	name = n.text(name)
	if namespace != "" {
		name = n.text(namespace) + "/" + name
	}
	return res.String() + "/" + name
}

// byTheCluster are annotations whose presence or value depends on which controller of the cluster was faster. Those of
// an old ReplicaSet record the replicas of its Deployment when it was last scaled.
var byTheCluster = []string{
	"deployment.kubernetes.io/desired-replicas",
	"deployment.kubernetes.io/max-replicas",
	"endpoints.kubernetes.io/last-change-trigger-time",
	"pv.kubernetes.io/bound-by-controller",
	"volume.beta.kubernetes.io/storage-provisioner",
	"volume.kubernetes.io/storage-provisioner",
}

// Object returns a normalized copy.
func (n *Normalizer) Object(obj *unstructured.Unstructured) map[string]any {
	out, _ := n.value(obj.Object, obj.GetGeneration()).(map[string]any)
	meta, _ := out["metadata"].(map[string]any)
	for _, k := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "generateName",
		"deletionGracePeriodSeconds",
	} {
		delete(meta, k)
	}
	for _, k := range []string{"finalizers", "ownerReferences"} { // their order has no meaning
		if list, ok := meta[k].([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		for _, name := range byTheCluster {
			delete(annotations, name)
		}
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	return out
}

func (n *Normalizer) value(v any, generation int64) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			if k == Touched || k == "annotations" && onlyTouched(x) {
				continue
			}
			if k == "observedGeneration" {
				if g, ok := x.(int64); ok {
					out[k] = observed(g, generation)
					continue
				}
			}
			out[n.text(k)] = n.value(x, generation)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = n.value(x, generation)
		}
		return out
	case string:
		return n.text(v)
	case int64:
		return float64(v) // as it is after its way through JSON
	}
	return v
}

// onlyTouched reports whether annotations have no other key than Touched. A controller can copy annotations of its
// object into the templates of others.
func onlyTouched(annotations any) bool {
	m, ok := annotations.(map[string]any)
	if _, has := m[Touched]; !ok || !has {
		return false
	}
	return len(m) == 1
}

func observed(seen, generation int64) string {
	if seen == generation {
		return "<current>"
	}
	return "<outdated>"
}

// tokenVolume and five random characters are the name of the volume that the API server adds to a pod.
const tokenVolume = "kube-api-access-"

// text replaces a time, an address, and uids and generated names within a string.
func (n *Normalizer) text(s string) string {
	if isTime(s) {
		return "<time>"
	}
	if text, ok := n.exact[s]; ok {
		return text
	}
	if strings.HasPrefix(s, tokenVolume) && len(s) == len(tokenVolume)+5 {
		return tokenVolume + "*"
	}
	s = n.withoutUIDs(s)
	if len(n.names) > 0 && len(s) > 1 {
		if n.repl == nil {
			n.repl = n.replacer()
		}
		s = n.repl.Replace(s)
	}
	return n.own.replace(s)
}

// withoutUIDs replaces the known uids within a string, such as the name of a volume.
func (n *Normalizer) withoutUIDs(s string) string {
	const size = len("00000000-0000-4000-8000-000000000000")
	for i := 0; i+size < len(s)+1; i++ {
		if s[i+8] != '-' || s[i+13] != '-' || s[i+18] != '-' || s[i+23] != '-' {
			continue
		}
		if text, ok := n.exact[s[i:i+size]]; ok {
			s = s[:i] + text + s[i+size:]
			i += len(text) - 1
		}
	}
	return s
}

// replacer replaces longer names first, since a generated name can begin with another one.
func (n *Normalizer) replacer() *strings.Replacer {
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	pairs := make([]string, 0, 2*len(names))
	for _, name := range names {
		pairs = append(pairs, name, n.names[name])
	}
	return strings.NewReplacer(pairs...)
}

// isTime reports whether s is a time of RFC 3339.
func isTime(s string) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > len(time.RFC3339Nano) || s[4] != '-' || s[10] != 'T' {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

// Hash returns a short hash of normalized content. That of nil is empty.
func Hash(content map[string]any) string {
	if content == nil {
		return ""
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(canonical(content)))
	return fmt.Sprintf("%08x", uint32(h.Sum64()^h.Sum64()>>32))
}

// canonical returns JSON with sorted keys.
func canonical(content map[string]any) string {
	b, err := json.Marshal(content)
	if err != nil {
		return fmt.Sprint(content) // content that JSON cannot express, such as a NaN: fmt sorts keys as well
	}
	return string(b)
}
