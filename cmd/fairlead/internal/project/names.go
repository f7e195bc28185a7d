package project

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// names is the input of the templates: the caller's choices, and derived names.
type names struct {
	Module string // path of the Go module
	Name   string // of the program, its image and its account; with "-system", its namespace

	Group, Version, Kind string
	GroupWord            string // first label of the group: a directory
	Alias                string // import name of the package of the group and version
	Lower, Plural        string // of the kind
	MaxName              int    // bound of object names, so that <lower>-<name> is valid for a Service and a label
	ClusterScoped        bool   // its objects are in no namespace
	Example              bool   // it is the kind of a new project, with children

	Defaulting, Validating bool   // the webhooks of the kind
	Stored, StoredAlias    string // the stored version and its import name, for another version

	Go             string // language version
	LibraryVersion string
	Replace        string // directory of the library; empty: the module is fetched
}

var (
	moduleElement = regexp.MustCompile(`^[A-Za-z0-9_~][A-Za-z0-9._~-]*$`)
	majorVersion  = regexp.MustCompile(`^v[0-9]+$`)
	apiVersion    = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	kindName      = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	noLetters     = regexp.MustCompile(`[^a-z0-9]+`)
)

// taken are names in use in the package of a version, or, with a prefix, in that of the controllers: TestMain,
// TestRights, TestDeploy, declareWebhooks.
var taken = []string{"groupversion", "addtoscheme", "main", "rights", "deploy", "webhooks"}

// readOtherwise reports whether YAML reads a name as another type, such as a number. YAML parsers differ in the words
// that they convert.
func readOtherwise(name string) bool {
	var value any
	if err := yaml.Unmarshal([]byte(name), &value); err != nil {
		return true
	}
	_, ok := value.(string)
	return !ok || slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(name))
}

// checkModule returns an error if a path is no module path.
func checkModule(module string) error {
	no := func(format string, args ...any) error { return invalid(ErrModule, "module", module, format, args...) }
	if module == "" {
		return no("a path is needed, such as example.com/web")
	}
	if len(module) > 200 {
		return no("it is too long")
	}
	for e := range strings.SplitSeq(module, "/") {
		switch {
		case e == "":
			return no("a part of it is empty")
		case !moduleElement.MatchString(e), strings.HasSuffix(e, "."):
			return no("a part of it, %q, is not made of letters, digits and -._~, "+
				"or begins with - or ., or ends with .", e)
		case e == "internal", e == "vendor":
			return no("%q has a meaning of its own in Go", e)
		}
	}
	return nil
}

// checkKind returns all problems with the names of a kind.
func checkKind(group, version, kind string) error {
	var errs []error
	no := func(is error, what, value, format string, args ...any) {
		errs = append(errs, invalid(is, what, value, format, args...))
	}
	switch faults := validation.IsDNS1123Subdomain(group); {
	case len(faults) > 0:
		no(ErrGroup, "group", group, "%s", faults[0])
	case !strings.Contains(group, "."):
		no(ErrGroup, "group", group, "it has to be a domain name, such as web.example.com")
	case readOtherwise(group):
		no(ErrGroup, "group", group, "YAML takes it for something else than a name")
	case protected(group):
		no(ErrGroup, "group", group, "it belongs to the Kubernetes project")
	}
	if !apiVersion.MatchString(version) {
		no(ErrVersion, "version", version, "use one such as v1alpha1, v1beta2 or v1")
	}
	switch lower := strings.ToLower(kind); {
	case !kindName.MatchString(kind):
		no(ErrKind, "kind", kind,
			"it has to be a word in camel case that begins with a capital letter, such as WebPage")
	case len(kind) > 50:
		no(ErrKind, "kind", kind, "it is longer than 50 letters")
	case strings.HasSuffix(kind, "List"):
		no(ErrKind, "kind", kind, "names that end with List are those of lists")
	case slices.Contains(taken, lower), readOtherwise(lower), readOtherwise(kind):
		no(ErrKind, "kind", kind, "the word has a meaning of its own, in the code of a project or in YAML")
	}
	return errors.Join(errs...)
}

func protected(group string) bool {
	for _, of := range []string{"k8s.io", "kubernetes.io"} {
		if group == of || strings.HasSuffix(group, "."+of) {
			return true
		}
	}
	return false
}

// nameOf returns the name of a module's program: the last path element that is no version, as a DNS label.
func nameOf(module string) string {
	base := path.Base(module)
	if majorVersion.MatchString(base) && path.Dir(module) != "." {
		base = path.Base(path.Dir(module))
	}
	name := strings.Trim(noLetters.ReplaceAllString(strings.ToLower(base), "-"), "-")
	if len(name) > 40 {
		name = strings.Trim(name[:40], "-")
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' || // it may become the name of a Service
		readOtherwise(name) {
		name = strings.Trim("operator-"+name, "-")
	}
	return name
}

// of returns the names of a kind. They must be valid.
func (n names) of(group, version, kind string) names {
	n.Group, n.Version, n.Kind = group, version, kind
	n.GroupWord, _, _ = strings.Cut(group, ".")
	n.Alias = strings.ReplaceAll(n.GroupWord, "-", "") + version
	if c := n.Alias[0]; c >= '0' && c <= '9' {
		n.Alias = "api" + n.Alias
	}
	n.Lower = strings.ToLower(kind)
	n.Plural = plural(n.Lower)
	n.MaxName = validation.DNS1123LabelMaxLength - len(n.Lower) - 1
	return n
}

// Camel returns the kind as the beginning of a Go name that is not exported.
func (n names) Camel() string { return strings.ToLower(n.Kind[:1]) + n.Kind[1:] }

// plural returns the regular English plural.
func plural(word string) string {
	ends := func(suffixes ...string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(word, s) {
				return true
			}
		}
		return false
	}
	switch {
	case ends("s", "x", "z", "ch", "sh"):
		return word + "es"
	case ends("y") && !ends("ay", "ey", "iy", "oy", "uy"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

// VersionTitle returns the version as a part of a Go name, such as V1beta1.
func (n names) VersionTitle() string { return strings.ToUpper(n.Version[:1]) + n.Version[1:] }
