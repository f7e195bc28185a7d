package project

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// VersionOptions configures NewVersion. Group, Kind and Version are required.
type VersionOptions struct {
	// Dir is the directory of the project. Default: the current one.
	Dir string
	// Group and Kind name a kind of the project.
	Group, Kind string
	// Version is the new version.
	Version string
}

// versionsFile has the function that all conversions share.
const versionsFile = "controller/all_versions.go"

// NewVersion adds a version of a kind to a project, with the conversion and its test. The types are a copy of those of
// the stored version, and objects are stored as before. After an error, the project is unchanged.
func NewVersion(o VersionOptions) (*Made, error) {
	if !apiVersion.MatchString(o.Version) {
		return nil, invalid(ErrVersion, "version", o.Version, "use one such as v1alpha1, v1beta2 or v1")
	}
	p, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	k, err := p.find(o.Group, o.Kind)
	if err != nil {
		return nil, err
	}
	for _, v := range k.crd.Spec.Versions {
		if v.Name == o.Version {
			return nil, invalid(ErrExists, "version", o.Version, "%s has it", k.file)
		}
	}
	n := p.names(o.Group, o.Version, o.Kind)
	n.Plural, n.ClusterScoped, n.Stored, n.StoredAlias = k.Plural, k.ClusterScoped, k.Version, k.Alias
	newGroup, err := p.newGroup(n)
	if err != nil {
		return nil, err
	}
	if err := copyTypes(p, k.names, n, newGroup); err != nil {
		return nil, err
	}
	parts := []string{"version"}
	if newGroup {
		parts = append(parts, "group")
	}
	if !p.exists(versionsFile) {
		parts = append(parts, "versions")
	}
	if err := p.render(n, "version", n.Version, parts...); err != nil {
		return nil, err
	}
	if err := p.register(n, newGroup); err != nil {
		return nil, err
	}
	definition, err := k.withVersion(n.Version)
	if err != nil {
		return nil, p.no(fmt.Errorf("%s: %w", k.file, err))
	}
	completed, err := withConversion(definition, n.Name)
	if err != nil {
		return nil, p.no(fmt.Errorf("%s: %w", k.file, err))
	}
	if completed != nil {
		definition = completed
	}
	p.content[k.file] = definition
	if err := serveWebhooks(p, n, fmt.Sprintf("declare%s%s(rt, h)", n.Kind, n.VersionTitle())); err != nil {
		return nil, err
	}
	grant(p, conversionRights(n)...)
	return p.save()
}

var (
	versionName = regexp.MustCompile(`(?m)^(?:  - |    )name: (\S+)$`)
	storedLine  = regexp.MustCompile(`(?m)^    storage: true$`)
)

// withVersion returns the definition with a copy of the stored version. The versions stay in the order of
// controller-gen, by name.
func (k *served) withVersion(version string) ([]byte, error) {
	head, list, found := strings.Cut(string(k.text), "\n  versions:\n")
	if !found {
		return nil, fmt.Errorf("there is no line %q", "versions:")
	}
	type item struct{ name, text string }
	var items []item
	tail := ""
	for line := range strings.Lines(list) {
		switch {
		case tail != "" || !strings.HasPrefix(line, "  "):
			tail += line
		case strings.HasPrefix(line, "  - "):
			items = append(items, item{text: line})
		case len(items) > 0:
			items[len(items)-1].text += line
		}
	}
	copied := ""
	for i, it := range items {
		name := versionName.FindStringSubmatchIndex(it.text)
		if name == nil {
			return nil, fmt.Errorf("version %d has no line %q", i+1, "name:")
		}
		items[i].name = it.text[name[2]:name[3]]
		if items[i].name == k.Version {
			copied = it.text[:name[2]] + version + it.text[name[3]:]
		}
	}
	if !storedLine.MatchString(copied) {
		return nil, fmt.Errorf("version %s has no line %q", k.Version, "storage: true")
	}
	items = append(items, item{version, storedLine.ReplaceAllString(copied, "    storage: false")})
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.name, b.name) })
	out := head + "\n  versions:\n"
	for _, it := range items {
		out += it.text
	}
	return []byte(out + tail), nil
}
